"""`findings.md`: what the records say on each claim of the papers and on questions of ours. Text and verdicts follow
from records; only the claims and questions are written (`conf/finding/`)."""

import re
from collections.abc import Mapping, Sequence

from harness.errors import UsageError
from harness.report.pages import claims, paper_predictors
from harness.report.pages.evidence import Evidence, NoRunError, Reply
from harness.report.render.markdown import document, escape, grid
from harness.report.render.words import capitalized
from harness.report.scores.judge import Verdict
from harness.report.spec.finding import Asked

FILE, OURS = "findings.md", "Our own questions"
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

All numbers are of the reduced budget unless a page says otherwise: minutes of training, not the papers' sizes.
`python run.py -m table=probes budget=reduced` runs the table of a claim, here `probes`."""
FIRST, AT_FULL_SIZE = 3, 5  # findings on the first page, and lines on full-size data at the head of this one
DECIDED = (Verdict.HOLDS, Verdict.FAILS)
Replies = Sequence[tuple[Asked, Reply]]


def reply(asked: Asked, evidence: Evidence) -> Reply:
    """Raises UsageError, with the file of the claim or question, for a table, row or column that is not there."""
    try:
        return claims.REPLIES[type(asked)](asked, evidence)
    except NoRunError as error:
        return error.args[0]
    except UsageError as error:
        raise UsageError(f"conf/finding/{asked.name}.yaml: {error}") from error


def first_findings(replies: Replies, docs: str) -> list[str]:
    """At most FIRST rows of Markdown, of different papers or columns: decided claims, then answered questions.

    `docs`: folder of findings.md, relative to the page.
    """
    decided = [pair for pair in replies if pair[1].verdict in DECIDED]
    shown: dict[tuple[str, str], str] = {}
    for asked, answer in (*decided, *(pair for pair in replies if pair[1].verdict is None)):
        link = f"[{escape(asked.title)}]({docs}/{FILE}#{_anchor(asked.title)})"
        start = f"{capitalized(answer.verdict)}: {asked.text}" if answer.verdict else f"{asked.title}:"
        regime = f" Regime: {answer.regime}." if answer.verdict else ""
        key = (asked.paper, "" if asked.paper else asked.column)
        shown.setdefault(key, f"| {escape(f'{start} {answer.text}{regime}')} | {link} |")
    return list(shown.values())[:FIRST]


def page(replies: Replies, papers: Mapping[str, str], tables: str, evidence: Evidence) -> str:
    """Markdown. `papers`: folder -> name; `tables`: the folder of the tables, relative to the page."""
    verdicts = [answer.verdict for asked, answer in replies if asked.is_claim and not asked.ours]
    counts = ", ".join(f"{verdict}: {verdicts.count(verdict)}" for verdict in Verdict)
    rows = [
        (
            f"our question on {_heading(asked, papers)}" if asked.is_claim and asked.ours else _heading(asked, papers),
            f"[{escape(asked.title)}](#{_anchor(asked.title)})",
            escape(answer.short),
            escape(answer.regime or "–"),
        )
        for asked, answer in replies
    ]
    at_full_size = [
        f"- [{escape(table.spec.title)}]({tables}/{name}.md), full size: {escape(line)}"
        for name, table in evidence.tables.items()
        for line in paper_predictors.first_line(table.results)
    ]
    text = [
        *at_full_size[:AT_FULL_SIZE],
        "",
        f"Claims of the papers: {len(verdicts)} ({counts}).",
        "",
        *grid(("paper", "claim or question", "difference", "regime"), rows, "llll"),
    ]
    heading = ""
    for asked, answer in replies:
        if _heading(asked, papers) != heading:
            heading = _heading(asked, papers)
            text += ["", f"## {heading}"]
        text += ["", *_entry(asked, answer, tables, evidence)]
    return document("Findings", text, HOW)


def _entry(asked: Asked, answer: Reply, tables: str, evidence: Evidence) -> list[str]:
    said = f"{asked.text} ({asked.source})" if asked.source else asked.text
    said = f"Our question, not a claim of the paper: {said}" if asked.is_claim and asked.ours else said
    start = f"**{capitalized(answer.verdict)}.** " if answer.verdict else ""
    facts = [f"Regime: {answer.regime}."] if answer.regime else []
    if answer.verdict in DECIDED:
        facts += [f"Size: {size}." for size in evidence.answer(asked).group.sizes[:1]]
    link = f"[{escape(asked.table)}]({tables}/{asked.table}.md), column {escape(asked.column)}"
    return [
        *(f"### {escape(asked.title)}", "", f"> {escape(said)}", "", f"{start}{escape(answer.text)}", ""),
        *(f"- {escape(fact)}" for fact in (*facts, *answer.facts)),
        f"- Table: {link}.",
    ]


def _anchor(title: str) -> str:
    """The anchor of a heading on GitHub and in the documentation's site."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _heading(asked: Asked, papers: Mapping[str, str]) -> str:
    return escape(papers.get(asked.paper, asked.paper)) if asked.paper else OURS
