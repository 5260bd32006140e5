"""Every combination can learn: at smoke size, the output depends on the input and every trained parameter is used.

A model that cannot see its input trains like any other, to the score of guessing. So for each model, task and protocol

    the output changes with the first, with a middle and with the last token, each by itself, and
    one batch gives each trained parameter a gradient.

A combination that cannot learn is refused at composition, in one line.
"""

import functools

import pytest
import torch

from harness.config.build import build, on_meta, parameter_groups
from harness.config.compose import OWN_CLASS, compose, options, recipes
from harness.errors import UsageError
from tests.helpers.cells import with_model
from tests.helpers.tasks import no_progress

LANGUAGE_MODELS = [("lavo", "lm/pg19"), ("latte", "lm/openwebtext"), ("llp", "lm/wikitext103")]
FINETUNED = ("glue/sst2", "qa/race")  # one text, and a choice among answers: all are the same encoder
TASKS = [name for name, _ in options("task")]
MODELS = [name for name, _ in options("model") if name not in OWN_CLASS]
RECIPES = [(protocol, task) for task in TASKS for protocol in recipes(task)]
# language models differ by protocol, not by corpus
RECIPES = [recipe for recipe in RECIPES if not recipe[1].startswith("lm/") or recipe in LANGUAGE_MODELS]
RECIPES = [recipe for recipe in RECIPES if not recipe[1].startswith(("glue/", "qa/")) or recipe[1] in FINETUNED]
GOOGLE = [task for protocol, task in RECIPES if protocol == "google"]
# the inputs of models in the order of the call, and those that the output has to depend on
INPUTS = ("tokens", "partial", "past", "past_time", "future_time", "source", "inputs", "phonemes", "frames")
SEQUENCES = ("tokens", "partial", "past", "source", "inputs", "phonemes", "frames")
NOISE = 1e-11  # in float64, between rows of a batch that are equal
# of what has no form for the slot, is a whole decoder, reads more latents than a sequence has tokens, or has a first
# position that sees nothing
REFUSALS = ("has no ", "cannot replace", "latents=", "would be constant")
# methods whose single position, where a recipe reads only one, sees part of a sequence of this size through this
# many layers
PART_SEEN = {
    "no_mixing": "itself",
    "local": "a window",
    "local_bias": "a window",
    "longformer": "a window",
    "longnet": "the first segment of each branch",
    "lra_strided": "every s-th token",
    "mega_chunk": "a chunk, and an average that decays",
    "reformer": "a bucket and its neighbours",
    "routing": "a cluster, and a window",
    "sparse_transformer": "its block and the columns, in one layer",
}
# parameters that nothing reads
IDLE = {
    "hgrn2": ("rows",),  # of one layer: their softmax over layers is 1
    "longshort": ("score.bias",),  # adds the same number to every logit of a softmax: its gradient is rounding
    "probsparse": ("q_proj", "k_proj"),  # of one layer whose first position alone is read, and is not chosen
}
IDLE_IN_PROBES = {"llp": ("first_out_proj",)}  # of the first block: the queries stand behind it
# the rows of LRA's table, and what the first position does not see there either (X64)
LRA = [
    *("vanilla", "lra_strided", "sparse_transformer", "longformer", "linformer", "reformer", "sinkhorn", "synthesizer"),
    *("bigbird", "linear_transformer", "performer", "performer_relu"),
]
UNSEEN = {
    **{("lra_strided", task): {0, length // 2, length - 1} for task, length in (("listops", 2000), ("text", 1000))},
    ("lra_strided", "retrieval"): {2000, 3999},  # its first byte is the one that is read
    ("longformer", "listops"): {1999},
    ("longformer", "retrieval"): {2000, 3999},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@functools.lru_cache(4)
def composed(protocol, task, root, *overrides):
    return compose([f"task={task}", f"protocol={protocol}", "budget=smoke", f"paths.data={root}", *overrides])


@functools.lru_cache(4)
def batch_of(protocol, task, root, *overrides):
    """Eight examples: tokens drawn at random, of the longest length, or a probe's own, or series and clouds."""
    cfg = composed(protocol, task, root, *overrides)
    made = build(with_model(cfg, "vanilla")).task
    sizes = made.backbone_kwargs()
    generator = torch.Generator().manual_seed(0)
    if "classes" not in sizes:
        made.prepare(no_progress)
        made.load()
        batch = made.split("train").batch(range(8))
        batch = {key: x.double() if x.is_floating_point() else x for key, x in batch.items()}
        if "source" in batch:  # without padding
            batch["source"] = torch.randint(4, sizes["vocab_size"], batch["source"].shape, generator=generator)
        return batch
    shape = (8, 2, sizes["max_length"]) if task == "lra/retrieval" else (8, sizes["max_length"])
    tokens = torch.randint(1, sizes["vocab_size"], shape, generator=generator)
    return {"tokens": tokens, "label": torch.randint(sizes["classes"], (8,), generator=generator)}


def model_and_task(cfg):
    """In float64 with every parameter perturbed, so that none hides behind one that starts at zero."""
    torch.manual_seed(0)
    built = build(cfg)
    model = built.model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return built, model


def unseen(model, batch):
    """What the output does not depend on, of the first example's first, middle and last token, and of all of them."""
    return set().union(*(unseen_of(name, model, batch) for name in SEQUENCES if name in batch))


def unseen_of(name, model, batch):
    """The same for one of the model's inputs."""
    x = batch[name][0]
    sequences = x if name == "tokens" and x.ndim == 2 else x[None]  # of a pair, or one
    length = sequences.shape[1]
    positions = (0, length // 2) if name == "frames" else (0, length // 2, length - 1)  # no step reads the last frames
    rows, places = [x], []
    for number in range(len(sequences)):
        for position in (*positions, slice(None)):
            row = sequences.clone()
            row[number, position] = changed(row[number, position])
            rows.append(row.view_as(x))
            places.append("all" if position == slice(None) else position)
    inputs = [
        torch.stack(rows) if key == name else batch[key][:1].expand(len(rows), *batch[key].shape[1:])
        for key in INPUTS
        if key in batch
    ]
    with torch.no_grad():
        output = model(*inputs)
    if name == "partial":  # of a completion, the first point that is predicted
        output = output[1][:, :1]
    elif isinstance(output, tuple):  # of speech, what the decoder gives
        output = output[0]
    change = (output[1:] - output[:1]).flatten(1).abs().amax(1)
    assert torch.isfinite(change).all()
    return {position for position, size in zip(places, change.tolist(), strict=True) if size < NOISE}


def changed(x):
    """Other values, or other tokens, none of them padding."""
    return x + 0.5 if x.is_floating_point() else torch.where(x > 1, x - 1, x + 1)


def untrained(built, model, batch):
    """Parameters that require a gradient and get none, or that the optimiser does not hold."""
    model.train()
    built.task.loss(model, batch).backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not without, "without a gradient, which DDP refuses"
    given = {id(p) for group in built.optimizer(parameter_groups(model)).param_groups for p in group["params"]}
    return {
        name
        for name, p in model.named_parameters()
        if p.requires_grad and (id(p) not in given or p.grad is None or not p.grad.any())
    }


def check(protocol, task, model, root):
    cfg = with_model(composed(protocol, task, root), model)
    try:
        built, made = model_and_task(cfg)
    except UsageError as error:
        assert any(reason in str(error) for reason in REFUSALS) and "\n" not in str(error), error
        return
    batch = batch_of(protocol, task, root)
    blind, idle = unseen(made.eval(), batch), untrained(built, made, batch)
    if model == "no_cross":  # the control reads no source: the decoder is given the last values of a series
        assert "all" not in blind
        return
    reads_one = cfg.backbone.get("pooling") in ("cls", "first") or cfg.backbone._target_.endswith(".AutoEncoder")
    if model in PART_SEEN and reads_one:
        blind &= {"all"}
    assert not blind, "the output does not depend on these"
    allowed = IDLE.get(model, ()) + (IDLE_IN_PROBES.get(model, ()) if protocol == "probe" else ())
    if task.startswith("qa/"):  # a softmax over answers does not see what all scores have in common
        allowed += ("head.3.bias",)
    assert not {name for name in idle if not any(part in name for part in allowed)}, "never trained"


@pytest.mark.parametrize("task", GOOGLE)
def test_each_model_learns(task, root):
    """Each model once."""
    for model in MODELS[GOOGLE.index(task) :: len(GOOGLE)]:
        check("google", task, model, root)


def models_of(protocol, task):
    """All, but in LRA's protocols beside Google's each model on one of the tasks, whose backbone is the same."""
    tasks = [name for of, name in RECIPES if of == protocol and name.startswith("lra/")]
    return MODELS if protocol == "google" or task not in tasks else MODELS[tasks.index(task) :: len(tasks)]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "task"), RECIPES)
def test_every_combination_learns(protocol, task, root):
    """Many models in one test: thousands of tests would take as long as what they do."""
    broken = []
    for model in models_of(protocol, task):
        try:
            check(protocol, task, model, root)
        except Exception as error:  # each is reported
            broken.append(f"{model}: {error!r}")
    assert not broken, "\n".join(broken)


def test_a_model_that_cannot_see_its_input_is_refused():
    typed = ("model=llp", "task=lra/listops", "protocol=google", "budget=smoke")
    with pytest.raises(UsageError, match=r"would be constant; set backbone\.pooling=masked_mean"):
        on_meta(compose(typed))
    on_meta(compose([*typed, "backbone.pooling=masked_mean"]))
    with pytest.raises(UsageError, match="would be constant"):
        on_meta(compose(["model=sparse_transformer", "model.open_first=false", *typed[1:]]))


ALL_TO_ALL = ("vanilla", "linformer", "synthesizer", "linear_transformer", "performer", "performer_relu")
LENGTHS = [(model, task) for task in ("lra/listops", "lra/text", "lra/image", "lra/retrieval") for model in LRA]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "task"), [case for case in LENGTHS if case[0] not in ALL_TO_ALL or case[1] != "lra/retrieval"]
)
def test_the_first_position_sees_the_whole_text_at_the_length_of_the_paper(model, task, root):
    """Google's rows in narrow layers, less the positions that the published code itself does not see.

    Of pairs of 4,000 bytes only those that do not see all tokens in each layer, at any length.
    """
    narrow = ["backbone.dim=32", "backbone.heads=2", "backbone.ffn_dim=16", "budget=paper"]
    cfg = with_model(composed("google", task, root, *narrow), model)
    _, made = model_and_task(cfg)
    blind = unseen(made.eval(), {key: x[:1] for key, x in batch_of("google", task, root, *narrow).items()})
    assert blind == UNSEEN.get((model, task.removeprefix("lra/")), set())
