"""Secrets are masked wherever a run writes or prints; names that only resemble a secret's are not."""

import os
import stat

import pytest
import yaml

from harness import masking
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.places import CONF
from harness.errors import UsageError, one_line
from harness.launch import serialized_cell
from harness.masking import MASK, is_secret, kind_of, masked, masked_override
from harness.progress import Progress
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

SECRET = "hunter2-and-more-of-it"
CELL = ["model=latte", "task=lra/text", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


@pytest.fixture(autouse=True)
def _own_notes(monkeypatch):
    monkeypatch.setattr(masking, "_noted", set())


SECRETS = [
    *("token", "hf_token", "HF_TOKEN", "access_token", "auth-token", "secret", "client_secret", "secret_value"),
    *("password", "db.password", "passphrase", "api_key", "apikey", "wandbApiKey", "aws_secret_access_key"),
    *("credentials", "private_key", "pwd"),
]
NO_SECRETS = [
    *("tokens", "token_dim", "tokenizer", "batch_tokens", "pad_token", "per_token", "token_loss", "1 token"),
    *("key", "sort_key", "secretary", "passes", "single_pass", "author", "keyword"),
]


def test_names_of_secrets_and_names_that_resemble_them():
    assert [name for name in SECRETS if not (is_secret(name, SECRET) and kind_of(name))] == []
    assert [name for name in NO_SECRETS if is_secret(name, SECRET)] == []
    counts_and_flags = (("token", 5), ("token", "5"), ("token", None), ("password", None), ("password", False))
    assert not any(is_secret(*pair) for pair in counts_and_flags)
    assert is_secret("password", 1234) and is_secret("credentials", {"user": "a"})


def test_nothing_in_a_committed_configuration_is_masked():
    """So no cell's id changes."""

    def secrets_in(node, path):
        if isinstance(node, dict):
            for key, value in node.items():
                yield from [f"{path}.{key}"] if is_secret(key, value) else secrets_in(value, f"{path}.{key}")
        elif isinstance(node, list):
            for value in node:
                yield from secrets_in(value, path)
        elif isinstance(node, str) and masked(node) != node:
            yield f"{path}: {node}"

    files = sorted(CONF.rglob("*.yaml"))
    assert len(files) > 200
    for file in files:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        assert "local" in file.parts or not list(secrets_in(content, file.name))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot reach http://me:pw@host:80/x", "cannot reach http://***@host:80/x"),
        ("+model.api_key=abc123, more", "+model.api_key=***, more"),
        ("{'api_key': 'abc123', 'layers': 2}", "{'api_key': '***', 'layers': 2}"),
        ('"password": "abc"', '"password": "***"'),
        ("unexpected token: abc", "unexpected token: abc"),
        ("no task 'secret': did you mean", "no task 'secret': did you mean"),
        ("no key 'api_key': there is: abc", "no key 'api_key': there is: abc"),
        ("tokens=512 token_dim=3 pad_token=<p> token=12", "tokens=512 token_dim=3 pad_token=<p> token=12"),
        ("train.lr=0.1 · http://host/a", "train.lr=0.1 · http://host/a"),
    ],
)
def test_texts(text, expected):
    assert masked(text) == one_line(text) == expected


def test_a_text_of_many_letters_takes_no_time():
    masked("a" * 2**20 + " = :" + "@/" * 2**18)  # minutes if the time grew with the square of the length


def test_a_short_secret_is_masked_as_a_whole_word():
    masking.note("abcd", "password")
    masking.note("abcd1234")
    masking.note("root")  # of an ordinary variable: it cannot be told from other text
    assert masked("abcd and abcdef and xabcd1234x as root") == f"{MASK} and abcdef and x{MASK}x as root"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("logger.wandb.api_key=abc", "logger.wandb.api_key=***"),
        ("+trainer.token=abc", "+trainer.token=***"),
        ("logger.mlflow.tracking_uri=http://me:pw@host", "logger.mlflow.tracking_uri=http://***@host"),
        ("+model.key=${oc.env:HF_TOKEN}", "+model.key=${oc.env:HF_TOKEN}"),
        ("+model.api_key=${oc.env:HF_TOKEN}", "+model.api_key=${oc.env:HF_TOKEN}"),
        ("task.tokens=512", "task.tokens=512"),
        ("model=latte", "model=latte"),
    ],
)
def test_overrides(override, expected):
    assert masked_override(override) == expected


