"""Equations of docstrings, which are plain text, as MathML, which browsers show without a script.

Without latex2mathml, an extra of the documentation, they stay as they are.

`o_i = sum_{j<=i} softmax_j( <q_i, k_j> / sqrt(E) ) v_j` is read as it is written in the code: `_` and `^` take a group
in braces or brackets, a number, or a word; `K~` has a tilde, `x^` a hat; `<a, b>` is an inner product, `a < b` a
comparison. Words are text. Parts that are three spaces apart stand apart, and a line about shapes stays text.
"""

import html
import importlib.util
import re
from collections.abc import Iterator

GREEK = ["alpha", "beta", "gamma", "delta", "kappa", "lambda", "mu", "phi", "pi", "psi", "sigma", "tau"]
FUNCTIONS = (
    *(
        "argmax",
        "ceil",
        "concat",
        "conv",
        "cos",
        "diag",
        "elu",
        "erf",
        "exp",
        "floor",
        "ln",
        "log",
        "max",
        "mean",
        "min",
    ),
    *("mod", "sigmoid", "sin", "softmax", "softplus", "tanh", "Attention", "Attn", "FFN", "GELU", "GroupNorm", "LN"),
    *("LayerNorm", "ReLU", "RGLRU", "RMSNorm", "Re", "SG", "SiLU"),
)
SHORT_WORDS = {"as", "at", "be", "by", "if", "in", "is", "it", "no", "of", "on", "or", "so", "to"}
SIGNS = {
    "<=": r"\le ", ">=": r"\ge ", "<-": r"\leftarrow ", "->": r"\to ", "..": r"\dots ", "|": r"\vert ", "*": r"\ast ",
    "{": r"\{", "}": r"\}", "~": r"\approx ", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "_": r"\_",
    "^": r"\hat{\ }", "\\": r"\backslash ", "`": "",
}  # fmt: skip
TEXT = re.compile(r"""[A-Za-z]+'s|[A-Za-z]{2,}(?:-[A-Za-z]+)+|"[^"]+\"""")
TOKEN = re.compile(rf"""\s+|{TEXT.pattern}|\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z]+|<=|>=|<-|->|\.\.|.""")
NAMES = {"sum": r"\sum ", "eps": r"\epsilon "}
GROUP = {"{": "}", "(": ")"}
SCRIPT = re.compile(r"-?\d+(?:/\d+)?|-?[A-Za-z0-9]+(?:,[a-z]\b)?")
SHAPES = re.compile(r"(B batch|block, s blocks|F globally)\b")
REFERENCE = re.compile(r"\((?:§|eqs?\. |Lemma )?[\d§., -]+\)")
GAP = re.compile(r"\s{3,}")


def rendered(lines: list[str]) -> str:
    """The lines of a block as HTML, or as a block of code."""
    if importlib.util.find_spec("latex2mathml") is None:
        return "\n".join(["```text", *lines, "```"])
    rows = [f"<p>{''.join(_parts(line.strip()))}</p>" for line in lines if line.strip()]
    return "\n".join(['<div class="formulas">', *rows, "</div>"])


def _parts(line: str) -> Iterator[str]:
    if SHAPES.match(line):
        yield f"<span>{html.escape(line)}</span>"
        return
    for part in GAP.split(re.sub(r"\s+= ", " = ", line)):
        if REFERENCE.fullmatch(part) or not re.search(r"[=_^<>~+*/|]|\w\(", part):
            yield f"<span>{html.escape(part)}</span>"
        else:
            yield mathml(part)


def mathml(text: str) -> str:
    from latex2mathml.converter import convert

    made = convert(latex(text))
    return made.replace("<math ", f'<math alttext="{html.escape(text)}" ', 1)


def latex(text: str) -> str:
    """An equation as LaTeX."""
    tokens = TOKEN.findall(text)
    made: list[str] = []
    place = 0
    while place < len(tokens):
        atom, place = _atom(tokens, place)
        made.append(atom)
    return "".join(made)


