"""Data are known by every byte that their numbers follow from, and by nothing else."""

import os
import re

import numpy as np
import pytest
from PIL import Image

from harness.commands import prepare
from harness.errors import UsageError
from longhaul import plan
from longhaul.words import single_command
from tasks import file_digests


def rows(count, split=""):
    return "text,label\n" + "".join(f"{split} review {i} of a film,{'ab'[i % 2]}\n" for i in range(count))


def own_rows(folder):
    for split in ("train", "val", "test"):
        (folder / f"{split}.csv").write_text(rows(20, split))
    return "task=data/classification", {}


def own_texts(folder):
    for split in ("train", "validation", "test"):
        (folder / split).mkdir()
        (folder / split / "a.txt").write_text(f"words of {split} " * 50)
    return "task=data/lm", {"task.length": 32}


def glue(folder):
    for name in ("train", "dev"):
        lines = "".join(f"sentence {i} of {name}\t{i % 2}\n" for i in range(40))
        (folder / f"{name}.tsv").write_text("sentence\tlabel\n" + lines)
    return "task=glue/sst2", {"task.source": "slice"}


def pathfinder(folder):
    (folder / "metadata").mkdir()
    (folder / "imgs/0").mkdir(parents=True)
    draws, lines = np.random.default_rng(0), []
    for i in range(20):
        Image.fromarray(draws.integers(0, 255, (32, 32), dtype=np.uint8)).save(folder / f"imgs/0/sample_{i}.png")
        lines.append(f"imgs/0 sample_{i}.png {i} {i % 2} 1.8 14 0 4 1.5 1.0 2\n")
    (folder / "metadata/0.npy").write_text("".join(lines))
    return "task=lra/pathfinder", {"task.source": "slice", "task.max_length": 1024}


def reviews(folder):
    for split in ("train", "test"):
        lines = "".join(f'{{"text": "review {i} of {split}", "label": {i % 2}}}\n' for i in range(20))
        (folder / f"imdb_{split}.jsonl").write_text(lines)
    return "task=lra/text", {"task.source": "slice"}


def expressions(folder):
    for split in ("train", "val", "test"):
        (folder / f"basic_{split}.tsv").write_text("Source\tTarget\n" + "( ( ( [MAX 2 ) 9 ) ] )\t9\n" * 20)
    return "task=lra/listops", {"task.source": "official"}


PUBLISHED = {"glue": glue, "pathfinder": pathfinder, "reviews": reviews, "expressions": expressions}
LAYOUTS = {"own rows": own_rows, "own texts": own_texts, **PUBLISHED}


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_byte_of_each_file_counts_and_no_byte_of_a_stranger(tmp_path, capsys, name):
    folder = tmp_path / "data"
    folder.mkdir()
    task, settings = LAYOUTS[name](folder)
    words = [task, f"task.path={folder}", *(f"{key}={value}" for key, value in settings.items()), "budget=smoke"]

    def ids():
        """Of own data the cell's, which waits for no data; of published data in a folder what the examples are."""
        try:
            if name.startswith("own"):
                return plan("model=vanilla", *words)["id"].iloc[0]
            command = single_command("prepare", (*words, f"paths.data={tmp_path}/prepared"), {}, verb="prepare")
            prepare.run(command.cfg, command.overrides)
        except UsageError as error:
            return str(error)
        return re.search("fingerprint [0-9a-f]+", capsys.readouterr().out)[0]

    before = ids()
    for file in [path for path in sorted(folder.rglob("*")) if path.is_file()][:6]:
        data = file.read_bytes()
        at = len(data) // 2
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert ids() != before, file
        file.write_bytes(data)
        assert ids() == before, file
    cache = folder / "lra/listops/0123456789ab"
    cache.mkdir(parents=True)
    for stranger in ("run.log", ".DS_Store", "._a.txt", "notes.ipynb"):
        (folder / stranger).write_text("a stranger")
    for prepared in ("manifest.json", "train.arrow"):
        (cache / prepared).write_text("prepared")
    assert ids() == before


def test_a_digest_that_is_remembered_is_that_of_the_content(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(file_digests, "WORTH_REMEMBERING", 10)
    file = tmp_path / "a.txt"
    file.write_bytes(b"a" * 100)
    made = []
    whole = file_digests._sha256
    monkeypatch.setattr(file_digests, "_sha256", lambda file: made.append(file) or whole(file))

    def digest():
        monkeypatch.setattr(file_digests, "_known", {})  # another process
        return file_digests.identity(file)

    first = digest()
    assert digest() == first and made == [file], "remembered"
    status = file.stat()
    with open(file, "r+b") as stream:  # as many bytes, in place, under the old time
        stream.seek(50)
        stream.write(b"b")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest() != first and len(made) == 2
