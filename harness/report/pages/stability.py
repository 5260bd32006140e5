"""Do the leading rows of a column lead with other settings, too? For tables whose yaml names others of their cells."""

from collections.abc import Iterator, Mapping, Sequence

from harness.config.table_rows import settings_key
from harness.report.pages.answer import ColumnAnswer, answers
from harness.report.render.words import listed
from harness.report.scores.groups import ProtocolResults
from harness.report.stats.seeds import MIN_SEEDS


def sentences(results: Sequence[ProtocolResults], others: Mapping[str, Sequence[ProtocolResults]]) -> Iterator[str]:
    """`recall, 300 updates (probes/updates): DeltaNet stays in the best tier; HGRN2 does not.`

    `others`: the results of the other tables, by name.
    """
    for answer in answers(results):
        if not answer.tests.ranks:
            continue
        for table, measured in others.items():
            for other in answers(measured):
                if _is_varied(answer, other) and (text := _comparison(answer, other)):
                    yield f"{answer.name}, {other.name} ({table}): {text}"


def _is_varied(answer: ColumnAnswer, other: ColumnAnswer) -> bool:
    """Whether the other column is the same score of the same task, after training with other settings."""
    columns = [part.spec.columns[part.group.column] for part in (answer, other)]
    same = {(column.task, column.metric, column.evaluation) for column in columns}
    settings = {settings_key(column.set) for column in columns}
    return len(same) == 1 and len(settings) == 2 and answer.group.budget == other.group.budget


def _comparison(answer: ColumnAnswer, other: ColumnAnswer) -> str:
    if other.tests.ranks_nothing:
        return f"this column cannot rank rows, because {other.tests.why_not}."
    names = {score.key: score.name for score in other.group.scores if len(score.by_seed) >= MIN_SEEDS}
    leading = [key for key in answer.tests.leading if key in names]
    stay = [names[key] for key in leading if key in other.tests.leading]
    leave = [names[key] for key in leading if key not in other.tests.leading]
    parts = [f"{listed(stay)} {'stays' if len(stay) == 1 else 'stay'} in the best tier"] if stay else []
    if leave:
        verb = "does not" if len(leave) == 1 else "do not"
        parts.append(f"{listed(leave)} {verb}" if stay else f"{listed(leave)} {verb} stay in the best tier")
    return f"{'; '.join(parts)}." if parts else ""
