"""Whole words: `tokenizer=words`, separated by white space, the `vocabulary` - 2 most frequent of the training split.

The last two ids are that of every other word, `<unk>`, and the end token. WikiText-103's text is already split at
punctuation. The 267,735 ids of its published version are the words that occur three times or more, and these two.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from tasks.checks import DataError, Progress
from tasks.lm.tokenizers import Trained, first_passages

UNKNOWN = "<unk>"


class Words(Trained):
    """Of words that occur equally often, those that sort first have an id. A `<unk>` of the text is an unknown word."""

    name = "words"

    def _train(self, texts: Callable[[], Iterable[str]], progress: Progress) -> str:
        from tokenizers import Tokenizer, models, pre_tokenizers

        counts: Counter[str] = Counter()
        for passage in first_passages(texts(), progress):
            counts.update(passage.split())
        counts.pop(UNKNOWN, None)
        wanted = self.vocab_size - 2
        if len(counts) < wanted:
            problem = f"tokenizer=words: the training split gives {len(counts) + 2:,} ids, not {self.vocab_size:,}"
            raise DataError(problem, arguments=f"task.vocabulary={len(counts) + 2}")
        chosen = sorted(counts, key=lambda word: (-counts[word], word))[:wanted]
        ids = {word: number for number, word in enumerate([*chosen, UNKNOWN])}
        tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return tokenizer.to_str()

    @staticmethod
    def joined(pieces: list[str]) -> str:
        return " ".join(pieces)
