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
    *("argmax", "ceil", "concat", "conv", "cos", "diag", "elu", "erf", "exp", "floor"),
    *("ln", "log", "max", "mean", "min"),
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
    index = 0
    while index < len(tokens):
        atom, index = _atom(tokens, index)
        made.append(atom)
    return "".join(made)


def _atom(tokens: list[str], index: int) -> tuple[str, int]:
    """A token with its accents and scripts, and the index behind it."""
    token, following = tokens[index], tokens[index + 1 : index + 2]
    before = tokens[index - 1] if index else " "
    index += 1
    if token.isspace():
        is_behind_text = is_word(before) and tokens[max(0, index - 3)] not in "_^"
        return (r"\quad " if len(token) > 1 else r"\text{ }" if is_behind_text or is_word(*following) else " "), index
    if (is_word(token) and following not in (["_"], ["^"], ["~"], ["("])) or (token == "sum" and following != ["_"]):
        return rf"\text{{{token}}}", index
    if token == "sqrt":
        if following == ["("]:
            inner, index = _group(tokens, index)
        else:
            index += bool(following) and following[0].isspace()
            inner, index = _atom(tokens, index) if index < len(tokens) else ("", index)
        return rf"\sqrt{{{inner}}}", index
    if token == "<" and following and not following[0].isspace() and not before[-1].isalnum():
        return r"\langle ", index
    if token == ">" and not before.isspace():
        return _scripts(r"\rangle ", tokens, index)
    if token[0].isalpha() and token.isascii():
        return _scripts(_name(token, following), tokens, index)
    if token == "." and before == "(" and following == [")"]:
        return r"\cdot ", index
    base = SIGNS.get(token, token if token.isascii() else rf"\text{{{token}}}")
    return _scripts(base, tokens, index) if token in ")]0123456789" or token == "|" else (base, index)


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


def _scripts(base: str, tokens: list[str], index: int) -> tuple[str, int]:
    """The accents, primes, subscripts and superscripts behind an atom."""
    lower = upper = primes = ""
    while index < len(tokens):
        token, following = tokens[index], tokens[index + 1 : index + 2]
        is_script = bool(following) and (following[0] in GROUP or following[0] == "-" or following[0][0].isalnum())
        if token == "~" and not (lower or upper):
            base, index = rf"\tilde{{{base}}}", index + 1
        elif token == "'":
            primes, index = primes + r"\text{′}", index + 1
            base, primes = (base, primes) if lower or upper else (f"{{{base}{primes}}}", "")
        elif token == "^" and not is_script and not lower:
            base, index = rf"\hat{{{base}}}", index + 1
        elif token == "_" and is_script and not lower:
            lower, index = _script(tokens, index + 1)
        elif token == "^" and is_script and not upper:
            upper, index = _script(tokens, index + 1)
        else:
            break
    lower = f"_{{{lower}}}" if lower else ""
    upper = f"^{{{upper}}}" if upper else ""
    return f"{base}{lower}{upper}{primes}", index


def _script(tokens: list[str], index: int) -> tuple[str, int]:
    if tokens[index] in GROUP:
        inner, behind = _group(tokens, index)
        return (inner if tokens[index] == "{" else f"({inner.replace(' x ', ' × ')})"), behind
    match = SCRIPT.match("".join(tokens[index:]))
    text, length = match[0] if match else tokens[index], 0
    behind = index
    while length < len(text):
        length += len(tokens[behind])
        behind += 1
    word = text.partition(",")[0]
    if word in GREEK:
        return rf"\{text} ", behind
    return rf"\mathrm{{{text}}}" if word.isalpha() and len(word) > 2 else text, behind


def _group(tokens: list[str], index: int) -> tuple[str, int]:
    """What stands between a bracket and its partner, and the index behind it."""
    opening, depth, end = tokens[index], 0, index
    while end < len(tokens):
        depth += (tokens[end] == opening) - (tokens[end] == GROUP[opening])
        end += 1
        if not depth:
            break
    return latex("".join(tokens[index + 1 : end - 1])), end
