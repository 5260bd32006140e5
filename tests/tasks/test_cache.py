"""The cache: any type, any number of shards and workers, kills and damage give one content or one line."""

from concurrent.futures.process import BrokenProcessPool
from functools import partial
from hashlib import sha256

import numpy as np
import pytest

from tasks import cache
from tasks.cache import CacheError
from tasks.examples import Examples, ShardedExamples, Shards, content_hash, join
from tests.helpers.shard_makers import EXAMPLES, large, make, peak, shards

PARAMETERS = {"seed": 1}
DTYPES = ("uint8", "uint16", "int32", "float16", "float32")


def makers(tmp_path, count=5, dtype="uint16", **options):
    return [partial(make, number, dtype, tmp_path, **options) for number in range(count)]


def calls(tmp_path):
    """How often each shard was made."""
    return [len(file.read_text()) for file in sorted(tmp_path.glob("made-*"))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_content_does_not_depend_on_the_shards(tmp_path, dtype):
    whole = join(make() for make in makers(tmp_path, dtype=dtype))
    cache.write(tmp_path / "one", {"train": whole, "test": whole.part(0, 7)}, PARAMETERS)
    cache.write(
        tmp_path / "five", {"train": shards(makers(tmp_path, dtype=dtype)), "test": whole.part(0, 7)}, PARAMETERS
    )
    (whole_file, first), (five, second) = (cache.read(tmp_path / name, PARAMETERS) for name in ("one", "five"))
    assert first["splits"]["train"]["sha256"] == second["splits"]["train"]["sha256"] == content_hash(five["train"])
    assert isinstance(whole_file["train"], Examples) and isinstance(five["train"], ShardedExamples)
    assert len(list((tmp_path / "five").glob("train-*-of-00005.arrow"))) == len(five["train"].shards) == 5
    assert five["train"].count == whole.count and (five["train"].labels == whole.labels).all()
    for number in (0, 49, 50, 51, 120, 249):
        for stored in (whole_file["train"], five["train"]):
            assert stored.tokens_of(number).dtype == dtype
            assert (stored.tokens_of(number) == whole.tokens_of(number)).all()
    for start, stop in ((0, 250), (0, 50), (49, 51), (30, 170), (250, 250), (200, 999)):
        assert content_hash(five["train"].part(start, stop)) == content_hash(whole.part(start, stop))
        assert (five["train"].part(start, stop).lengths == whole.part(start, stop).lengths).all()


def test_types_are_part_of_the_content_and_bytes_keep_their_hash():
    offsets, labels = np.array([0, 4]), np.zeros(1, np.uint8)
    narrow, wide = (Examples(np.arange(4, dtype=kind), offsets, labels) for kind in ("u1", "u2"))
    assert content_hash(narrow) == sha256(b"\0" + (4).to_bytes(8, "little") + bytes(range(4))).hexdigest()
    assert content_hash(narrow) != content_hash(wide)
    big = wide._replace(tokens=wide.tokens.astype(">u2"))
    assert content_hash(big) == content_hash(wide)


def test_a_killed_worker_is_resumed_shard_by_shard(tmp_path):
    """A worker dies at the fourth shard: those that are finished are kept, and the content is that of one process."""
    expected = content_hash(join(make() for make in makers(tmp_path)))
    for file in tmp_path.glob("made-*"):
        file.unlink()
    write = partial(cache.write, tmp_path / "set", parameters=PARAMETERS, workers=2)
    with pytest.raises(BrokenProcessPool):
        write({"train": shards(makers(tmp_path, dies_at=3))})
    assert not (tmp_path / "set").exists(), "no reader sees a part"
    finished = {file.name for file in (tmp_path / ".set.partial").glob("*.arrow")}
    assert 1 <= len(finished) < 5
    seen = []
    write({"train": shards(makers(tmp_path, dies_at=3))}, progress=lambda *call: seen.append(call))
    assert seen[-1] == ("making", 5 * EXAMPLES, 5 * EXAMPLES) and len(seen) == 5 - len(finished)
    assert sum(calls(tmp_path)) <= 5 + 2, "finished shards were made again"
    stored, manifest = cache.read(tmp_path / "set", PARAMETERS)
    assert content_hash(stored["train"]) == manifest["splits"]["train"]["sha256"] == expected
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_finished_shard_is_kept_only_if_it_is_whole_and_of_this_plan(tmp_path):
    with pytest.raises(ZeroDivisionError):
        cache.write(tmp_path / "set", {"train": shards([*makers(tmp_path, 4), lambda: 1 // 0])}, PARAMETERS)
    partial_folder = tmp_path / ".set.partial"
    files = sorted(partial_folder.glob("*.arrow"))
    data = bytearray(files[1].read_bytes())
    data[len(data) // 2] ^= 1
    files[1].write_bytes(data)
    files[2].write_bytes(b"")
    (partial_folder / "train-00000-of-00009.arrow").write_bytes(files[0].read_bytes())
    cache.write(tmp_path / "set", {"train": shards(makers(tmp_path))}, PARAMETERS)
    assert calls(tmp_path) == [1, 2, 2, 1, 1]
    stored, _ = cache.read(tmp_path / "set", PARAMETERS)
    assert content_hash(stored["train"]) == content_hash(join(make() for make in makers(tmp_path)))


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_is_bounded_by_a_shard(tmp_path, workers):
    """Twelve shards of 8 MB: a process that makes them holds one, a process that only waits holds none."""
    split = {"train": Shards([partial(large, number) for number in range(12)], 12, "making")}
    used = peak(partial(cache.write, tmp_path / "set", split, PARAMETERS, workers=workers))
    assert used < (12 << 20 if workers == 1 else 4 << 20)
    assert cache.read(tmp_path / "set", PARAMETERS)[0]["train"].count == 12


def test_a_damaged_shard_is_one_line(tmp_path):
    cache.write(tmp_path / "set", {"train": shards(makers(tmp_path, 3))}, PARAMETERS)
    files = sorted((tmp_path / "set").glob("*.arrow"))
    good = files[1].read_bytes()
    for broken in (b"", good[:300], good.replace(good[700:710], b"\0" * 10), files[0].read_bytes()):
        files[1].write_bytes(broken)
        with pytest.raises(CacheError) as error:
            cache.read(tmp_path / "set", PARAMETERS)
        assert "damaged" in str(error.value) and "\n" not in str(error.value)
    files[1].unlink()
    with pytest.raises(CacheError, match="its files are not those of the manifest"):
        cache.manifest(tmp_path / "set", PARAMETERS)
    cache.write(tmp_path / "set", {"train": shards(makers(tmp_path, 3))}, PARAMETERS)
    cache.read(tmp_path / "set", PARAMETERS)


def in_memory(log):
    return {"train": make(0, "uint8", log)}


@pytest.mark.parametrize("obstacle", ["parent", ".a.partial"])
def test_what_stands_in_the_way_of_the_folder_is_one_line(tmp_path, obstacle):
    if obstacle == "parent":
        (tmp_path / "data").symlink_to(tmp_path / "missing")
    else:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / obstacle).write_text("")
    with pytest.raises(CacheError, match="cannot write there"):
        cache.write(tmp_path / "data" / "a", in_memory(tmp_path), PARAMETERS)
