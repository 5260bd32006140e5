r"""The syntax of a LaTeX fragment, for machines without a TeX engine.

Braces and environments nest, mathematics is closed in its line, every command is one that LaTeX or booktabs has, the
characters that TeX gives a meaning to stand where they mean it, and each row of a `tabular` has as many entries as the
preamble has columns. This is less than TeX checks: a command may still lack an argument.
"""

import re
from collections.abc import Iterator

NAMES = r"[a-zA-Z]+"
MATHEMATICAL = re.findall(NAMES, "pm Delta sigma tau approx leq geq surd uparrow downarrow cdot times dagger ddagger")
COMMANDS = re.findall(
    NAMES,
    """begin end caption footnotesize setlength tabcolsep textwidth toprule midrule bottomrule addlinespace par
    smallskip noindent textbf textsuperscript textbackslash textasciitilde textasciicircum textless textgreater textbar
    textregistered S ldots""",
)
TABULAR = re.compile(r"\\begin\{tabular\}\{@\{\}([lrc]+)@\{\}\}(.*?)\\end\{tabular\}", re.DOTALL)
ROW_END = "\0"


def problems(text: str) -> list[str]:
    """Messages about a fragment; empty if it is valid."""

    def plain_of(found: re.Match[str]) -> str:
        return ROW_END if found[1] == "\\" else "" if found[1] in "&%$#_{}" else found[0]

    # from left to right, so that the second backslash of a row's end begins no command; an escaped sign is text
    plain = re.sub("%[^\n]*\n?", "", re.sub(r"\\(.)", plain_of, text))  # without comments
    return [*_signs(text, plain), *_nesting(plain), *_rows(plain)]


def _signs(text: str, plain: str) -> Iterator[str]:
    if not text.isascii():
        yield "not ASCII"
    yield from (f"{sign} is not escaped" for sign in "#_^~" if sign in plain)
    if wrong := re.findall(r"\\[^a-zA-Z]", plain):
        yield f"unknown commands {wrong}"
    for number, part in enumerate(plain.split("$")):
        known = MATHEMATICAL if number % 2 else COMMANDS
        yield from (rf"unknown command \{name}" for name in re.findall(rf"\\({NAMES})", part) if name not in known)
        if number % 2 and "\n" in part:
            yield "mathematics is not closed"


def _nesting(plain: str) -> Iterator[str]:
    opened: list[str] = []
    for found in re.finditer(r"\\begin\{(\w+)\}|\\end\{(\w+)\}|[{}]|\n\n", plain):
        begun, ended = found.groups()
        if begun or found[0] == "{":
            opened.append(begun or "{")
        elif found[0] == "\n\n":
            if "{" in opened:
                yield "a paragraph ends inside of an argument"
        elif (opened.pop() if opened else "nothing") != (ended or "{"):
            yield f"{found[0]} ends what did not begin"
    yield from (f"{name} is not closed" for name in opened)


def _rows(plain: str) -> Iterator[str]:
    for columns, body in TABULAR.findall(plain):
        *rows, rest = body.split(ROW_END)
        counts = [row.count("&") + 1 for row in rows]
        yield from (f"{count} entries in {len(columns)} columns" for count in counts if count != len(columns))
        if "&" in rest:
            yield "the last row is not ended"
        if any(row.lstrip()[:1] in ("[", "*") for row in [*rows[1:], rest]):
            yield r"\\ takes what follows as its argument"
    outside = TABULAR.sub("", plain)
    yield from (f"{sign!r} outside of a tabular" for sign in ("&", ROW_END) if sign in outside)
