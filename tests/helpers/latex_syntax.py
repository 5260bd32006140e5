r"""The syntax of a LaTeX fragment, for machines without a TeX engine.

Braces and environments nest, mathematics is closed in its line, every command is one that LaTeX or booktabs has, the
characters that TeX gives a meaning to stand where they mean it, and each row of a `tabular` has as many entries as the
preamble has columns. This is less than TeX checks: a command may still lack an argument.
"""

import re
from collections.abc import Iterator

TOKEN = re.compile(r"\\[a-zA-Z]+\*?|\\[^a-zA-Z]|%[^\n]*\n?|[{}$&#_^~\n]|[^\\%{}$&#_^~\n]+")
MATHEMATICAL = frozenset(
    re.findall(
        r"\S+",
        r"\pm \Delta \sigma \tau \approx \leq \geq \surd \uparrow \downarrow \cdot \times \dagger \ddagger",
    )
)
COMMANDS = MATHEMATICAL | frozenset(
    re.findall(
        r"\S+",
        r"""\begin \end \caption \footnotesize \setlength \tabcolsep \makebox \textwidth \toprule \midrule \bottomrule
        \addlinespace \par \smallskip \noindent \textbf \textsuperscript \textbackslash \textasciitilde
        \textasciicircum \textless \textgreater \textbar \textregistered \S \ldots""",
    )
)
ESCAPED = frozenset(rf"\{sign}" for sign in "&%$#_{}")
ENVIRONMENTS = ("table", "tabular", "flushleft")
NAME = re.compile(r"\{([a-z]+)\}")
PREAMBLE = re.compile(r"\{@\{\}([lrc]+)@\{\}\}")


def problems(text: str) -> list[str]:
    """Messages about a fragment, as `line: message`; empty if it is valid."""
    return [f"{line}: {message}" for line, message in _problems(text)]


def _problems(text: str) -> Iterator[tuple[int, str]]:
    opened: list[tuple[str, int]] = []  # `{`, `$` or an environment, and its line
    at, line, columns, entries = 0, 1, 0, 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            yield line, f"{text[at]!r} begins nothing"
            return
        token, at = match[0], match.end()
        inside = opened[-1][0] if opened else ""
        if not token.isascii():
            yield line, f"{token!r} is not ASCII"
        if token in (r"\begin", r"\end"):
            name = NAME.match(text, at)
            if name is None or name[1] not in ENVIRONMENTS:
                yield line, f"{token} of an unknown environment: {text[at : at + 20]!r}"
                return
            at = name.end()
            if token == r"\end":
                if inside != name[1]:
                    yield line, rf"\end{{{name[1]}}} inside {inside or 'nothing'!r}"
                    return
                if name[1] == "tabular" and entries:
                    yield line, "the last row is not ended"
                opened.pop()
                continue
            opened.append((name[1], line))
            if name[1] == "tabular":
                preamble = PREAMBLE.match(text, at)
                if preamble is None:
                    yield line, f"no columns: {text[at : at + 20]!r}"
                    return
                at, columns, entries = preamble.end(), len(preamble[1]), 0
        elif token == r"\\":
            if inside != "tabular":
                yield line, rf"\\ inside {inside or 'nothing'!r}"
            elif entries + 1 != columns:
                yield line, f"{entries + 1} entries in {columns} columns"
            entries = 0
            if text[at:].lstrip()[:1] in ("[", "*"):
                yield line, r"\\ takes what follows as its argument"
        elif token == "&":
            if inside != "tabular":
                yield line, f"& inside {inside or 'nothing'!r}"
            entries += 1
        elif token == "{":
            opened.append(("{", line))
        elif token == "}":
            if inside != "{":
                yield line, f"}} inside {inside or 'nothing'!r}"
                return
            opened.pop()
        elif token == "$":
            if inside == "$":
                opened.pop()
            else:
                opened.append(("$", line))
        elif token in "#_^~":
            yield line, f"{token} is not escaped"
        elif token == "\n":
            if inside == "$":
                yield line, "mathematics is not closed"
                return
            if inside == "{" and text[at : at + 1] == "\n":
                yield line, "a paragraph ends inside of an argument"
        elif token[0] == "\\":
            if token not in COMMANDS | ESCAPED:
                yield line, f"unknown command {token}"
            elif (token in MATHEMATICAL) is not (inside == "$"):
                yield line, f"{token} inside {inside or 'nothing'!r}"
        line += token.count("\n")
    for opening, line in opened:
        yield line, f"{opening} is not closed"
