"""Helpers for tests of translation: a task on a folder with a few pairs."""

from pathlib import Path

from tasks.mt.wmt14_ende import Wmt14EnDe

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
NEWS, CODES = SHARED / "wmt14_en_de", SHARED / "tokenizers" / "wmt_en_de" / "bpe.32000"
SIZES = {"source_length": 80, "target_length": 80, "clean_length": 79, "clean_ratio": 2.0, "max_new_tokens": 8}
SIZES |= {"vocabulary": 60, "workers": 1}
EN = "The cat {n} doesn't see a well-known dog ."
DE = "Die Katze {n} sieht keinen Hund ."


def of_settings(**settings) -> Wmt14EnDe:
    how = {"pattern": "noncausal_self", "source": "slice", "validation": "dev"}
    return Wmt14EnDe(**{**how, **SIZES, **settings})


def task(root: Path, **settings) -> Wmt14EnDe:
    return of_settings(**{"data_root": root / "data", **settings})


def files(folder: Path, count: int = 12, **changed: bytes) -> Path:
    """A folder of pairs: train (`count`), valid (3) and test (4), but for those `changed` (train_en=...)."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, number in (("train", count), ("valid", 3), ("test", 4)):
        for language, text in (("en", EN), ("de", DE)):
            lines = "".join(text.format(n=n) + "\n" for n in range(number))
            (folder / f"{split}.{language}").write_bytes(changed.get(f"{split}_{language}", lines.encode()))
    return folder


def texts(loaded: Wmt14EnDe, split: str) -> list[tuple[str, str]]:
    decode, examples = loaded.vocabulary_used.decode, loaded.split(split)
    return [tuple(decode(part.tolist()) for part in examples.pair(i)) for i in range(len(examples))]
