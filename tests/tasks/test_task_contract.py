"""What every task promises, for each file of conf/task/ at its smoke budget: a new task is tested by its yaml alone."""

import hashlib
import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from harness.config.build import build
from harness.config.compose import arguments, compose
from harness.config.instantiate import instantiate
from harness.errors import UsageError
from tasks import cache
from tasks.base import DataInfo, Task
from tasks.checks import DataError
from tasks.lra import classifiers
from tests.helpers.guesses import GUESSES
from tests.helpers.tasks import info_of, no_progress

CONF = Path(__file__).resolve().parents[2] / "conf"
TASKS = sorted(file.relative_to(CONF / "task").with_suffix("").as_posix() for file in (CONF / "task").rglob("*.yaml"))
TASKS = [name for name in TASKS if not name.rpartition("/")[2].startswith("_")]  # files that others share
# settings in which a task makes final evaluations; without them only a probe and a language model do
FINAL = {
    "lra/listops": ["task.final_lengths=[80,120]"],
    "lm/pg19": ["task.lengths=[40]"],
    "data/lm": ["task.lengths=[40]"],
    "probe/recall": ["task.pairs=4"],
    "probe/selective_copy": ["task.copies=5"],
    "probe/noisy_recall": ["task.noise=0.4"],
    "probe/needle": ["task.distances=[2,5]"],
    "probe/extrapolation": ["task.factors=[3]"],
    "probe/long_needle": ["task.factors=[3]"],
    "probe/long_recall": ["task.factors=[3]"],
    "probe/capacity": ["task.scored=[3]"],
    "probe/state_tracking": ["task.factors=[3]"],
    "probe/markov": ["task.order=2"],
    "summarization/multinews": ["task.decoded=5"],
    "mt/wmt14_ende": ["task.decoded=5"],
    "tts/ljspeech": [],
}
# at the smoke budget, the code and the size of another one: heavy tests leave them out
REPEATS = (
    *(f"lm/{name}" for name in ("bookcorpus", "enwik8", "openwebtext", "shakespeare", "slimpajama", "text8")),
    *(f"forecasting/{name}" for name in ("electricity", "etth2", "ettm2", "exchange", "ili", "traffic", "weather21")),
)


def composed(name: str, root: Path, *overrides: str):
    return compose([f"task={name}", "budget=smoke", f"paths.data={root}", *overrides])


class Case(NamedTuple):
    name: str
    root: Path
    settings: dict
    task: Task
    model: torch.nn.Module
    info: DataInfo

    def fresh(self, root: Path) -> Task:
        return instantiate({**self.settings, "data_root": str(root)}, "task", [])


@pytest.fixture(scope="module", params=TASKS)
def case(request, tmp_path_factory):
    """Task, model and DataInfo, prepared and loaded once, and what they are made of."""
    root = tmp_path_factory.mktemp("data")
    torch.manual_seed(0)
    cfg = composed(request.param, root)
    made = build(cfg)
    info = info_of(made.task)
    return Case(request.param, root, arguments(cfg.task), made.task, made.model.eval(), info)


def test_settings_that_no_task_takes_touch_nothing(case, tmp_path):
    counts = ("train", "val", "test", "examples", "sentences", "documents", "pairs", "rows", "workers")
    numbers = {key: 0 for key in counts if isinstance(case.settings.get(key), int)}
    for key, value in {"source": "guess", "pattern": "sideways", "data_seed": -1, **numbers}.items():
        if case.settings.get(key) is not None:
            wrong = {**case.settings, key: value, "data_root": str(tmp_path / "data")}
            with pytest.raises((ValueError, UsageError)) as error:
                instantiate(wrong, "task", [])
            assert str(value) in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "data").exists()


def test_a_source_that_needs_a_path_says_what_it_is(case, tmp_path):
    sources = case.task.sources() if hasattr(case.task, "sources") else {}
    for name in (name for name, source in sources.items() if source.requires_path):
        how = {**case.settings, "source": name, "path": None, "generator_version": None}
        with pytest.raises(DataError) as error:
            instantiate({**how, "data_root": str(tmp_path)}, "task", []).check_source()
        problem = f"source={name} requires task.path, {sources[name].path}; "
        assert str(error.value).startswith(f"{problem}run: python run.py do=prepare task={case.task.name}")
        assert str(error.value).endswith("task.path=...")


def reloaded(task: Task) -> DataInfo:
    task.prepare(no_progress)
    task.check_is_prepared()
    return task.load()


def digests(split) -> list[bytes]:
    """One of each example."""
    torch.manual_seed(0)
    batch = split.batch(range(len(split)))
    columns = [batch[key].contiguous().numpy() for key in sorted(batch) if key not in ("label", "category", "kept")]
    return [hashlib.sha256(b"".join(column[i].tobytes() for column in columns)).digest() for i in range(len(split))]


