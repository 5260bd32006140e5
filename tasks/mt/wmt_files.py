"""The published files of WMT'14: three corpora to train, two news tests, all checked by their sha256.

    Europarl v7, Common Crawl, News Commentary v9    training; v12 in its place with `news_commentary=12`
    newstest2013 (3,000)                             development
    newstest2014 (3,003, the full one)               test

Sizes and checksums are those that TensorFlow Datasets checks. Of an archive only the files of this language pair are
written, into the folder of downloads; names in an archive do not choose the path.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from tasks import data_sources
from tasks.checks import DataError, Progress
from tasks.data_sources import MIB, Download
from tasks.mt.pair_files import SOURCE, TARGET, of_line_files
from tasks.seq2seq.pairs import Piece

EUROPARL = Download(
    "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
    657_632_379,
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
COMMON_CRAWL = Download(
    "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    918_311_367,
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
NEWS_COMMENTARY = {
    9: Download(
        "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        80_418_416,
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    12: Download(
        "http://data.statmt.org/wmt17/translation-task/training-parallel-nc-v12.tgz",
        168_591_139,
        "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
    ),
}
NEWS_TESTS = Download(
    "http://data.statmt.org/wmt19/translation-task/dev.tgz",
    38_654_961,
    "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
)


def archives(news_commentary: int) -> dict[Download, list[dict[str, str]]]:
    """The members to read: of each archive its pairs of files, {language: member}. The last two are dev and test."""

    def both(stem: str) -> dict[str, str]:
        return {language: f"{stem}.{language}" for language in (SOURCE, TARGET)}

    # German to English, of which either side is the same text as English to German
    test = {"en": "dev/newstest2014-deen-ref.en.sgm", "de": "dev/newstest2014-deen-src.de.sgm"}
    return {
        EUROPARL: [both("training/europarl-v7.de-en")],
        COMMON_CRAWL: [both("commoncrawl.de-en")],
        NEWS_COMMENTARY[news_commentary]: [both(f"training/news-commentary-v{news_commentary}.de-en")],
        NEWS_TESTS: [both("dev/newstest2013"), test],
    }


def official(path: Path | None, folder: Path, news_commentary: int, progress: Progress) -> dict[str, Sequence[Piece]]:
    """The pairs of `train`, `dev` and `test`; `path` is a folder with the four archives, else they are fetched.

    Raises DataError.
    """
    corpora: list[Sequence[Piece]] = []
    for archive, pairs in archives(news_commentary).items():
        file = archive.at(None if path is None else path / archive.name, folder, progress)
        progress(f"reading {archive.name}", 0, 1)
        written = _members(file, [member for both in pairs for member in both.values()], folder)
        corpora += [of_line_files(written[both[SOURCE]], written[both[TARGET]]) for both in pairs]
    *train, dev, test = corpora
    return {"train": list(itertools.chain.from_iterable(train)), "dev": dev, "test": test}


def _members(file: Path, wanted: Sequence[str], folder: Path) -> dict[str, Path]:
    """Members of an archive as files in `folder`. Existing files are not read again."""
    written = {member: folder / PurePosixPath(member).name for member in wanted}
    missing = {member for member in wanted if not written[member].exists()}
    if missing:
        for name, stream in data_sources.archive(file, lambda name: name.removeprefix("./") in missing):
            data_sources.write_whole(written[name.removeprefix("./")], iter(partial(stream.read, MIB), b""))
            missing.remove(name.removeprefix("./"))
    if missing:
        raise DataError(f"{file}: no {min(missing)} in it", "put the published archive there")
    return written
