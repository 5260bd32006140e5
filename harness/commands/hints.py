"""What to type in place of a word of another project, of another shell, or with a slip of the keyboard."""

import re

from harness.commands.verbs import VERBS
from harness.config.compose import NAMED, names_in

STEPS = "a run has train.max_steps=... updates"
EVALUATIONS = "train.eval_every=... is the number of updates between evaluations"
CHOSEN_WEIGHTS = "the weights are chosen by the task's metric on the validation split; train.select.rule=... says how"
GPUS = "resources=gpu1 takes one GPU, resources.devices=4 four"
DATA = "task=... chooses the data (python run.py do=list)"
RESUMED = "the same command resumes a run; rerun=failed and rerun=all run cells again"
# what other projects call a setting -> what to type here
SYNONYMS = {
    **dict.fromkeys(("epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs"), STEPS),
    **dict.fromkeys(("steps", "iterations", "max_iters"), STEPS),
    **dict.fromkeys(("learning_rate", "base_lr"), "train.optimizer.lr=... is the learning rate"),
    **dict.fromkeys(
        ("hidden_size", "hidden_dim", "d_model", "embed_dim", "n_embd", "width"), "backbone.dim=... is the width"
    ),
    **dict.fromkeys(("n_layers", "num_layers", "n_layer", "depth"), "backbone.layers=... is the number of layers"),
    **dict.fromkeys(("n_heads", "num_heads", "n_head", "nhead"), "backbone.heads=... is the number of heads"),
    **dict.fromkeys(("gpus", "gpu", "num_gpus", "n_gpus"), GPUS),
    **dict.fromkeys(("device", "devices"), f"{GPUS}; trainer=cpu keeps to the CPU"),
    **dict.fromkeys(("output_dir", "save_dir", "log_dir"), "paths.outputs=... is the folder of the runs"),
    **dict.fromkeys(("data_dir", "data_path"), "paths.data=... is the folder of the data"),
    **dict.fromkeys(("data", "dataset", "dataset_name", "datamodule"), DATA),
    **dict.fromkeys(("model_name", "model_name_or_path"), "model=... chooses the model (python run.py do=list)"),
    **dict.fromkeys(
        ("gradient_accumulation_steps", "accumulate_grad_batches"),
        "train.micro_batch_size=... is the number of examples per forward pass",
    ),
    **dict.fromkeys(("fp16", "bf16", "amp", "mixed_precision"), "train.precision=16-mixed or bf16-mixed"),
    **dict.fromkeys(("warmup_ratio", "warmup_steps"), "train.schedule.warmup=... is the number of updates"),
    **dict.fromkeys(("gradient_clip_val", "max_grad_norm", "grad_clip"), "train.clip_norm=... is the largest norm"),
    **dict.fromkeys(("eval_steps", "val_check_interval", "eval_interval", "evaluation_strategy"), EVALUATIONS),
    **dict.fromkeys(("save_steps", "save_every"), "checkpoint.every_s=... is the time between checkpoints"),
    **dict.fromkeys(("monitor", "load_best_model_at_end", "metric_for_best_model", "save_top_k"), CHOSEN_WEIGHTS),
    **dict.fromkeys(("early_stopping", "callbacks"), "train.patience=... ends a run without improvement"),
    **dict.fromkeys(("ckpt_path", "resume", "resume_from_checkpoint", "overwrite", "force"), RESUMED),
    **dict.fromkeys(
        ("fast_dev_run", "limit_train_batches", "limit_val_batches", "overfit_batches"),
        "debug=limit makes a run short, debug=overfit trains on one batch",
    ),
    **dict.fromkeys(("report_to", "wandb"), "logger=wandb, tensorboard or mlflow"),
    **dict.fromkeys(("loss", "loss_fn", "metric", "metrics"), "each task has its loss and metric"),
    **dict.fromkeys(("num_classes", "n_classes", "classes"), "the number of classes follows from the task"),
    **dict.fromkeys(("row", "rows", "column", "columns"), "model=... and task=... choose rows and columns of a table"),
    **dict.fromkeys(("file", "files", "csv"), "task.path=... is the file or folder"),
    **dict.fromkeys(
        ("target", "label", "inputs"),
        "task.text= and task.label= are columns of data/classification, task.inputs= and task.target= of "
        "data/regression, task.text= of data/lm",
    ),
    "bench.batch_size": "bench.batch=... is the number of examples",
    "seeds": "did you mean 'seed'? Several are typed -m seed=1,2,3",
    "experiment": "table=... runs the cells of a table; protocol= and budget= are the recipe",
}
ENDINGS = re.compile(r"\.(ya?ml|md|py|csv|html)$")
NUMBERS_APART = re.compile(r"0,\d+|\d{1,3}(,\d{3})+")  # a decimal comma, or thousands


