"""do=compare: which cells it selects, their settings, and differences against hand computation."""

import math

import pytest

from harness.commands import cli
from harness.commands.rewrite import rewrite
from harness.config.compose import compose
from harness.errors import UsageError
from harness.records import checks, evidence
from harness.report.scores import compare_cells as module
from harness.report.scores.compare_cells import UNSET, block_of, compare_cells
from tests.helpers.saved_cells import run_folder, save

A, B = (1, 1, 1, 0), (0, 1, 0, 0)
T3, T2 = 3.182446305284263, 4.302652729911275  # quantile 0.975 of Student's t with 3 and 2 degrees of freedom


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """No recipe is composed for these records, although they name one."""
    monkeypatch.setitem(evidence.RULES, "recipe", lambda file, entries: ())


def id_of(entries):
    return entries["cell"]["id"]


@pytest.fixture
def two(tmp_path):
    """Two cells of four test examples, which differ in their model and one setting."""
    a = save(tmp_path, A, "lavo", settings={"window": 8, "norm": None})
    return a, save(tmp_path, B, "vanilla", settings={"window": True})


def test_the_difference_over_examples_by_hand(two, tmp_path):
    comparison = compare_cells(*map(id_of, two), tmp_path)
    (difference,) = comparison.differences
    # 100, 0, 100, 0: mean 50, standard deviation sqrt(4 x 50^2 / 3)
    assert (difference.evaluation, difference.metric, difference.n) == ("test", "acc", 4)
    assert (difference.a, difference.b, difference.difference) == (75, 25, 50)
    assert difference.half_width == pytest.approx(T3 * math.sqrt(4 * 50**2 / 3) / 2)
    back = compare_cells(*map(id_of, reversed(two)), tmp_path).differences[0]
    assert (back.difference, back.half_width) == (-50, difference.half_width)


def test_settings_that_differ(two, tmp_path):
    assert dict(compare_cells(*map(id_of, two), tmp_path).settings) == {
        "model.name": ("lavo", "vanilla"), "model.norm": (None, UNSET), "model.window": (8, True),
    }  # fmt: skip
    assert module.differing({"x": {"y": 1, "z": [1]}}, {"x": {"y": True, "z": [1]}}) == {"x.y": (1, True)}


def test_the_difference_over_seeds_by_hand(tmp_path):
    """Without scores of examples: 1, 2, 3 of three seeds are 2 +- t_2 / sqrt(3)."""
    scores = {"lavo": (60, 62, 64, 99), "vanilla": (59, 60, 61)}
    cells = {
        (model, seed): save(tmp_path, [1] * right + [0] * (100 - right), model, seed, keep=False)
        for model, of_seeds in scores.items()
        for seed, right in enumerate(of_seeds, 1)
    }
    comparison = compare_cells(id_of(cells["lavo", 3]), id_of(cells["vanilla", 2]), tmp_path)
    (difference,) = comparison.differences
    assert difference.difference == 4 and difference.half_width is None and "a and b" in difference.why
    assert difference.seeds.difference == pytest.approx(2) and difference.seeds.seeds == 3
    assert difference.seeds.half_width == pytest.approx(T2 / math.sqrt(3))
    assert difference.seeds.p == pytest.approx(1 - math.sqrt(12 / 14))  # t = 2 sqrt(3), 2 degrees of freedom
    assert difference.seeds.pairing == "seed" and comparison.no_seeds == ""


def test_seeds_are_paired_by_example_where_scores_were_kept(tmp_path):
    a = [save(tmp_path, right, "lavo", seed) for seed, right in enumerate([A, A, (1, 1, 1, 1)], 1)]
    b = [save(tmp_path, right, "vanilla", seed) for seed, right in enumerate([B, (0, 0, 0, 0), B], 1)]
    (difference,) = compare_cells(id_of(a[0]), id_of(b[0]), tmp_path).differences
    assert difference.seeds.pairing == "seed and example"
    assert difference.seeds.difference == pytest.approx((50 + 75 + 75) / 3)


