"""Where ListOps examples come from: the generator through the cache, LRA's files, a slice; and everything broken."""

import threading
from pathlib import Path

import numpy as np
import pytest

from tasks import cache
from tasks.examples import content_hash
from tasks.lra import listops
from tasks.lra.listops import ListOps
from tasks.lra.listops_generator import evaluate
from tests.helpers.listops import NEXT, format_expression, loaded, small
from tests.helpers.tasks import info_of, never, no_progress, refused


def folder_of(root) -> Path:
    [manifest] = Path(root).rglob(cache.MANIFEST)
    return manifest.parent


# generated data and its cache


def test_evaluation_splits_do_not_depend_on_the_training_size(tmp_path):
    few, many = loaded(tmp_path / "few", train=100), loaded(tmp_path / "many")
    for name in ("val", "test"):
        assert content_hash(few.split(name).examples) == content_hash(many.split(name).examples)
    assert content_hash(few.split("train").examples) == content_hash(many.split("train").examples.part(0, 100))


def test_full_only_at_the_papers_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(listops, "PAPER", {"train": 30, "val": 5, "test": 5})
    sizes = {"train": 30, "val": 5, "test": 5}
    for changes, source in (({}, "full"), ({"train": 31}, "synthetic"), ({"max_depth": 9}, "synthetic")):
        task = ListOps(data_root=tmp_path, **{**sizes, **changes})
        assert info_of(task).source == source


def test_final_evaluations_are_of_longer_expressions(tmp_path):
    task = loaded(tmp_path, final_lengths=[100, 300], test=30)
    whole = small(tmp_path, test=30)
    whole.prepare(never)
    assert whole.load().sizes == {"train": 300, "val": 40, "test": 30} and list(whole.final_evaluations()) == []
    assert task.split("test").batch([0, 1])["tokens"].equal(whole.split("test").batch([0, 1])["tokens"])
    splits = {evaluation.name: evaluation.split for evaluation in task.final_evaluations()}
    assert list(splits) == ["length_100", "length_300"]
    for (least, most), split in zip(((64, 100), (150, 300)), splits.values(), strict=True):
        lengths = split.lengths()
        assert len(split) == 30 and least <= lengths.min() and lengths.max() < most
        batch = split.batch(range(30))
        assert batch["tokens"].shape == (30, lengths.max()), "not cut"
        assert [evaluate(row[row > 0].numpy()) for row in batch["tokens"]] == batch["label"].tolist()


def test_exhausted_grammar_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(listops.generator, "PATIENCE", 3)
    with refused("found", "different", NEXT):
        small(tmp_path, min_length=3, max_length=5, max_depth=2, max_args=2, train=400).prepare(no_progress)
    assert not list(tmp_path.rglob("*.arrow"))


def test_many_prepare_at_once(tmp_path):
    for round_ in range(2):  # the second finds a damaged cache
        if round_:
            (folder_of(tmp_path) / "train.arrow").write_bytes(b"damaged")
        together, errors = threading.Barrier(4), []

        def prepare(together=together, errors=errors):
            task = small(tmp_path)
            together.wait()
            try:
                task.prepare(no_progress)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=prepare) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert len(list((tmp_path / "lra" / "listops").iterdir())) == 1
        small(tmp_path).load()


# official files and slices


def write_official(folder: Path, task: ListOps, end="\r\n"):
    """LRA's text files of a task's splits (its csv writer ends lines in CR LF)."""
    folder.mkdir()
    for name in ("train", "val", "test"):
        split = task.split(name)
        rows = [
            f"{format_expression(tokens)}\t{label}{end}"
            for tokens, label in zip(np.split(*edges(split.examples)), split.examples.labels, strict=True)
        ]
        (folder / f"basic_{name}.tsv").write_bytes(f"Source\tTarget{end}{''.join(rows)}".encode())


def edges(examples):
    return examples.tokens, examples.offsets[1:-1]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_official_round_trip(tmp_path, monkeypatch, end):
    generated = loaded(tmp_path / "generated")
    write_official(tmp_path / "listops-1000", generated, end)
    calls = []
    official = small(tmp_path / "data", source="official", path=tmp_path / "listops-1000")
    official.prepare(lambda *call: calls.append(call))
    official.prepare(never)
    info = official.load()
    assert (info.source, info.sizes) == ("slice:listops-1000", generated.load().sizes)
    assert info.fingerprint == generated.load().fingerprint
    part = small(tmp_path / "data", source="official", path=tmp_path / "listops-1000", train=100, val=10)
    part.prepare(never)
    assert part.load().sizes == {"train": 100, "val": 10, "test": 50}
    assert part.load().fingerprint != info.fingerprint
    monkeypatch.setattr(ListOps, "published", (340, 50))
    assert official.load().source == "full" and part.load().source == "slice:listops-1000"


GOOD = "( ( ( [MAX 2 ) 9 ) ] )\t9"
HEADER = "Source\tTarget"
BROKEN = {
    "no header": ([GOOD, GOOD], 1, "header"),
    "empty": ([], 1, "no examples"),
    "header only": ([HEADER], 1, "no examples"),
    "one column": ([HEADER, GOOD, "( ( ( [MAX 2 ) 9 ) ] )"], 3, "1 columns"),
    "blank line": ([HEADER, GOOD, "", GOOD], 3, "columns"),
    "long label": ([HEADER, GOOD, GOOD + "9"], 3, "label '99'"),
    "word as label": ([HEADER, GOOD[:-1] + "x"], 2, "label 'x'"),
    "wrong label": ([HEADER, GOOD, GOOD[:-1] + "2"], 3, "label 2, but the expression is 9"),
    "unknown operator": ([HEADER, GOOD.replace("[MAX", "[FIRST")], 2, "unknown token '[FIRST'"),
}


@pytest.mark.parametrize(("lines", "number", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_official_file(tmp_path, lines, number, reason):
    for name in ("train", "val", "test"):
        (tmp_path / f"basic_{name}.tsv").write_text(f"{HEADER}\n{GOOD}\n")
    file = tmp_path / "basic_val.tsv"
    file.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    task = small(tmp_path / "data", source="official", path=tmp_path)
    with refused(f"{file}:{number}: ", reason, NEXT):
        task.prepare(no_progress)
    assert not (tmp_path / "data").exists(), "nothing half-written"


@pytest.mark.parametrize("cut", [1, 3, 6, 14])
def test_cut_off_last_line(tmp_path, cut):
    for name in ("train", "val", "test"):
        (tmp_path / f"basic_{name}.tsv").write_text(f"{HEADER}\n{GOOD}\n{GOOD}"[:-cut])
    with refused("basic_train.tsv:3: ", "put the whole file there", NEXT):
        small(tmp_path / "data", source="official", path=tmp_path).prepare(no_progress)


def test_a_slice_is_laid_out_like_the_official_files(tmp_path):
    write_official(tmp_path / "tiny", loaded(tmp_path / "generated", train=77))
    info = loaded(tmp_path / "data", source="slice", path=tmp_path / "tiny").load()
    assert (info.source, info.sizes) == ("slice:tiny", {"train": 77, "val": 40, "test": 50})