def test_progress_lines_and_logs(capsys):
    lines = []
    masking.note(SECRET)
    with Progress(lines.append) as progress:
        progress.say(f"the server said {SECRET}")
    assert lines == ["the server said ***"] == capsys.readouterr().err.splitlines()


def files_with(text, folder):
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_no_file_of_a_run_shows_a_secret(tmp_path, places, capfd, monkeypatch):
    """In keys that are named so, in addresses, from the environment; in a record, a log, saved overrides."""
    monkeypatch.setenv("PLAIN_NAME", SECRET)
    typed = [
        "+logger.x._target_=lightning.pytorch.loggers.MLFlowLogger",
        *("+logger.x.run_name=${oc.env:PLAIN_NAME}", f"+logger.x.tracking_uri=http://me:{SECRET}@localhost:9"),
        f"+trainer.api_key={SECRET}-2",
    ]
    cfg = compose([*CELL, *places, *typed[:-1]])
    result = run_cell(request_of(cfg, [*CELL, *typed]))
    assert result.state == "done", result
    (run_folder,) = (tmp_path / "outputs").rglob(".hydra")
    saved = yaml.safe_load((run_folder / "overrides.yaml").read_text())
    assert "+trainer.api_key=***" in saved and "+logger.x.run_name=${oc.env:PLAIN_NAME}" in saved
    assert not files_with(SECRET, tmp_path / "outputs") and not files_with(SECRET, tmp_path / "records")
    assert SECRET not in "".join(capfd.readouterr()) + result.detail


def test_a_failed_run_shows_no_secret(tmp_path, places, capfd, monkeypatch):
    from harness.training.attempt import Attempt

    def fail(self, progress):
        raise RuntimeError(f"401 for token={SECRET} and {os.environ['SOME_API_KEY']}")

    monkeypatch.setenv("SOME_API_KEY", f"{SECRET}-3")
    monkeypatch.setattr(Attempt, "run", fail)
    result = run_cell(request_of(compose([*CELL, *places])))
    assert result.state == "failed" and "401 for token=***" in result.detail
    assert SECRET not in result.detail + "".join(capfd.readouterr())
    assert not files_with(SECRET, tmp_path)


def test_a_secret_of_the_identity_is_masked_before_the_id_is_computed(places):
    first, second = (cell_of(compose([*CELL, *places, f"+model.api_key={key}"])) for key in ("abc", "def"))
    assert first.id == second.id and first.config["model"]["api_key"] == MASK
    assert cell_of(compose([*CELL, *places])).id != first.id


def test_an_identity_that_contains_a_value_of_the_environment_is_refused(places, monkeypatch):
    monkeypatch.setenv("PLAIN_NAME", SECRET)
    with pytest.raises(UsageError, match=r"model\.note contains the value of an environment variable"):
        cell_of(compose([*CELL, *places, "+model.note=x-${oc.env:PLAIN_NAME}"]))
    with pytest.raises(UsageError, match=r"train\.optimizer\.note contains"):
        cell_of(compose([*CELL, *places, "+n=${oc.env:PLAIN_NAME}", "+train.optimizer.note=${n}"]))


def test_paths_may_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SCRATCH_FOLDER", str(tmp_path))
    folders = [f"paths.{name}=${{oc.env:SCRATCH_FOLDER}}/{name}" for name in ("outputs", "records", "data")]
    assert cell_of(compose([*CELL, *folders])).id == cell_of(compose(CELL)).id
    assert compose(["+x=${oc.env:NOT_THERE,seven}"]).x == "seven"


def test_a_job_file_is_private_and_its_worker_knows_the_secrets(tmp_path, places, monkeypatch):
    monkeypatch.setenv("PLAIN_NAME", SECRET)
    typed = ["+logger.x._target_=lightning.pytorch.loggers.CSVLogger", "+logger.x.name=${oc.env:PLAIN_NAME}"]
    written = serialized_cell.write(tmp_path / "0000.yaml", request_of(compose([*CELL, *places, *typed])))
    assert stat.S_IMODE((tmp_path / "0000.yaml").stat().st_mode) == 0o600
    monkeypatch.setattr(masking, "_noted", set())
    monkeypatch.delenv("PLAIN_NAME")
    request = serialized_cell.read(*written)
    assert request.cfg.logger.x.name == SECRET and masked(f"<{SECRET}>") == "<***>"
