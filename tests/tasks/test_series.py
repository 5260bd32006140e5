"""A broken series is one line that names the file and its row."""

import gzip

import pytest

from tasks.forecasting import synthetic_series
from tasks.forecasting.datasets import DATASETS
from tasks.forecasting.series import read
from tests.helpers.tasks import refused

HOURLY = DATASETS["etth1"]


def good_lines(rows=30):
    series = synthetic_series.generate(rows, HOURLY.columns, HOURLY.minutes, name="etth1", seed=0)
    made = [",".join(("date", *HOURLY.columns))]
    for time, row in zip(series.times, series.values, strict=True):
        made.append(",".join([str(time).replace("T", " "), *(repr(float(x)) for x in row)]))
    return made


def written(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def without_column(lines, index):
    return [",".join(cells[:index] + cells[index + 1 :]) for cells in (line.split(",") for line in lines)]


def with_cell(lines, number, index, text):
    """`number`: of the line in the file, from 1."""
    cells = lines[number - 1].split(",")
    cells[index] = text
    return [*lines[: number - 1], ",".join(cells), *lines[number:]]


BROKEN = {
    "a missing column": (lambda lines: without_column(lines, 3), ":1: no column MUFL"),
    "no dates": (lambda lines: without_column(lines, 0), ":1: no column date"),
    "a column too many": (lambda lines: [f"{line},7" for line in lines], ":1: a column 7 that ETTh1.csv does not have"),
    "an empty cell": (lambda lines: with_cell(lines, 9, 2, ""), ":9: HULL is empty"),
    "a NaN": (lambda lines: with_cell(lines, 9, 7, "NaN"), ":9: OT is 'NaN', no finite number"),
    "a word": (lambda lines: with_cell(lines, 5, 4, "n/a"), ":5: MULL is 'n/a'"),
    "no time": (lambda lines: with_cell(lines, 6, 0, "yesterday"), ":6: date 'yesterday' is no time like"),
    "unsorted": (lambda lines: [lines[0], *lines[:0:-1]], ":3: date 2016-07-02 04:00:00 is before the row above"),
    "a row twice": (lambda lines: [*lines[:10], lines[9], *lines[10:]], ":11: date 2016-07-01 08:00:00 is twice"),
    "a row missing": (lambda lines: [*lines[:10], *lines[11:]], "out of step, 120 minutes after the row above instead"),
    "a row too short": (lambda lines: [*lines[:4], lines[4].rpartition(",")[0], *lines[5:]], ":5: OT is empty"),
    "a row too long": (lambda lines: [*lines[:4], f"{lines[4]},1", *lines[5:]], "line 5, saw 9"),
    "only a header": (lambda lines: lines[:1], ":2: no row"),
    "nothing": (lambda lines: [], ":1: "),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_named_with_its_row(tmp_path, kind):
    change, said = BROKEN[kind]
    file = written(tmp_path / "ETTh1.csv", change(good_lines()))
    with refused(str(file), said):
        read(file, HOURLY)


def test_what_is_no_file_of_text(tmp_path):
    whole = gzip.compress("\n".join(good_lines(300)).encode())
    broken = {"ETTh1.csv": b"\xff\xfe\x00\x01" * 50, "ETTh1.csv.gz": b"no gzip", "cut.csv.gz": whole[: len(whole) // 2]}
    for name, data in broken.items():
        (tmp_path / name).write_bytes(data)
        with refused(name):
            read(tmp_path / name, HOURLY)


def test_copies_of_the_same_numbers_are_one_content(tmp_path):
    lines = good_lines()
    plain = read(written(tmp_path / "a.csv", lines), HOURLY)
    (tmp_path / "b.csv").write_bytes("\r\n".join(lines).encode())
    american = [lines[0]]
    for line in lines[1:]:
        date, _, rest = line.partition(",")
        (year, month, day), clock = date.split(" ")[0].split("-"), date.split(" ")[1][:5]
        american.append(f"{int(month)}/{int(day)}/{year} {clock},{rest}")
    for file in (tmp_path / "b.csv", written(tmp_path / "c.csv", american)):
        assert read(file, HOURLY).content_hash == plain.content_hash
    changed = with_cell(lines, 9, 2, "7.5")
    assert read(written(tmp_path / "d.csv", changed), HOURLY).content_hash != plain.content_hash