def synonym(key: str) -> str:
    """What to type for a key of another project; empty for a key that none is known to have."""
    if key.startswith("model.module."):
        return f"add model=module, or the argument as +{key}=..."
    if key.isupper():
        return f"environment variables stand in front: {key}=... python run.py ..."
    meant = SYNONYMS.get(key) or SYNONYMS.get(key.rpartition(".")[2].lower(), "")
    return meant.replace("backbone.", "bench.") if key.startswith("bench.") else meant


def not_key_value(word: str) -> str:
    """The message for a word without `=`, such as `lavo`; what it is the name of is typed in front."""
    keys = [group for group in NAMED if word in names_in(group)] or ["do"] * (word in VERBS)
    hint = f"type {keys[0]}={word}" if keys else "python run.py --help"
    if word.endswith(("]", "}", ",")):
        hint = "a list has no spaces, [a,b], or stands in quotes"
    return f"'{word}' is not key=value ({hint})"


def unread(word: str) -> str:
    """The message for a word with `=` that Hydra's grammar does not parse: mostly a function that it lacks."""
    if function := re.search(r"=(\w+)\(", word):
        takes = "-m takes a,b, range(1,6) and choice(a,b); hydra/sweeper=optuna takes interval(1e-4,1e-2) as well"
        return f"{word}: there is no {function[1]}(): {takes}"
    return f"'{word}' is not key=value (python run.py --help)"


def file_as_name(group: str, value: str) -> str | None:
    """`lra/listops` for `conf/task/lra/listops.yaml`, `/lra/listops` or `lra\\listops`; None if it is no such path."""
    parts = ENDINGS.sub("", value.strip().replace("\\", "/")).strip("/").split("/")
    names, paths = set(names_in(group)), ["/".join(parts[first:]) for first in range(len(parts))]
    return next((path for path in paths if path in names), None)


def unreadable_value(key: str, value: str) -> str:
    """What is wrong with a value that Hydra's grammar does not read."""
    if value.startswith("~"):
        return f"a shell replaces ~ only where a word begins: type {key}=$HOME{value[1:]}, or the whole path"
    if any(letter in value for letter in "\u2212\u2013\u2014") and re.search(r"\d", value):
        return "a minus is typed -, as in 1e-3"
    if re.search(r",\]?$", value):
        return "a comma stands at its end: leave it out, and type no space behind a comma"
    if re.fullmatch(r"\{[\w.-]+(,\s*[\w.-]+)*\}", value):
        return f"several values are typed {key}={value[1:-1].replace(' ', '')}, with -m"
    for start, end in ("[]", "{}", "()"):
        if value.count(start) != value.count(end):
            missing = end if value.count(start) > value.count(end) else start
            return f"a {missing} is missing; a value with spaces stands in quotes: '{key}=...'"
    return f"special characters need two quotes: '{key}=\"{value}\"'"


def with_several_values(key: str, value: str) -> str:
    """What else `key=a,b` may have been meant to be; empty for a list of values."""
    if NUMBERS_APART.fullmatch(value):
        return f"; a number has a point, not a comma: {key}={as_number(value)}"
    return ""


def as_number(value: str) -> str:
    return value.replace(",", ".") if value.startswith("0,") else value.replace(",", "")


def of_several_seeds(key: str) -> str:
    """How seeds are typed; empty for another key."""
    return "; several seeds are typed -m seed=1,2,3 or -m 'seed=range(1,6)'" if key == "seed" else ""
