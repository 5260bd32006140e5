"""Files are replaced atomically: after any failure, the old content is intact and no other file is left."""

import os

import pytest

from harness.records.files import has_temporaries, remove_temporaries, replace_atomic, write_atomic, write_bytes_atomic


def test_text_and_bytes_are_written_as_they_are_in_new_folders(tmp_path):
    write_atomic(tmp_path / "a" / "b.txt", "x\né\n")
    write_bytes_atomic(tmp_path / "a" / "b.bin", b"\x00\r\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "x\né\n".encode()
    assert (tmp_path / "a" / "b.bin").read_bytes() == b"\x00\r\n"
    assert len(list((tmp_path / "a").iterdir())) == 2


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "one.txt"
    write_atomic(path, "old")

    def fail(*_):
        raise OSError("no space left on device")

    def write(temporary):
        temporary.write_text("new")
        if step == "write":
            fail()

    if step != "write":
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="no space left"):
        replace_atomic(path, write)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("durable", [True, False])
def test_content_is_on_disk_before_the_name_and_the_name_before_return(tmp_path, monkeypatch, durable):
    calls = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor):
        calls.append(f"fsync {os.readlink(f'/proc/self/fd/{descriptor}')}")
        fsync(descriptor)

    def noted_replace(source, target):
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_atomic(tmp_path / "one.txt", "new", durable=durable)
    if durable:
        assert calls[0].endswith(".tmp") and calls[1:] == ["replace", f"fsync {tmp_path}"]
    else:
        assert calls == ["replace"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".last.ckpt.12.ab.tmp").write_text("half")
    (tmp_path / ".last.ckpt.12.cd.tmp").symlink_to(tmp_path / "absent" / "at all")
    (tmp_path / ".last.ckpt.12.ee.tmp").mkdir()
    (tmp_path / ".last.ckpt.12.ef.tmp" / "of the user").mkdir(parents=True)
    (tmp_path / "last.ckpt").write_text("whole")
    assert has_temporaries(tmp_path)
    remove_temporaries(tmp_path)
    left = [".last.ckpt.12.ef.tmp", "last.ckpt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left and not has_temporaries(tmp_path)
