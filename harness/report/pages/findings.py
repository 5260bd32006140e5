"""The pages `findings.md`, what records say on each claim of the papers and on questions of ours, and `questions.md`,
one line per question of a reader. Text and verdicts follow from records; only the claims and questions are written."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import UsageError, agreeing
from harness.report.pages import claims, paper_predictors, questions
from harness.report.pages.evidence import Evidence, NoRunError, Reply
from harness.report.render.markdown import document, escape, grid
from harness.report.render.words import capitalized, counted
from harness.report.scores.judge import Verdict
from harness.report.spec.finding import Asked

OURS = "Our own questions"
FILES = {"finding": "findings.md", "question": "questions.md"}
HOW = """\
A claim is written down with its rows, column and direction before it is judged (`conf/finding/`). The test is that of
the column: paired by seed and, where kept, by test example, corrected for the pairs of the claim. Every claim is one
test at 5 %, so that of 20 false claims one may seem to hold.

- **holds**, **does not hold**: a test at 5 % says so. "As good as" holds if the 95 % interval of the difference stays
  within the margin, a tenth of the distance from reference to control where nothing else is stated.
- **cannot say**: no run, fewer than 3 seeds, a column whose control is not clearly behind its reference, no test that
  separates the rows, or a learning rate that was not searched for each of them. The reason follows.
- **Regime**: where the rows are beside the strongest simple predictor. Below it, a difference tells little of a model
  that learnt the task.

All numbers are of the reduced budget unless a page says otherwise: minutes of training, not the papers' sizes."""
Pages = dict[Path, str]
FIRST, SHORT = 3, 40  # findings on the first page, and words of each
OPENING = 10  # sentences at the head of the findings, of which so many are on full-size data
AT_FULL_SIZE = 5
DECIDED = (Verdict.HOLDS, Verdict.FAILS)
REPLIES = claims.REPLIES | questions.REPLIES


def pages(
    asked: Mapping[str, Sequence[Asked]], evidence: Evidence, papers: Mapping[str, str], docs: Path, tables: Path
) -> Pages:
    """{path: Markdown}. `asked`: group of the configuration -> its claims or questions; `papers`: folder -> name."""
    renders = {"finding": _findings, "question": _questions}
    return {
        docs / FILES[group]: render(replies_to(group, asked, evidence), papers, os.path.relpath(tables, docs), evidence)
        for group, render in renders.items()
        if asked[group]
    }


def replies_to(group: str, asked: Mapping[str, Sequence[Asked]], evidence: Evidence) -> list[tuple[Asked, Reply]]:
    return [(claim, reply(group, claim, evidence)) for claim in asked[group]]


def first_findings(replies: Sequence[tuple[Asked, Reply]], docs: str) -> list[str]:
    """A row of Markdown for each of at most FIRST findings, of different papers or columns: decided claims, then
    answered questions, then what the records cannot decide. `docs`: folder of findings.md, relative to the page."""
    groups = [
        lambda reply: reply.verdict in DECIDED,
        lambda reply: reply.verdict is None,
        lambda reply: reply.difference,
    ]
    ordered = [pair for is_in in groups for pair in replies if is_in(pair[1])]
    shown: dict[tuple[str, str], str] = {}
    for asked, answer in ordered:
        key = (asked.paper, "" if asked.paper else getattr(asked, "column", asked.name))
        link = f"[{escape(asked.title)}]({docs}/{FILES['finding']}#{_anchor(asked.title)})"
        start = f"{capitalized(answer.verdict)}: {asked.text}" if asked.is_claim else f"{asked.title}:"
        text = f"{start} {_first_clauses((answer.why or answer.text).rstrip('.'))}."
        parts = [text, *([answer.difference] if answer.difference and answer.verdict in DECIDED else [])]
        parts += [f"Regime: {answer.regime}."] if asked.is_claim and answer.regime else []
        shown.setdefault(key, f"| {escape(' '.join(parts))} | {link} |")
    return list(shown.values())[:FIRST]


def reply(group: str, asked: Asked, evidence: Evidence) -> Reply:
    """Raises UsageError, with the file of the claim or question, for a table, row or column that is not there."""
    try:
        return REPLIES[type(asked)](asked, evidence)
    except NoRunError as error:
        return error.reply
    except UsageError as error:
        raise UsageError(f"conf/{group}/{asked.name}.yaml: {error}") from error


def _first_clauses(text: str) -> str:
    """The clauses of a sentence that fit into SHORT words, at least one; the others are on the linked page."""
    shown, *rest = text.split("; ")
    for clause in rest:
        if len(f"{shown} {clause}".split()) > SHORT:
            break
        shown = f"{shown}; {clause}"
    return shown


