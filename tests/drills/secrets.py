"""Secrets in commands, environments and folders: no record, log, saved override or snapshot shows them."""

import io
import os
import subprocess
from contextlib import redirect_stderr
from pathlib import Path

from harness.errors import UsageError
from harness.launch import snapshot
from tests.drills.runs import Drills
from tests.helpers.hostile import PRIVATE_FILES

ALPHABET = "abcdefghkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
KEYS = ("token", "hf_token", "secret", "password", "api_key", "credential", "apiKey", "client_secret", "access_key")
GROUPS = ("trainer", "model", "task", "backbone", "train.optimizer", "logger.x")
LOGGER = "+logger.x._target_=lightning.pytorch.loggers.MLFlowLogger"


def secrets(drills: Drills) -> tuple[str, str]:
    return drills.dice.choice((typed_secret, typed_secret, secret_of_the_environment, snapshot_of_a_folder))(drills)


def invented(drills: Drills) -> str:
    return "".join(drills.dice.choices(ALPHABET, k=drills.dice.randint(12, 40)))


def typed_secret(drills: Drills) -> tuple[str, str]:
    """Below a key that is named so, or in an address."""
    secret, key = invented(drills), drills.dice.choice(KEYS)
    words = drills.dice.choice(
        (
            [f"+{drills.dice.choice(GROUPS[:5])}.{key}={secret}"],
            [LOGGER, f"+logger.x.{key}={secret}"],
            [LOGGER, f"+logger.x.tracking_uri=http://me:{secret}@localhost:9"],
            [f"+{drills.dice.choice(GROUPS[:5])}.address=https://me:{secret}@localhost/x"],
        )
    )
    return shown(drills, secret, words)


def secret_of_the_environment(drills: Drills) -> tuple[str, str]:
    secret, variable = invented(drills), drills.dice.choice(("HF_TOKEN", "WANDB_API_KEY", "MY_SETTING"))
    text = drills.dice.choice((f"${{oc.env:{variable}}}", f"x-${{oc.env:{variable}}}", f"${{oc.env:{variable},y}}"))
    group = drills.dice.choice(GROUPS)
    words = [*([LOGGER] if group == "logger.x" else []), f"+{group}.note={text}"]
    before = os.environ.get(variable)
    os.environ[variable] = secret
    try:
        return shown(drills, secret, words)
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def shown(drills: Drills, secret: str, words: list[str]) -> tuple[str, str]:
    """WRONG if a file of the run, or what it printed, contains the secret."""
    name = " ".join(words).replace(secret, "<secret>")
    try:
        ended = drills.run(*words)
    except UsageError as error:
        return ("WRONG" if secret in str(error) else "exact"), f"{name}: refused: {error}"
    if ended.state == "stuck":
        return "STUCK", f"{name}: {ended.detail}"
    files = [path for path in drills.workspace.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    said = [text for text in (drills.printed, ended.detail) if secret in text]
    if files or said:
        return "WRONG", f"{name}: shown in {[path.name for path in files] or 'a message'} ({ended.state})"
    return "exact", f"{name}: {ended.state}"


def snapshot_of_a_folder(drills: Drills) -> tuple[str, str]:
    """New files with keys are in no snapshot; a new model is."""
    root = drills.workspace / "clone"
    (root / "models").mkdir(parents=True)
    (root / "run.py").write_text("1", encoding="utf-8")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", *identity, "-C", str(root), *words], check=True, capture_output=True)
    private = drills.dice.choice(PRIVATE_FILES)
    name = str(Path(drills.dice.choice(("", "models", "conf/site", "harness", "notes")), private))
    for path, text in ((root / name, invented(drills)), (root / "models" / "mine.py", "x = 1")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with redirect_stderr(io.StringIO()) as said:
        taken = snapshot.take(drills.workspace / "code", root)
    if not (taken / "models" / "mine.py").is_file():
        return "LOST", f"{name}: the snapshot lacks the new model"
    if (taken / name).exists() or private not in said.getvalue():
        return "WRONG", f"{name} was copied, or left out without a word"
    return "exact", f"{name}: left out"
