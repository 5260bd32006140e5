"""A user's nn.Module as a model, from Python and on the command line."""

import sys

import pytest

import longhaul
from harness.commands.verify import verify_model
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.config.sweep import expand_all
from longhaul.api import commands_of

SOURCE = """
import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, dim, scale=1.0):
        super().__init__()
        self.linear, self.scale = nn.Linear(dim, dim), scale

    def forward(self, x):
        return self.scale * self.linear(x.mean(1, keepdim=True).expand_as(x))


class InPlace(Mixer):
    def forward(self, x):
        return self.linear(x.mul_(2))


class Double(Mixer):
    def forward(self, x):
        return self.linear(x).double()


class Forgets(Mixer):
    @torch.no_grad()
    def forward(self, x):
        return self.linear(x)


class Exits(Mixer):
    def forward(self, x):
        raise SystemExit(3)


class Centered(Mixer):
    def forward(self, x):
        return self.linear(x - x.mean(0))


class Ends(Mixer):
    def forward(self, x):
        raise ValueError("not today")
"""
TYPED = ["model=module", "model.module._target_=plain_package.Mixer", "model.name=mixer"]
TRUST = "trusted_packages=[plain_package]"


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "plain_package.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "plain_package.py"
    sys.modules.pop("plain_package", None)


def cells(model, **settings):
    return expand_all(commands_of((), {"model": model, "task": "lra/listops", "budget": "smoke"} | settings)).cells


def test_both_ways_are_the_same_cell(package):
    from plain_package import Mixer

    ((by_class,), (typed,)) = (
        cells(longhaul.attention(Mixer, scale=2.0)),
        expand_all(
            commands_of([*TYPED, TRUST, "+model.module.scale=2.0"], {"task": "lra/listops", "budget": "smoke"})
        ).cells,
    )
    assert by_class.cell == typed.cell and by_class.cell.model == "mixer"
    assert by_class.cell.config["model"]["module"]["_target_"] == "plain_package.Mixer"


def test_another_source_or_argument_is_another_cell(package, monkeypatch):
    from plain_package import Mixer

    from harness.config import source_code

    def id_now(**arguments):
        for cached in (source_code.source_digest, source_code.tree_of, source_code.shape_of):
            cached.cache_clear()
        (planned,) = cells(longhaul.attention(Mixer, **arguments))
        return planned.cell.id

    first = id_now()
    package.write_text(SOURCE + "# a remark\n")
    assert id_now() == first
    package.write_text(SOURCE.replace("x.mean", "2 * x.mean"))
    assert id_now() != first and id_now(scale=2.0) != id_now()


def test_a_run_leaves_a_record_and_the_matrix_has_a_row(package, tmp_path):
    from plain_package import Mixer

    places = {f"paths.{name}": tmp_path / name for name in ("data", "outputs", "records")}
    model = longhaul.attention(Mixer)
    ran = longhaul.run(model=model, task="lra/listops", budget="smoke", trainer="cpu", **places)
    assert ran["status"].tolist() == ["done"] and ran["model"].tolist() == ["mixer"]
    cfg = compose([*TYPED, TRUST])
    assert verify_model(cfg, cfg.model).patterns == ["ok", "-", "-", "-"]


def test_a_leaking_class_is_refused_before_data_are_read(package):
    from plain_package import Mixer

    leaking = longhaul.attention(Mixer, causal=True)
    with pytest.raises(longhaul.UsageError, match="Mixer sees later tokens"):
        longhaul.run(model=leaking, task="probe/recall", budget="smoke")
    cfg = compose([*TYPED, TRUST, "model.causal=true"])
    row = verify_model(cfg, cfg.model)
    assert row.patterns == ["ok", "-", "-", "-"]
    assert len(row.faults) == 1 and row.faults[0].startswith("causal_self: ") and "sees later tokens" in row.faults[0]


@pytest.mark.parametrize(("name", "message"), [
    ("InPlace", "InPlace changes its input in place"),
    ("Double", "returns torch.float64 for torch.float32"),
    ("Forgets", "passes no gradient to its parameters"),
    ("Centered", "Centered mixes the examples of a batch"),
    ("Exits", "SystemExit: 3"),
    ("Ends", "ValueError: not today"),
])  # fmt: skip
def test_a_module_that_cannot_be_trained_is_refused_without_other_models(package, name, message):
    from harness.config.build import build_or_refuse

    typed = ["model=module", f"model.module._target_=plain_package.{name}", TRUST, "task=lra/listops", "budget=smoke"]
    with pytest.raises(longhaul.UsageError, match=message) as error:
        build_or_refuse(compose(typed))
    assert "these would fit" not in str(error.value)


def test_a_misspelt_class_of_a_module_is_named_beside_the_closest_one(package):
    from harness.config.build import build_or_refuse

    typed = ["model=module", "model.module._target_=plain_package.Mixxer", TRUST, "task=lra/listops", "budget=smoke"]
    with pytest.raises(longhaul.UsageError, match="plain_package has no Mixxer: did you mean 'Mixer'"):
        build_or_refuse(compose(typed))


def test_a_module_that_ends_the_program_when_imported_is_one_line(package):
    from harness.config.build import build_or_refuse

    package.write_text("raise SystemExit('bye')\n")
    with pytest.raises(longhaul.UsageError, match=r"ends the program: exit\('bye'\)"):
        build_or_refuse(compose([*TYPED, TRUST, "task=lra/listops", "budget=smoke"]))


@pytest.mark.parametrize(("model", "message"), [
    ("not a class", "a class is expected"),
    (dict, "no torch.nn.Module"),
    (type("Local", (), {"__module__": "__main__", "forward": print}), "cannot be imported: put it into a file"),
])  # fmt: skip
def test_what_is_no_class_of_a_file_is_one_line(model, message):
    with pytest.raises(longhaul.UsageError, match=message) as error:
        longhaul.attention(model)
    assert "\n" not in str(error.value)


def test_a_list_of_own_classes_is_refused(package):
    from plain_package import Mixer

    with pytest.raises(longhaul.UsageError, match="not in a list"):
        longhaul.plan(model=[longhaul.attention(Mixer), "vanilla"], task="lra/listops")


def test_a_package_that_is_not_named_is_not_imported(package):
    with pytest.raises(longhaul.UsageError, match=r"type trusted_packages=\[plain_package\]"):
        from harness.config.build import build_or_refuse

        build_or_refuse(compose(TYPED))
    assert "plain_package" not in sys.modules


@pytest.mark.parametrize("words", [
    ["model.module=plain_package.Mixer"],
    ["model.module=5"],
    [*TYPED[1:2], "model.declares.identity_by_source=[name]"],
    [*TYPED[1:2], "model.declares.identity_by_source=[missing]"],
])  # fmt: skip
def test_a_text_in_the_place_of_a_class_is_one_line(package, words):
    from harness.config.build import build_or_refuse
    from harness.config.source_code import code_of

    cfg = compose(["model=module", "model.name=mixer", *words])
    assert cell_of(cfg).id
    code_of(cfg)
    with pytest.raises(longhaul.UsageError, match=r"model\.module: "):
        build_or_refuse(cfg)
    assert "plain_package" not in sys.modules