def opening(replies: Sequence[tuple[Asked, Reply]], evidence: Evidence, tables: str) -> list[str]:
    """At most OPENING sentences that records support: on the papers' full-size data, then decided claims with the size
    at which they were decided."""
    full = []
    for name, table in evidence.tables.items():
        for line in paper_predictors.first_line(table.results):
            full.append(f"- [{escape(table.spec.title)}]({tables}/{name}.md), full size: {escape(line)}")
    decided = []
    for asked, answer in replies:
        if answer.verdict in DECIDED and asked.is_claim:
            size = next(iter(evidence.answer(asked).group.sizes), "not stated")
            ours = "Our question. " if asked.ours else ""
            text = f"{ours}{capitalized(answer.verdict)}: {asked.text} {answer.text} Regime: {answer.regime}."
            text += f" Size: {size}."
            decided.append(f"- [{escape(asked.title)}](#{_anchor(asked.title)}). {escape(text)}")
    return [*full[:AT_FULL_SIZE], *decided][:OPENING]


def _findings(
    replies: Sequence[tuple[Asked, Reply]], papers: Mapping[str, str], tables: str, evidence: Evidence
) -> str:
    verdicts = [answer.verdict for asked, answer in replies if asked.is_claim and not asked.ours]
    counts = ", ".join(f"{(count := verdicts.count(v))} {agreeing(count, *WORDS[v])}" for v in Verdict)
    rows = [
        (
            _ask_of(asked, papers),
            f"[{escape(asked.title)}](#{_anchor(asked.title)})",
            escape(answer.short),
            escape(answer.regime or "–"),
        )
        for asked, answer in replies
    ]
    text = [
        *opening(replies, evidence, tables),
        "",
        f"Of {counted(len(verdicts), 'claim')} of the papers, {counts}.",
        "",
        *grid(("paper", "claim or question", "difference", "regime"), rows, "llll"),
    ]
    heading = ""
    for asked, answer in replies:
        if _name(asked, papers) != heading:
            heading = _name(asked, papers)
            text += ["", f"## {heading}"]
        text += ["", *_entry(asked, answer, tables)]
    return document("Findings", text, HOW)


UNDECIDED = "cannot be decided by our records"
WORDS = {  # of one claim, of several
    Verdict.HOLDS: ("holds", "hold"),
    Verdict.FAILS: ("does not hold", "do not hold"),
    Verdict.UNKNOWN: (UNDECIDED, UNDECIDED),
}


def _anchor(title: str) -> str:
    """The anchor of a heading on GitHub and in the documentation's site."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _name(asked: Asked, papers: Mapping[str, str]) -> str:
    return escape(papers.get(asked.paper, asked.paper)) if asked.paper else OURS


def _is_ours_on_a_paper(asked: Asked) -> bool:
    return asked.is_claim and asked.ours


def _ask_of(asked: Asked, papers: Mapping[str, str]) -> str:
    return f"our question on {_name(asked, papers)}" if _is_ours_on_a_paper(asked) else _name(asked, papers)


def _entry(asked: Asked, answer: Reply, tables: str) -> list[str]:
    said = f"{escape(asked.text)} ({escape(asked.source)})" if asked.source else escape(asked.text)
    said = f"Our question, not a claim of the paper: {said}" if _is_ours_on_a_paper(asked) else said
    start = f"**{capitalized(answer.verdict)}.** " if answer.verdict else ""
    where = f", column {escape(asked.column)}" if hasattr(asked, "column") else ""
    return [
        f"### {escape(asked.title)}",
        "",
        f"> {said}",
        "",
        f"{start}{escape(answer.text)}",
        "",
        *([f"- Regime: {escape(answer.regime)}."] if answer.regime else []),
        *(f"- {escape(fact)}" for fact in answer.facts),
        f"- Table: {_link(asked, tables)}{where}. To run it: `python run.py -m table={asked.table} budget=reduced`.",
    ]


def _link(asked: Asked, tables: str) -> str:
    return f"[{escape(asked.table)}]({tables}/{asked.table}.md)"


def _questions(
    replies: Sequence[tuple[Asked, Reply]], papers: Mapping[str, str], tables: str, evidence: Evidence
) -> str:
    text = []
    for number, (asked, answer) in enumerate(replies, 1):
        start = "**Cannot say yet.** " if answer.verdict is Verdict.UNKNOWN else ""
        link = f" ({_link(asked, tables)})" if getattr(asked, "table", "") else f" ([all columns]({tables}/columns.md))"
        text += [f"{number}. **{escape(asked.text)}** {start}{_with_code(answer.text)}{link}"]
    text += ["", "Claims of the papers, one by one: [findings.md](findings.md)."]
    return document("Questions", text)


def _with_code(text: str) -> str:
    """Markdown of a sentence that may hold commands between backticks."""
    parts = text.split("`")
    return "".join(f"`{part}`" if number % 2 else escape(part) for number, part in enumerate(parts))
