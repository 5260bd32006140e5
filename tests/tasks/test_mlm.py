"""Pre-training: blocks of a text, masks in training and in evaluation, tokens that fine-tuning shares, wrong input."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.examples import Examples
from tasks.lm.windows import TokenStream
from tasks.mlm import topics
from tasks.mlm.blocks import Blocks, MaskedBlocks, drawn
from tasks.mlm.pretrain import Pretraining
from tests.helpers.tasks import info_of, no_progress, ready, refused, refuses

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
GPT2, BOOKS = SHARED / "tokenizers" / "gpt2", SHARED / "pg19" / "pg19_slice.tar.gz"
BOS, PAD, EOS, FIRST = 0, 1, 2, 4
MASK, PIECES = 260, 256  # of bytes


def task(root: Path, **settings) -> Pretraining:
    settings = {"data_root": root / "data", "source": "slice", "length": 16, "tokenizer": "bytes", **settings}
    return Pretraining(**settings)


def texts(folder: Path) -> Path:
    for name, count in (("train", 40), ("validation", 12), ("test", 12)):
        (folder / name).mkdir(parents=True)
        for i in range(2):
            lines = "".join(f"The {name} book {i} has line {n}, and the line has words.\n" for n in range(count))
            (folder / name / f"{i}.txt").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """The task on the texts, and their folder."""
    root = tmp_path_factory.mktemp("books")
    folder = texts(root / "texts")
    return ready(task(root, path=folder)), folder


def stream(*documents: int) -> TokenStream:
    """Documents of so many tokens, numbered through from 10, each with its end token 9 behind it."""
    tokens, offsets, number = [], [0], 10
    for length in documents:
        tokens += [*range(number, number + length), 9]
        number += length
        offsets.append(len(tokens))
    ids = np.arange(2000)
    ids[9] = EOS
    labels = np.ones((len(documents), 2), np.int64)
    return TokenStream(Examples(np.array(tokens, np.uint16), np.array(offsets), labels), 9, ids)


def test_blocks_are_the_text_between_special_tokens():
    blocks = Blocks(stream(3, 4), 6)  # nine tokens, of which a block has four
    wanted = [[BOS, 10, 11, 12, EOS, EOS], [BOS, 13, 14, 15, 16, EOS], [BOS, 14, 15, 16, EOS, EOS]]
    assert len(blocks) == 3 and blocks.batch([0, 1, 2])["tokens"].tolist() == wanted
    with pytest.raises(ValueError, match="3 tokens are fewer than a block of 4"):
        Blocks(stream(2), 6)


def test_masks_of_evaluation_follow_from_seed_and_number_alone():
    def split(seed, number):
        return MaskedBlocks(stream(180), 32, count=5, mask_id=MASK, pieces=PIECES, seed=seed, split=number)

    batch, plain = split(0, 2).batch(range(6)), Blocks(stream(180), 32).batch(range(6))["tokens"]
    alone = [split(0, 2).batch([i]) for i in range(6)]
    assert all(torch.equal(batch[key], torch.cat([example[key] for example in alone])) for key in batch)
    assert torch.equal(plain.scatter(1, batch["masked"], batch["targets"]), plain)
    assert torch.equal(batch["tokens"].scatter(1, batch["masked"], batch["targets"]), plain), "nothing else is changed"
    for other in (split(1, 2), split(0, 1)):
        assert not torch.equal(other.batch(range(6))["masked"], batch["masked"])


@pytest.mark.parametrize("where", ["training", "evaluation"])
def test_of_the_tokens_15_percent_are_chosen_and_replaced_80_10_10(where):
    rows, length, count = 2000, 42, 6
    if where == "training":
        torch.manual_seed(0)
        tokens = torch.randint(FIRST, 40, (rows, length))
        tokens[:, 0], tokens[:, -1] = BOS, EOS
        batch = drawn(tokens, count=count, mask_id=MASK, pieces=PIECES)
    else:
        blocks = MaskedBlocks(stream(*[36] * 40), length, count=count, mask_id=MASK, pieces=PIECES, seed=0, split=1)
        parts = [
            MaskedBlocks(blocks.stream, length, count=count, mask_id=MASK, pieces=PIECES, seed=seed, split=1).batch(
                range(len(blocks))
            )
            for seed in range(60)
        ]
        batch = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        rows = len(batch["tokens"])
    masked, targets = batch["masked"], batch["targets"]
    assert masked.min() == 1 and masked.max() == length - 2 and (masked.diff(dim=1) > 0).all()
    places = torch.bincount(masked.flatten(), minlength=length)[1:-1] / rows
    assert (places - count / (length - 2)).abs().max() < 0.05, "each place is as likely"
    put = batch["tokens"].gather(1, masked)
    n = put.numel()
    share_masked, same = (put == MASK).sum() / n, (put == targets).sum() / n
    error = 4 * (0.25 / n) ** 0.5
    assert abs(share_masked - 0.8) < error and abs(same - 0.1) < error
    others = put[(put != MASK) & (put != targets)]
    assert others.min() >= FIRST and others.max() < FIRST + PIECES and len(others.unique()) > 150


def test_masks_of_training_are_new_and_resume_with_torchs_generator(books):
    (loaded, _), seen = books, []
    assert loaded.vocab_size == 261

    def model(tokens, masked, targets):
        seen.append(masked)
        return torch.ones(masked.shape)

    batch = loaded.split("train").batch([0, 1])
    torch.manual_seed(3)
    loaded.loss(model, batch)
    state = torch.get_rng_state()
    loaded.loss(model, batch)
    torch.set_rng_state(state)
    loaded.loss(model, batch)
    assert torch.equal(seen[1], seen[2]) and not torch.equal(seen[0], seen[1])
    assert seen[0].shape == (2, 2), "15 % of 14 tokens"


def test_the_score_is_nats_per_masked_token(books):
    loaded, _ = books
    metrics, split = loaded.metrics(), loaded.split("test")
    batch = split.batch(range(len(split)))
    losses = torch.arange(batch["targets"].numel()).view_as(batch["targets"]).double()
    scores = loaded.score(lambda *_: losses, batch, metrics)["nats"]
    values = {key: float(value) for key, value in metrics.compute().items()}
    assert torch.equal(scores, losses.mean(1)) and values["nats"] == pytest.approx(float(losses.mean()))
    assert values["loss"] == values["nats"] and values["tokens"] == batch["targets"].numel()


def test_the_text_is_the_documents(books):
    loaded, folder = books
    tokens = loaded.split("train").stream.tokens(0, len(loaded.split("train").stream)).tolist()
    read = [(folder / "train" / f"{i}.txt").read_bytes() for i in range(2)]
    assert tokens == [row for text in read for row in (*(FIRST + byte for byte in text), EOS)]


def test_pieces_follow_from_the_text_alone(tmp_path):
    """Whoever trains them: another task, with its data elsewhere, reads the same file."""
    folder = texts(tmp_path / "texts")
    bpe = {"tokenizer": "bpe", "vocabulary": 300, "vocabulary_text": folder}
    loaded = task(tmp_path, path=folder, **bpe)
    loaded.prepare(no_progress)
    again = task(tmp_path, path=folder, **{**bpe, "vocabulary_text": str(folder)})
    files = list((tmp_path / "data" / "lm" / "tokenizers").iterdir())
    again.prepare_tokens(no_progress)
    other = again.vocabulary_used
    assert len(files) == 1 and list((tmp_path / "data" / "lm" / "tokenizers").iterdir()) == files
    assert other.pieces.identity == loaded.vocabulary_used.pieces.identity
    assert other.vocab_size == loaded.vocab_size == 304 and again.mask_id == 303
    ids = other.encode(["the line has words, and <mask> is none of them"])[0]
    assert other.decode(ids.tolist()) == "the line has words, and <mask> is none of them" and ids.max() < 303


def test_generated_documents_have_all_words_of_a_topic_together(tmp_path):
    words = topics.vocabulary()
    assert len(set(words)) == len(words) == topics.TOPICS * topics.WORDS + topics.COMMON
    texts = [
        document.text.split()
        for piece in topics.Documents.pieces(40, seed=0, split=0)
        for document in piece.documents()
    ]
    assert len(texts) == 40 and {len(text) for text in texts} == {topics.SECTIONS * topics.SECTION}
    for number, section in enumerate(np.array(texts).reshape(-1, topics.SECTION)):
        indices = np.array([words.index(word) for word in section])
        topical = indices[indices < topics.TOPICS * topics.WORDS]
        assert set(topical // topics.WORDS) == {number % topics.TOPICS} and len(set(topical)) == topics.WORDS
        assert 0.6 < len(topical) / len(indices) < 0.95
    fewer = [document for piece in topics.Documents.pieces(3, seed=0, split=0) for document in piece.documents()]
    assert [document.text.split() for document in fewer] == texts[:3], "fewer are the beginning of more"


def test_pieces_of_generated_documents_are_their_words(tmp_path):
    settings = {"source": "synthetic", "tokenizer": "bpe", "vocabulary": 887, "vocabulary_text": "synthetic"}
    loaded = task(tmp_path, documents=8, **settings)
    assert info_of(loaded).source == "synthetic"
    ids = loaded.vocabulary_used.encode([" " + " ".join(topics.vocabulary())])[0]
    assert len(ids) == len(set(ids.tolist())) == len(topics.vocabulary())
    tokens = 8 * topics.SECTIONS * topics.SECTION  # one each, but for the first word of a document
    assert tokens <= 14 * len(loaded.split("train")) < tokens + 8 * topics.LENGTH + 14


@pytest.mark.skipif(not GPT2.is_dir(), reason="no GPT-2 files")
def test_gpt2_has_robertas_rows():
    made = task(Path("none"), tokenizer="gpt2", tokenizer_path=GPT2)
    used = made.vocabulary_used
    assert used.vocab_size == made.vocab_size == 50_265 and made.mask_id == 50_264
    assert used.encode(["Hello world"])[0].tolist() == [FIRST + 15496, FIRST + 995]


def test_wrong_data_are_one_line(tmp_path):
    folder = texts(tmp_path / "texts")
    refuses(
        task(tmp_path, path=folder, tokenizer="bpe", vocabulary=300, vocabulary_text="nowhere"), "nowhere: not there"
    )
    refuses(task(tmp_path, source="hf", path=folder), "bookcorpus", "plain_text/train/*.parquet")
    refuses(task(tmp_path), "source=slice requires task.path")
    long = task(tmp_path, path=folder, length=5000)
    long.prepare(no_progress)
    with refused("fewer than a block of 4,998", "lower task.length", kind=ValueError):
        long.load()
