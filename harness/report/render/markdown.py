"""A table in GitHub's Markdown."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from urllib.parse import quote

from harness.errors import in_markdown as escape
from harness.report.render.layout import Block, Picture, Section, Table, TableEntry
from harness.report.stats.grouping import grouped

Number = Callable[[TableEntry], str]  # an entry as Markdown
GENERATED = "<!-- Generated from the records by `python run.py do=report table=all`; do not edit. -->"


def document(title: str, lines: Iterable[str], how: str = "") -> str:
    """A page that is made of all records. `how`: the paragraphs on how to read it."""
    below = ["", "## How to read this", "", how] if how else []
    return "\n".join([GENERATED, f"# {title}", "", *lines, *below]) + "\n"


def render(table: Table, number: Number | None = None) -> str:
    """`number`: renders an entry of a grid, `plain_entry` by default."""
    lines = [
        f"<!-- Generated from the records by `{table.command}`; do not edit. -->",
        f"# {escape(table.title)}",
        "",
        *(f"- {escape(line)}" for line in table.lead),
        *([""] if table.lead else []),
    ]
    sections = grouped((section.is_appendix, section) for section in table.in_reading_order)
    said: set[str] = set()
    for section in sections.get(False, ()):
        lines += _section(section, section.title, number, said)
    lines += _details(table)
    for plot in table.plots:
        lines += [f"## {escape(plot.heading)}", "", f"![{escape(plot.message)}]({quote(plot.link)})", ""]
    for section in sections.get(True, ()):
        lines += _section(section, f"Appendix: {section.title}", number, said)
    lines += _pictures(table.pictures)
    lines += _provenance(table.sections)
    how = "../" * (table.name.count("/") + 2) + "docs/report.md"
    lines += ["## Notes", "", f"- [How to read a page]({how})."]
    lines += [f"- {escape(line)}" for line in table.caption]
    lines += [f"- {superscript((name,))} {escape(text)}" for name, text in table.footnotes]
    return "\n".join(lines) + "\n"


def _section(section: Section, title: str, number: Number | None, said: set[str]) -> Iterator[str]:
    """`said`: the lines below the grids so far; a page says each once."""
    yield from (f"## {escape(title)}", "")
    for block in section.blocks:
        once = replace(block, lines=[line for line in block.lines if line not in said])
        said |= set(block.lines)
        yield from (*block_lines(once, number), "")
    if not section.blocks:
        yield from (*(f"- {escape(line)}" for line in section.lines), "")


def _details(table: Table) -> Iterator[str]:
    """What was not run, and how much of the rest stands beside published numbers."""
    yield from ("## Status", "", *(f"- {escape(line)}" for line in table.details))
    yield f"- Published numbers: {escape(table.summary)}."
    folders = "../" * table.name.count("/")
    yield from (f"- {escape(text)}: [{page}]({folders}{page})." for text, page in table.see_also.items())
    yield ""


def block_lines(block: Block, number: Number | None = None, level: int = 3) -> list[str]:
    """`number`: as in `render`; `level`: of its heading."""
    number = number or plain_entry
    rows = [[number(entry) for entry in row] for row in block.rows]
    below = [line for text in block.lines for line in ("", escape(text))]
    title = f"{'#' * level} {escape(block.title)}{superscript(block.notes)}"
    return [title, "", *grid([plain_entry(entry) for entry in block.header], rows, block.align), *below]


def grid(header: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """The lines of a grid whose entries are Markdown. `align`: l or r of each column."""
    rule = ["---" if side == "l" else "---:" for side in align]
    return [f"| {' | '.join(row)} |" for row in (header, rule, *rows)]


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
                yield from (f"![{caption.partition(' · ')[0]}]({quote(picture.link)})", "")
            if picture.files:
                files = picture.files.items()
                yield from (" · ".join(f"[{escape(name)}]({quote(file)})" for name, file in files), "")


def plain_entry(entry: TableEntry) -> str:
    text = f"[{escape(entry.text)}]({quote(entry.link)})" if entry.link else escape(entry.text)
    return (f"**{text}**" if entry.bold else text) + superscript(entry.notes)


def superscript(notes: tuple[str, ...]) -> str:
    return f"<sup>{escape(', '.join(notes))}</sup>" if notes else ""
