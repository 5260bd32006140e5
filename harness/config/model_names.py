"""The name that a model has for people, on pages and in pictures."""

import functools
from collections.abc import Iterable

from harness.config.compose import folders, options

LONGEST = 40


def model_names(models: Iterable[str]) -> dict[str, str]:
    """{model: the words before the colon in the first line of its yaml}; a model without such a line keeps its id."""
    names = _names(tuple(folders()))
    return {model: names.get(model, model) for model in models}


def row_name(row: str) -> str:
    """The name of a row for people: a row that is called by the id of a model has the name of this model."""
    return model_names([row])[row]


@functools.cache
def _names(_: tuple[str, ...]) -> dict[str, str]:
    lines = ((model, *line.partition(": ")) for model, line in options("model"))
    return {model: name for model, name, colon, _ in lines if colon and len(name) <= LONGEST}


def labelled(label: str, model: str) -> str:
    """A label of do=bench for people: `Luna (slots=16)` for `luna (model.slots=16)`, `Luna-16` for `luna_16`; a label
    that does not begin with the id of a model stays."""
    name = model_names([model])[model]
    if (shown := model_names([label])[label]) != label:
        return shown
    if label.startswith(f"{model}_"):
        return f"{name}-{label.removeprefix(f'{model}_')}"
    start, bracket, rest = label.partition(" (")
    return name + bracket + rest.replace("model.", "") if start == model else label