def pass_over(task: Task, model, split, batch_size=13, score=None, metrics=None, write=None):
    """Metrics, and the scores of each example in order."""
    metrics, scores = (metrics or task.metrics)(), []
    with torch.no_grad():
        for start in range(0, len(split), batch_size):
            batch = split.batch(range(start, min(start + batch_size, len(split))))
            scores.append((score or task.score)(write(model, batch) if write else model, batch, metrics))
    joined = {key: torch.cat([batch_scores[key] for batch_scores in scores]).double() for key in scores[0]}
    return {key: float(value) for key, value in metrics.compute().items()}, joined


def test_splits_are_there_and_share_no_example(case):
    task, info = case.task, case.info
    sizes = {name: len(task.split(name)) for name in ("train", "val", "test")}
    assert info.sizes == sizes | {evaluation.name: len(evaluation.split) for evaluation in task.final_evaluations()}
    assert min(info.sizes.values()) > 0 and len(info.fingerprint) == 64
    assert info.source in ("full", "synthetic") or info.source.startswith("slice:")
    names = ("train", "test") if task.split("val") is task.split("test") else ("train", "val", "test")
    digests_of = {name: set(digests(task.split(name))) for name in names}
    for first, second in itertools.combinations(names, 2):
        # pictures of 12 x 12 pixels are so few that one may be drawn twice
        shared = digests_of[first] & digests_of[second]
        assert len(shared) <= len(digests_of[second]) / 50, f"{first} and {second} share examples"


def test_examples_have_numbers(case):
    task = case.task
    for name in ("val", "test"):
        split = task.split(name)
        count = len(split)
        batch, other = split.batch([0, count - 1]), split.batch(np.array([count - 1, 0]))
        assert all(len(values) == 2 for values in batch.values())
        assert all(torch.equal(batch[key][0], other[key][1]) for key in batch)
        for beyond in ([count], [-1], [0, count]):
            with pytest.raises(IndexError):
                split.batch(beyond)


def test_two_preparations_give_one_fingerprint(case, tmp_path):
    again = case.fresh(tmp_path)
    with pytest.raises(RuntimeError, match="load\\(\\) comes before split"):
        again.split("train")
    assert reloaded(again) == case.info
    for name in ("val", "test"):
        assert digests(again.split(name)) == digests(case.task.split(name))


def test_prepared_data_are_not_made_again(case):
    def never(*call):
        raise AssertionError(f"worked although all was there: {call}")

    task = case.fresh(case.root)
    files = {path: path.stat().st_mtime_ns for path in case.root.rglob("*") if path.is_file()}
    task.prepare(never if files else no_progress)
    assert {path: path.stat().st_mtime_ns for path in case.root.rglob("*") if path.is_file()} == files
    assert task.load() == case.info


def test_a_killed_preparation_is_begun_again(case, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache, "_install", killed)
        try:
            case.fresh(tmp_path).prepare(no_progress)
        except KeyboardInterrupt:
            with pytest.raises(DataError, match="do=prepare"):
                case.fresh(tmp_path).load()
    assert reloaded(case.fresh(tmp_path)) == case.info
    assert not list(tmp_path.rglob(".*.partial"))