def _atom(tokens: list[str], place: int) -> tuple[str, int]:
    """A token with its accents and scripts, and the place behind it."""
    token, following = tokens[place], tokens[place + 1 : place + 2]
    before = tokens[place - 1] if place else " "
    place += 1
    if token.isspace():
        is_behind_text = is_word(before) and tokens[max(0, place - 3)] not in "_^"
        return (r"\quad " if len(token) > 1 else r"\text{ }" if is_behind_text or is_word(*following) else " "), place
    if (is_word(token) and following not in (["_"], ["^"], ["~"], ["("])) or (token == "sum" and following != ["_"]):
        return rf"\text{{{token}}}", place
    if token == "sqrt":
        if following == ["("]:
            inner, place = _group(tokens, place)
        else:
            place += bool(following) and following[0].isspace()
            inner, place = _atom(tokens, place) if place < len(tokens) else ("", place)
        return rf"\sqrt{{{inner}}}", place
    if token == "<" and following and not following[0].isspace() and not before[-1].isalnum():
        return r"\langle ", place
    if token == ">" and not before.isspace():
        return _scripts(r"\rangle ", tokens, place)
    if token[0].isalpha() and token.isascii():
        return _scripts(_name(token, following), tokens, place)
    if token == "." and before == "(" and following == [")"]:
        return r"\cdot ", place
    base = SIGNS.get(token, token if token.isascii() else rf"\text{{{token}}}")
    return _scripts(base, tokens, place) if token in ")]0123456789" or token == "|" else (base, place)


def is_word(token: str = "") -> bool:
    """Whether a token is text, not a symbol."""
    if TEXT.fullmatch(token) or token in SHORT_WORDS:
        return True
    return token.isalpha() and len(token) > 2 and token not in (*GREEK, *FUNCTIONS, "sum", "eps", "sqrt")


def _name(token: str, following: list[str]) -> str:
    """A symbol of letters."""
    if token in NAMES or token.lower() in GREEK:
        return NAMES.get(token, rf"\{token} ")
    if token in FUNCTIONS or following == ["("]:
        return token if len(token) == 1 else rf"\operatorname{{{token}}}"
    return token if len(token) == 1 else rf"\mathit{{{token}}}"


def _scripts(base: str, tokens: list[str], place: int) -> tuple[str, int]:
    """The accents, primes, subscripts and superscripts behind an atom."""
    lower = upper = primes = ""
    while place < len(tokens):
        token, following = tokens[place], tokens[place + 1 : place + 2]
        is_script = bool(following) and (following[0] in GROUP or following[0] == "-" or following[0][0].isalnum())
        if token == "~" and not (lower or upper):
            base, place = rf"\tilde{{{base}}}", place + 1
        elif token == "'":
            primes, place = primes + r"\text{′}", place + 1
            base, primes = (base, primes) if lower or upper else (f"{{{base}{primes}}}", "")
        elif token == "^" and not is_script and not lower:
            base, place = rf"\hat{{{base}}}", place + 1
        elif token == "_" and is_script and not lower:
            lower, place = _script(tokens, place + 1)
        elif token == "^" and is_script and not upper:
            upper, place = _script(tokens, place + 1)
        else:
            break
    lower = f"_{{{lower}}}" if lower else ""
    upper = f"^{{{upper}}}" if upper else ""
    return f"{base}{lower}{upper}{primes}", place


def _script(tokens: list[str], place: int) -> tuple[str, int]:
    if tokens[place] in GROUP:
        inner, behind = _group(tokens, place)
        return (inner if tokens[place] == "{" else f"({inner.replace(' x ', ' × ')})"), behind
    match = SCRIPT.match("".join(tokens[place:]))
    text, length = match[0] if match else tokens[place], 0
    behind = place
    while length < len(text):
        length += len(tokens[behind])
        behind += 1
    word = text.partition(",")[0]
    if word in GREEK:
        return rf"\{text} ", behind
    return rf"\mathrm{{{text}}}" if word.isalpha() and len(word) > 2 else text, behind


def _group(tokens: list[str], place: int) -> tuple[str, int]:
    """What stands between a bracket and its partner, and the place behind it."""
    opening, depth, end = tokens[place], 0, place
    while end < len(tokens):
        depth += (tokens[end] == opening) - (tokens[end] == GROUP[opening])
        end += 1
        if not depth:
            break
    return latex("".join(tokens[place + 1 : end - 1])), end
