"""A table in GitHub's Markdown."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from urllib.parse import quote

from harness.errors import in_markdown as escape
from harness.report.render.layout import Block, Picture, Section, Table, TableEntry

Number = Callable[[TableEntry], str]  # an entry as Markdown


def render(table: Table, number: Number | None = None) -> str:
    """`number`: renders an entry of a grid, `plain_entry` by default."""
    lines = [
        f"<!-- Made from the records by `{table.command}`; changes are lost. -->",
        f"# {escape(table.title)}",
        "",
        *(f"- {escape(line)}" for line in table.lead),
        *([""] if table.lead else []),
    ]
    for section in table.in_reading_order:
        lines += [f"## {escape(section.title)}", ""]
        for block in section.blocks:
            lines += [*block_lines(block, number or plain_entry), ""]
        if not section.blocks:
            lines += [*(f"- {escape(line)}" for line in section.lines), ""]
    lines += _details(table)
    for plot in table.plots:
        lines += [f"## {escape(plot.heading)}", "", escape(plot.caption), ""]
        lines += [f"![{escape(plot.caption)}]({quote(plot.link)})", ""]
    lines += _pictures(table.pictures)
    lines += _provenance(table.sections)
    lines += ["## How to read this", ""]
    lines += [f"- {escape(line)}" for line in table.caption]
    lines += [f"- {superscript((name,))} {escape(text)}" for name, text in table.footnotes]
    return "\n".join(lines) + "\n"


def _details(table: Table) -> Iterator[str]:
    """What was measured, column by column, and how much of it stands beside published numbers."""
    yield from ("## In detail", "", *(f"- {escape(line)}" for line in table.details))
    yield f"- Published numbers: {escape(table.summary)}."
    folders = "../" * table.name.count("/")
    yield from (f"- {escape(text)}: [{page}]({folders}{page})." for text, page in table.see_also.items())
    yield ""


def block_lines(block: Block, number: Number, level: int = 3) -> list[str]:
    """`level`: of its heading."""
    rule = ["---" if side == "l" else "---:" for side in block.align]
    rows = [_row([number(entry) for entry in row]) for row in block.rows]
    below = [line for text in block.lines for line in ("", escape(text))]
    title = f"{'#' * level} {escape(block.title)}{superscript(block.notes)}"
    return [title, "", _row([plain_entry(entry) for entry in block.header]), _row(rule), *rows, *below]


def _provenance(sections: Sequence[Section]) -> Iterator[str]:
    """How and where the cells of each section ran."""
    measured = [section for section in sections if section.blocks and section.lines]
    if measured:
        yield from ("## Provenance", "")
        for section in measured:
            yield from (f"### {escape(section.title)}", "", *(f"- {escape(line)}" for line in section.lines), "")


def _pictures(pictures: Sequence[Picture]) -> Iterator[str]:
    if pictures:
        yield from ("## Pictures", "", "Test examples, predicted by the model of the lowest seed.", "")
    for heading, group in groupby(pictures, key=lambda picture: picture.heading):
        yield from (f"### {escape(heading)}", "")
        for picture in group:
            caption = escape(picture.caption)
            yield from (caption, "")
            if picture.link is not None:
                yield from (f"![{caption}]({quote(picture.link)})", "")
            if picture.files:
                files = picture.files.items()
                yield from (" · ".join(f"[{escape(name)}]({quote(file)})" for name, file in files), "")


def _row(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


def plain_entry(entry: TableEntry) -> str:
    text = f"[{escape(entry.text)}]({quote(entry.link)})" if entry.link else escape(entry.text)
    return (f"**{text}**" if entry.bold else text) + superscript(entry.notes)


def superscript(notes: tuple[str, ...]) -> str:
    return f"<sup>{escape(', '.join(notes))}</sup>" if notes else ""