def test_seeds_that_are_no_pairs_are_left_out(tmp_path):
    """Seeds that are too few, failed, or differ in code, data or starting weights."""
    a = [save(tmp_path, A, "lavo", seed, code_sha256="aa") for seed in (1, 2, 3)]
    b = [save(tmp_path, B, "vanilla", seed, code_sha256="bb") for seed in (1, 2)]
    other_data = a[0]["data"] | {"fingerprint": "beef"}
    for seed, changes in enumerate([{"code_sha256": "cc"}, {"data": other_data}, {"status": "nan"}], 3):
        at = {"started": "2025-01-01T00:00:00+00:00", "finished": "2025-01-01T02:00:00+00:00"}
        save(tmp_path, B, "vanilla", seed, **{"code_sha256": "bb"} | changes | at)
    comparison = compare_cells(id_of(a[0]), id_of(b[0]), tmp_path)
    assert comparison.differences[0].seeds is None
    assert "seeds 1, 2, 3 of a and seeds 1, 2 of b" in comparison.no_seeds
    save(tmp_path, B, "vanilla", 6, code_sha256="bb")
    save(tmp_path, A, "lavo", 6, code_sha256="aa")
    assert compare_cells(id_of(a[0]), id_of(b[0]), tmp_path).differences[0].seeds.seeds == 3
    same = compare_cells(id_of(a[0]), id_of(a[1]), tmp_path)
    assert same.no_seeds == "the two differ in nothing but the seed" and same.differences[0].half_width == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task": "lra/image"}, "the tasks differ: lra/text and lra/image"),
        ({"data": {"source": "full", "fingerprint": "beef", "sizes": {}}}, "fingerprints f00d and beef"),
        ({"status": "oom"}, "ended as oom: without a score"),
        ({"score": "mse"}, "no metric of the test in common"),
    ],
    ids=["task", "data", "failed", "metric"],
)
def test_what_cannot_be_compared_is_not(tmp_path, changes, reason):
    a = save(tmp_path, A, "lavo")
    entries = save(tmp_path, B, **changes)
    comparison = compare_cells(id_of(a), id_of(entries), tmp_path)
    assert comparison.differences == () and reason in comparison.reason
    assert comparison.settings["model.name"] == ("lavo", "vanilla")


def test_different_numbers_of_examples_have_no_interval(tmp_path):
    a, b = save(tmp_path, A, "lavo"), save(tmp_path, (*B, 1), "vanilla")
    (difference,) = compare_cells(id_of(a), id_of(b), tmp_path).differences
    assert (difference.half_width, difference.seeds, difference.why) == (None, None, "4 and 5 examples were scored")


def test_neighbours_that_are_nearly_equal_count_once(tmp_path, monkeypatch):
    """Eight examples in blocks of two are the four examples."""
    assert (block_of("lra/listops"), block_of("forecasting/etth1"), block_of("lm/pg19")) == (1, 96, 16)
    twice = [[score for score in right for _ in range(2)] for right in (A, B)]
    cells = [save(tmp_path, right, model) for right, model in zip(twice, ("lavo", "vanilla"), strict=True)]
    monkeypatch.setattr(module, "block_of", lambda task: 2)
    (difference,) = compare_cells(*map(id_of, cells), tmp_path).differences
    assert difference.n == 4 and difference.half_width == pytest.approx(T3 * math.sqrt(4 * 50**2 / 3) / 2)


def test_further_evaluations_are_compared_and_baselines_are_not(tmp_path):
    more = {"length_2x": {"ppl": [2.0, 4.0, 6.0]}, "baseline/unigram": {"ppl": [9.0, 9.0, 9.0]}}
    a = save(tmp_path, A, "lavo", more=more)
    b = save(tmp_path, B, "vanilla", more=more | {"length_2x": {"ppl": [1.0, 1.0, 1.0]}, "length_4x": {"ppl": [1.0]}})
    comparison = compare_cells(id_of(a), id_of(b), tmp_path)
    differences = {(difference.evaluation, difference.metric): difference for difference in comparison.differences}
    assert list(differences) == [("test", "acc"), ("length_2x", "ppl")]
    difference = differences["length_2x", "ppl"]  # differences 1, 3, 5: mean 3, standard deviation 2
    assert difference.difference == 3 and difference.half_width == pytest.approx(T2 * 2 / math.sqrt(3))