def test_broken_files_are_one_line_and_repaired(case, tmp_path):
    if case.name in REPEATS:
        return
    few = {name: 24 for name in ("train", "val", "test") if isinstance(case.settings.get(name), int)}
    case = case._replace(settings=case.settings | few)  # every broken file is made again
    case = case._replace(info=reloaded(case.fresh(tmp_path)))
    files = {(path.parent, path.suffix): path for path in sorted(tmp_path.rglob("*"))}
    for file in (path for (_, suffix), path in files.items() if suffix in (".arrow", ".json")):
        good = file.read_bytes()
        garbled = bytearray(good)
        garbled[len(good) // 2] ^= 0xFF
        for broken in (None, good[: len(good) // 2], bytes(garbled)):
            file.unlink() if broken is None else file.write_bytes(broken)
            try:
                assert case.fresh(tmp_path).load() == case.info
            except DataError as error:
                assert "\n" not in str(error) and "do=prepare" in str(error) and str(tmp_path) in str(error)
            assert reloaded(case.fresh(tmp_path)) == case.info


def test_tokens_are_counted(case):
    task = case.task
    split = task.split("test")
    numbers = range(min(5, len(split)))
    counts = [task.tokens(split.batch([i])) for i in numbers]
    assert task.tokens(split.batch(numbers)) == sum(counts) and min(counts) > 0
    if split.lengths() is not None:
        assert split.lengths().shape == (len(split),)
        lengths = split.lengths()[: len(counts)].tolist()
        hidden = getattr(task, "mask_black", False)  # tokens of value 0 inside an example count as padding
        shorter = [count <= length for count, length in zip(counts, lengths, strict=True)]
        assert all(shorter) if hidden else counts == lengths
    if task.vocab_size is not None:
        batch = split.batch(range(len(split)))
        tokens = torch.cat([batch[key].flatten() for key in ("tokens", "source", "inputs") if key in batch])
        assert tokens.min() >= 0 and tokens.max() < task.vocab_size == task.backbone_kwargs()["vocab_size"]


def test_the_chance_level_is_what_its_guess_scores(case):
    task = case.task
    assert task.metric in GUESSES, f"a guess for {task.metric} is missing here"
    chance = task.baselines()[task.baseline_name]()
    for name in ("val", "test"):
        expected, _ = pass_over(task, GUESSES[task.metric](task), task.split(name))
        guessed, _ = pass_over(task, chance, task.split(name))
        assert guessed[task.metric] == pytest.approx(expected[task.metric], rel=1e-5)


def test_baselines_are_scored_as_a_model_is(case, monkeypatch):
    """Each alike in batches of any size and when it is made again; if there are several, one is better than chance.

    But for generated topics, which tell nothing without pre-training (tasks/mlm/topics.py), and for generated pairs,
    whose words alone tell nothing (tasks/lra/synthetic_pairs.py).
    """
    if case.name in REPEATS:
        return
    monkeypatch.setattr(classifiers, "BUCKETS", 1 << 14)  # hashed n-grams: to fit four million takes seconds
    task, tells_nothing = case.task, case.name.startswith(("glue/", "qa/", "lra/retrieval"))
    split, batch = task.split("test"), task.split("test").batch(range(4))
    _, of_model = pass_over(task, case.model, split)
    scores = {}
    for name, make in task.baselines().items():
        assert "/" not in name
        before = {key: values.clone() for key, values in batch.items()}
        state = torch.get_rng_state()
        predictor = make()
        assert torch.equal(torch.get_rng_state(), state)
        means, per_example = pass_over(task, predictor, split)
        again, _ = pass_over(task, make(), split, batch_size=len(split))
        assert again == pytest.approx(means, rel=1e-6) and np.isfinite(list(means.values())).all()
        assert per_example.keys() == of_model.keys()
        assert all(values.shape == (len(split),) for values in per_example.values())
        task.score(predictor, batch, task.metrics())
        assert all(torch.equal(batch[key], before[key]) for key in batch), f"{name} changed its input"
        scores[name] = means[task.metric]
    best = max if task.higher_is_better else min
    assert tells_nothing or len(scores) == 1 or scores[best(scores, key=scores.get)] != scores[task.baseline_name], (
        scores
    )


def test_a_fresh_model_has_a_finite_loss_and_gradients(case):
    task, model = case.task, case.model
    loss = task.loss(model, task.split("train").batch(range(4)))
    assert loss.shape == () and loss.isfinite()
    loss.backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())
    model.zero_grad()


def test_every_example_is_scored_and_scores_average_to_the_metric(case):
    task, model = case.task, case.model
    split = task.split("test")
    means, scores = pass_over(task, model, split)
    one_batch, same = pass_over(task, model, split, batch_size=len(split))
    assert task.metric in means and np.isfinite(list(means.values())).all()
    assert means == pytest.approx(one_batch, rel=1e-4)
    assert scores and all(values.shape == (len(split),) for values in scores.values())
    category = split.batch(range(len(split))).get("category")
    groups = [torch.ones(len(split), dtype=bool)] if category is None else [category == c for c in category.unique()]
    for key in scores.keys() & means.keys():
        assert float(torch.stack([scores[key][group].mean() for group in groups]).mean()) == pytest.approx(
            means[key], rel=1e-5, abs=1e-7
        )
        assert torch.allclose(scores[key], same[key], rtol=1e-3, atol=1e-4)
    if task.metric not in scores:  # a perplexity
        assert float(scores[f"log_{task.metric}"].mean().exp()) == pytest.approx(means[task.metric], rel=1e-5)


def test_final_evaluations_are_passes_of_their_own(case, tmp_path):
    name = case.name
    assert name.startswith(("probe/", "lm/")) or name in FINAL or list(case.task.final_evaluations()) == []
    if name not in FINAL:
        return
    task = build(composed(name, tmp_path, *FINAL[name])).task
    info = reloaded(task)
    final = task.final_evaluations()
    assert len({evaluation.name for evaluation in final}) == len(final) > 0
    same_text = name.startswith(("lm/", "data/lm", "summarization/", "mt/", "tts/"))  # in other windows, or fewer of it
    assert (info.fingerprint == case.info.fingerprint) == same_text
    assert {evaluation.name for evaluation in final} <= info.sizes.keys()
    for evaluation in final:
        assert len(evaluation.split) == info.sizes[evaluation.name]
        # a model that is decoded has a state; the guesses have none
        guess = case.model if evaluation.name.startswith("decoded") else GUESSES[task.metric](task)
        _, scores = pass_over(task, guess, evaluation.split, 13, evaluation.score, evaluation.metrics, evaluation.write)
        assert all(len(values) == len(evaluation.split) for values in scores.values())


def test_artifacts_of_a_fresh_model(case):
    task, model = case.task, case.model
    with torch.no_grad():
        kept = task.artifacts(model)
    kinds = {"png": Figure, "txt": str, "wav": bytes, "npz": dict}
    assert all(isinstance(content, kinds[name.rpartition(".")[2]]) for name, content in kept.items())
