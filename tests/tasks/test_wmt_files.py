"""The published files of WMT'14: their archives."""

from pathlib import Path

import pytest

from tasks.mt import wmt_files
from tests.helpers.tasks import ready, refuses, tar
from tests.helpers.translation import task, texts

pytest.importorskip("sacrebleu")
pytest.importorskip("sacremoses")


SGM = '<doc>\n<seg id="1"> A &amp; {n} </seg>\n<seg id="2">\nB\n</seg></doc>'


def archives(folder: Path, monkeypatch, **left_out: str) -> Path:
    """The four archives, tiny, with checksums that are theirs."""
    monkeypatch.setattr(wmt_files.Download, "check", lambda self, file: None)
    for archive, wanted in wmt_files.archives(9).items():
        members = {"../evil": b"x"} if left_out.get("evil") in archive.name else {"other/file": b"x"}
        for both in wanted:
            for language, member in both.items():
                name = Path(member).name.split(".")[0]
                lines = f"{name} {language} {{n}}\n" if language == "en" else f"{name} auf {language} {{n}}\n"
                text = (
                    SGM.format(n=language) if member.endswith("sgm") else "".join(lines.format(n=n) for n in range(3))
                )
                if left_out.get("member") != member:
                    members[member] = text.encode()
        tar(folder / archive.name, members)
    return folder


def test_the_archives_are_the_corpora(tmp_path, monkeypatch):
    monkeypatch.setattr(wmt_files.Download, "at", lambda self, copy, *_: copy)
    folder = archives(tmp_path / "there", monkeypatch, evil="none")
    loaded = ready(task(tmp_path, source="official", path=folder, vocabulary=60))
    assert [source for source, _ in texts(loaded, "train")] == [
        f"{name} en {n}" for name in ("europarl @-@ v7", "commoncrawl", "news @-@ commentary @-@ v9") for n in range(3)
    ]
    assert loaded.split("decoded").text(0) == ("A & en", "A & de") and loaded.split("decoded").text(1) == ("B", "B")
    assert loaded.split("decoded_dev").text(2)[0] == "newstest2013 en 2"


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ({"evil": "europarl"}, "leads out of it"),
        ({"evil": "none", "member": "commoncrawl.de-en.de"}, "no commoncrawl.de-en.de in it"),
    ],
)
def test_wrong_archives_are_one_line(tmp_path, monkeypatch, left_out, message):
    folder = archives(tmp_path / "there", monkeypatch, **left_out)
    refuses(task(tmp_path, source="official", path=folder), message)
    assert not list(tmp_path.rglob("*evil*"))


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path):
    tar(tmp_path / "there" / wmt_files.EUROPARL.name, {"training/europarl-v7.de-en.en": b"a\n"})
    translation = task(tmp_path, source="official", path=tmp_path / "there")
    refuses(translation, wmt_files.EUROPARL.name, "bytes instead of 657,632,379")