def test_a_cell_has_several_names(two, tmp_path):
    a, b = two
    folder = run_folder(tmp_path / "elsewhere", a, [])
    outside = save(tmp_path / "copy", B, "latte")
    for name in (id_of(a)[:6], f"{folder}/", a["file"].with_suffix("").relative_to(tmp_path)):
        assert compare_cells(name, id_of(b), tmp_path).a.id == id_of(a)
    assert compare_cells(id_of(a), outside["file"], tmp_path).b.id == id_of(outside), "a record outside the folder"


def test_a_name_without_a_cell_is_an_error_in_one_line(two, tmp_path, monkeypatch):
    a, b = map(id_of, two)
    for name, says in {a[:5]: "is no cell", "0" * 12: "no record of 000000000000 below"}.items():
        with pytest.raises(UsageError, match=says) as error:
            compare_cells(name, b, tmp_path)
        assert "\n" not in str(error.value) and "do=status" in str(error.value)
    with pytest.raises(UsageError, match="are the same record"):
        compare_cells(a, two[0]["file"], tmp_path)
    monkeypatch.setattr(checks, "RULES", ())  # the rules would refuse an id that is made up to begin like the other
    text = two[0]["file"].read_text(encoding="utf-8").replace(a, a[:15] + ("0" if a[15] != "0" else "1"))
    (tmp_path / "near.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=f"{a[:8]} fits 2 cells: {a[:15]}"):
        compare_cells(a[:8], b, tmp_path)


@pytest.mark.parametrize(
    "typed",
    [["do=compare", "cells=1e123456,runs/a-12345678"], ["1e123456", "do=compare", "runs/a-12345678"]],
)  # fmt: skip
def test_two_words_are_cells_and_digits_stay_text(typed):
    assert list(compose(rewrite(typed)).cells) == ["1e123456", "runs/a-12345678"]


def dispatch(typed):
    typed = rewrite(typed)
    return cli.dispatch(compose(typed), typed)


def test_the_verb_prints_a_page_and_draws_curves(tmp_path, places, capsys):
    a, b = (save(tmp_path / "records", right, model) for right, model in ((A, "lavo"), (B, "vanilla")))
    run_folder(tmp_path / "outputs" / "cells", a, [(1, 2.0, {"acc": 10.0}), (2, 1.0, {"acc": 20.0})])
    assert dispatch(["do=compare", id_of(a)[:8], id_of(b)[:8], *places]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert ["model.name", "lavo", "vanilla"] in lines
    assert ["acc", "↑", "75.00", "25.00", "+50.00", "±", "91.87"] in lines
    drawn = tmp_path / "outputs" / "curves" / f"{id_of(a)[:8]}-{id_of(b)[:8]}.png"
    assert str(drawn) in shown and drawn.is_file()
    assert "No curve of b: " in shown and "No curve of a: " not in shown


@pytest.mark.parametrize(
    ("typed", "says"),
    [([], "takes two cells"), (["a", "b", "c"], "takes two cells"), (["cells=a,b", "model=lavo"], "not read model=")],
)  # fmt: skip
def test_wrong_commands_are_one_line(typed, says, tmp_path, places, capsys):
    assert dispatch(["do=compare", *typed, *places]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and says in error
    assert list(tmp_path.iterdir()) == []


def test_the_value_of_a_flag_is_no_cell():
    typed = rewrite(["--config-dir", "mine", "do=compare", "/a", "/b", "-cd", "more"])
    assert typed == ["--config-dir", "mine", "-cd", "more", "do=compare", "cells=[/a,/b]"]
