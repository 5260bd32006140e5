"""`import longhaul` equals the commands; a wheel works without the clone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard

import longhaul
from harness.commands import plan as plan_command
from harness.config.compose import compose
from harness.config.sweep import Command
from harness.training.checkpoints import saved_model
from tests.helpers.tasks import refused

ROOT = Path(__file__).resolve().parents[1]
CELL = {"task": "lra/listops", "budget": "smoke", "trainer": "cpu", "resources.cpus": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("door")


@pytest.fixture(scope="module")
def places(folder):
    return {f"paths.{name}": folder / name for name in ("data", "outputs", "records")}


@pytest.fixture(scope="module")
def ran(places):
    return longhaul.run(model=["no_mixing", "vanilla"], seed=[1, 2], **CELL, **places)


def test_run_is_the_command_and_gives_its_records(ran, places):
    assert list(zip(ran["model"], ran["seed"], ran["status"], strict=True)) == [
        ("no_mixing", 1, "done"), ("no_mixing", 2, "done"), ("vanilla", 1, "done"), ("vanilla", 2, "done")
    ]  # fmt: skip
    typed = [f"{key}={value}" for key, value in (CELL | places).items()]
    rows = plan_command.plan_rows([Command(compose(["model=vanilla", "seed=2", *typed]))])
    assert (rows[0].cell.id, rows[0].state) == (ran["id"][3], "done")


def test_what_is_done_is_not_run_again(ran, places, capsys):
    again = longhaul.run("model=vanilla", seed=2, **CELL, **places)
    assert again["finished"][0] == ran["finished"][3] and "already done" in capsys.readouterr().out


def test_plan_and_records(ran, places):
    planned = longhaul.plan(model="vanilla", seed=[2, 3], **CELL, **places)
    assert planned["state"].tolist() == ["done", "missing"]
    assert planned["seconds"].isna().tolist() == [True, False] and planned["seconds"][1] < 600
    assert len(longhaul.records(places["paths.records"])) == 4
    assert longhaul.records(places["paths.records"], model="vanilla", seed=[1, 5])["id"].tolist() == [ran["id"][2]]


def test_load_gives_the_model_that_was_tested(ran, places):
    trained = longhaul.load(ran["id"][2], **places)
    trained.task.load()
    split = trained.task.split("test")
    batch = split.batch(range(len(split)))
    with torch.no_grad():
        right = trained.model(batch["tokens"]).argmax(1) == batch["label"]
    assert not trained.model.training
    assert 100 * right.double().mean().item() == pytest.approx(ran["score"][2])


def test_an_exported_model_is_the_same_one_and_names_no_place(ran, places, folder):
    pytest.importorskip("safetensors")
    exported = longhaul.export(ran["id"][2], folder / "exported", **places)
    texts = [(exported / name).read_text() for name in (saved_model.CONFIG, saved_model.RECORD, saved_model.CARD)]
    assert not any(str(folder) in text for text in texts)
    first, second = longhaul.load(ran["id"][2], **places).model, longhaul.load(exported, **places).model
    tokens = torch.randint(1, 15, (3, 40))
    assert torch.equal(first(tokens), second(tokens))
    card = ModelCard.load(exported / saved_model.CARD).data
    scores = {result.metric_type: result.metric_value for result in card.eval_results}
    assert card.library_name == "longhaul" and scores["acc"] == ran["score"][2]


@pytest.mark.parametrize(("file", "old", "new", "message"), [
    ("config.json", '"_target_": "models.', '"_target_": "os.', "may not be built"),
    ("config.json", '"dim": 32', '"dim": 16', "do not fit"),
    ("record.json", '"status"', '"state"', "no exported model"),
    ("model.safetensors", None, b"not a tensor", "no exported model"),
])  # fmt: skip
def test_a_folder_that_is_no_exported_model_is_one_line(ran, places, tmp_path, file, old, new, message):
    pytest.importorskip("safetensors")
    exported = longhaul.export(ran["id"][2], tmp_path / "exported", **places)
    path = exported / file
    path.write_bytes(new if old is None else path.read_bytes().replace(old.encode(), new.encode()))
    with refused(kind=longhaul.UsageError, match=message):
        longhaul.load(exported, **places)


@pytest.fixture(scope="module")
def exported(ran, places, folder):
    pytest.importorskip("safetensors")
    return longhaul.export(ran["id"][2], folder / "shared", **places)


PAYLOADS = ("<script>alert(1)</script>", "[x](javascript:alert(1))", "a | b `c` *d*")


def test_the_card_of_an_exported_model_holds_text_alone(exported, places):
    entries = longhaul.load(exported, **places).record
    for text in PAYLOADS:
        hostile = entries | {
            "data": entries["data"] | {"source": f"slice:{text}", "fingerprint": text},
            "git": entries["git"] | {"sha": text},
            "changed": {f"model.{text}": [text, text]},
        }
        hostile["metrics"] = {"best": {"test": {text: 1.0, "n": 1, "acc": 1.0}, "step": 1}, "last": None}
        page = saved_model.card(hostile)
        assert "<script>" not in page and " | b " not in page and not re.search(r"(?<!\\)\]\(javascript", page)


def test_weights_of_another_run_are_refused(ran, places):
    folders = [path.parent.parent for path in Path(places["paths.outputs"]).rglob("best.pt")]
    first_run, second_run = (next(folder for folder in folders if f"vanilla-s{seed}" in folder.name) for seed in (1, 2))
    checkpoint, weights = second_run / "checkpoints" / "best.pt", (first_run / "checkpoints" / "best.pt").read_bytes()
    kept = checkpoint.read_bytes()
    checkpoint.write_bytes(weights)
    with pytest.raises(longhaul.UsageError, match="belongs to another cell"):
        longhaul.load(ran["id"][3], **places)
    checkpoint.unlink()
    with pytest.raises(longhaul.UsageError, match="rerun=all trains them again"):
        longhaul.load(ran["id"][3], **places)
    checkpoint.write_bytes(kept)


def test_a_row_of_the_records_names_a_cell(ran, places, folder):
    comparison = longhaul.compare(ran.iloc[0], ran.iloc[[2]], root=places["paths.records"])
    assert (comparison.a.id, comparison.b.id) == (ran["id"][0], ran["id"][2])
    assert longhaul.load(ran.iloc[2], **places).record["cell"]["id"] == ran["id"][2]
    for wrong in (None, 5, ran, ran[["model", "score"]].iloc[0]):
        with pytest.raises(longhaul.UsageError, match="a row of longhaul"):
            longhaul.load(wrong, **places)


def test_a_comparison_is_paired_and_shown_as_tables(ran, places):
    comparison = longhaul.compare(ran["id"][0], ran["id"][2], root=places["paths.records"])
    (acc,) = (difference for difference in comparison.differences if difference.metric == "acc")
    assert acc.difference == pytest.approx(ran["score"][0] - ran["score"][2]) and acc.n == 96
    shown = comparison._repr_markdown_()
    assert "| model.name | no_mixing | vanilla |" in shown and "- a: no_mixing" in shown and "| acc ↑ |" in shown
    shown = comparison.frame.set_index("score").loc["acc"]
    assert shown["difference"] == pytest.approx(acc.difference) and len(repr(comparison)) < 200


def test_records_as_csv_are_one_value_per_cell(ran, places, folder):
    cells = longhaul.records(places["paths.records"], task="lra/listops")
    cells.to_csv(folder / "records.csv", index=False)
    read = pd.read_csv(folder / "records.csv").set_index("id").loc[ran["id"]]
    assert read["score"].tolist() == pytest.approx(ran["score"].tolist()) and {"config", "baselines"} <= set(cells)
    assert not {"config", "baselines", "tested", "evaluations"} & set(read) and "config" not in cells._repr_html_()


def test_verbs_are_functions_that_give_data(ran, places):
    runs = longhaul.status(**places)
    assert runs["state"].tolist() == ["done"] * 4 and len(longhaul.status(model="vanilla", **places)) == 2
    drawn = longhaul.curves(model="vanilla", **places)
    assert set(drawn.frame["seed"]) == {1, 2} and drawn.frame["step"].max() == 12 and drawn.png.startswith(b"\x89PNG")
    scores = longhaul.predictions(model="vanilla", seed=2, **places)
    tested = scores[scores["evaluation"] == "test"]
    assert 100 * tested["acc"].mean() == pytest.approx(ran["score"][3], abs=1e-3)
    assert longhaul.check(places["paths.records"], **{"paths.outputs": places["paths.outputs"]}).empty


def test_check_names_file_and_rule(ran, places, tmp_path):
    shutil.copytree(places["paths.records"], tmp_path / "records")
    (record,) = (tmp_path / "records").rglob(f"vanilla-s2-{ran['id'][3][:8]}.json")
    record.write_text(record.read_text().replace('"seed": 2', '"seed": 3'))
    problems = longhaul.check(tmp_path / "records", **{"paths.outputs": tmp_path / "outputs"})
    assert set(problems["file"]) == {record} and problems["problem"].str.len().min() > 0


def test_verify_and_bench_measure():
    row = longhaul.verify(model="local").iloc[0]
    assert (row["model"], row["causal_self"], row["faults"]) == ("local", "ok", ())
    points = longhaul.bench(model=["no_mixing"], lengths=[32, 64], what="forward", **{"bench.rounds": 1})
    assert {"no_mixing", "vanilla"} == set(points["model"]) and set(points["length"]) == {32, 64}
    assert points["ms"].min() > 0


@pytest.mark.slow
def test_a_wheel_runs_without_the_clone(tmp_path):
    """The wheel uses this environment's dependencies and imports nothing from the clone."""
    programs, places = Path(sys.executable).parent, tmp_path / "work"
    uv = programs / "uv"
    if not uv.exists():
        pytest.skip("make setup installs uv")
    subprocess.run([uv, "build", "--wheel", "-q", "-o", tmp_path / "dist", ROOT], check=True)
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, tmp_path / "venv"], check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([uv, "pip", "install", "-q", "--no-deps", "--python", python, wheel], check=True)
    (site_packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site_packages / "others.pth").write_text(os.fspath(Path(torch.__file__).parents[1]))
    places.mkdir()

    def printed(*words):
        done = subprocess.run(
            [python.parent / "longhaul", *words], cwd=places, capture_output=True, text=True, timeout=200,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "done: no_mixing" in printed("model=no_mixing", "task=lra/listops", "budget=smoke")
    assert len(list((places / "results" / "records").rglob("*.json"))) == 1
    assert "lavo/t11.md" in printed("do=report", "table=lavo/t11")
    assert printed("--version") == f"longhaul {longhaul.__version__}\n"
    program = "import harness, longhaul; print(harness.__file__, longhaul.__file__)"
    program += "; print(longhaul.load('demo/lavo').predict('[MAX 2 [MIN 4 7 ] 9 ]')[0]['class'])"
    said = subprocess.run([python, "-c", program], cwd=places, capture_output=True, text=True, check=True).stdout
    *paths, predicted = said.split()
    assert predicted == "9" and all(path.startswith(str(site_packages)) for path in paths)
