"""Numbers of published tables that nobody trains: parameters counted from recipes, and formulas of query-key pairs."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers.synthetic import record as made

from harness.config.places import CONF, ROOT
from harness.records import ledger
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.pages.formulas import count_numbers, counts_page, is_same_formula, page, value_of
from harness.report.pages.table import build_table
from harness.report.render import markdown
from harness.report.scores import counted
from harness.report.scores.groups import group_scores
from harness.report.scores.select import select
from harness.report.spec.table import TableSpec
from harness.report.spec_files import available, load_table
from models.attention.llp import LLP
from models.attention.vanilla import Vanilla
from models.backbones.perceiver_ar import PerceiverAR, PerceiverARV1, PerceiverARV2, PerceiverARV3
from tests.helpers.ledger import tables

PAPER = ROOT / "results" / "paper"
# rows that agree in every printed digit; some tables round, some cut
TABLES = [
    *(("lavo/t2", 8), ("lavo/t4", 6), ("latte/t1", 4), ("latte/t2", 0)),
    *(("llp/t3", 3), ("llp/t4", 7), ("llp/t5", 1), ("luna/t5", 4)),
]


def columns_of_parameters():
    """(table, column) of every column of parameters in a paper."""
    specs = (load_table(name, CONF, PAPER) for name in available(CONF))
    for spec in (spec for spec in specs if isinstance(spec, TableSpec)):
        for name in set(spec.columns) - set(spec.own_columns):
            if spec.columns[name].record_field == counted.FIELD:
                yield spec, name


def printed_rows(spec, column):
    return [row for row in spec.rows if (row, column) in spec.published and spec.has(row, column)]


def test_every_printed_parameter_count_has_a_row_of_ours():
    entries = [entry for name in tables(PAPER) for entry in ledger.entries(name, PAPER)]
    printed = [entry for entry in entries if entry["column"] == "params" and not math.isnan(entry["number"])]
    ours = [row for spec, column in columns_of_parameters() for row in printed_rows(spec, column)]
    # PerceiverAR's 60 layers are a quotation that LLP's table has no row of ours for
    assert (len(printed), len(ours)) == (81, 80)


@pytest.mark.parametrize(
    ("table", "exact"),
    [pytest.param(*table, marks=() if table[0] == "lavo/t4" else pytest.mark.slow) for table in TABLES],
)
def test_our_counts_are_the_printed_ones_or_a_footnote_says_why(table, exact):
    spec = load_table(table, CONF, PAPER)
    rows = printed_rows(spec, "parameters")
    scores, notes = counted.count(spec, "parameters", rows)
    assert notes == (counted.COUNTED,) and [score.row for score in scores] == rows
    same = 0
    for score in scores:
        printed, ours = spec.published[score.row, "parameters"], score.by_seed[0]
        same += abs(ours - printed.number) < 10 ** -ledger.decimals(printed.text)
        if abs(ours - printed.number) > 0.01 * printed.number:
            assert spec.all_footnotes(score.row, "parameters"), f"{score.row}: {ours:.2f}, printed {printed.text}"
    assert same == exact


def test_a_page_shows_what_was_counted_and_what_was_not():
    spec = load_table("lavo/t2", CONF, PAPER)
    rows = {name: spec.rows[name] for name in ("vanilla", "lavo")}
    small = spec.model_copy(update={"rows": rows})
    none, counts = select(frame([]), spec), {counted.FIELD: counted.count}
    page = build_table(small, group_scores(none, small, counts=counts))
    assert "122.91<sup>X22</sup> | 122.91 (counted) | +0.00 | agrees |" in markdown.render(page)
    assert page.summary.endswith("3 not run; counted sizes: 2 agree · 0 differ · 0 failed · 0 not run")
    broken = rows["lavo"].model_copy(update={"set": {"model.bases": -1}})
    small = spec.model_copy(update={"rows": rows | {"lavo": broken}})
    assert "lavo: not counted: " in markdown.render(build_table(small, group_scores(none, small, counts=counts)))


def test_a_row_that_was_run_is_not_counted():
    spec = load_table("latte/t2", CONF, PAPER)
    asked = []

    def count(spec, column, rows):
        asked.append((column, list(rows)))
        return [], ()

    changed = {key: [None, value] for key, value in spec.columns["parameters"].set.items()}
    metric = {"name": "ppl", "higher_is_better": False}
    run = made("retnet", "lm/openwebtext", protocol="latte", changed=changed, metric=metric)
    group_scores(select(frame([run]), spec), spec, counts={counted.FIELD: count})
    ((column, rows),) = asked
    assert column == "parameters" and rows == [row for row in spec.rows if row != "Retnet"]


T6, T8 = (spec_files.load_table(f"llp/{name}", CONF, PAPER) for name in ("t6", "t8"))

SIZES = {"n": 48, "l": 4, "h": 2, "s": 8, "p": 6}
DECODERS = {
    "PerceiverAR (baseline)": (PerceiverAR, {}),
    "Enhanced Model V1": (PerceiverARV1, {}),
    "Enhanced Model V2": (PerceiverARV2, {"segment": SIZES["s"]}),
    "Enhanced Model V3": (PerceiverARV3, {"compressed": SIZES["p"], "compress_after_first": True}),
}
LAYERS = {
    "Long LoRA Inspired Model (LLP)": (LLP, {"segment": SIZES["s"]}),
    "Transformer - Full Attention": (Vanilla, {}),
}


@pytest.fixture
def pairs(monkeypatch):
    """Counts what passes through torch's attention: [scores computed, scores that its masks leave]."""
    counted, attend = [0, 0], F.scaled_dot_product_attention

    def count(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, **settings):
        shape = (*q.shape[:-1], k.shape[-2])
        seen = torch.ones(shape, dtype=torch.bool)
        if is_causal:
            seen = seen.tril()
        elif attn_mask is not None:
            seen = seen & attn_mask
        counted[0] += seen.numel()
        counted[1] += int(seen.sum())
        return attend(q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, **settings)

    monkeypatch.setattr(F, "scaled_dot_product_attention", count)
    return counted


@pytest.mark.parametrize("row", [*DECODERS, *LAYERS])
def test_our_formulas_count_the_pairs_of_the_code(row, pairs):
    n, layers, heads = SIZES["n"], SIZES["l"], SIZES["h"]
    with torch.no_grad():
        if row in DECODERS:
            cls, options = DECODERS[row]
            sizes = {"vocab_size": 5, "max_length": n, "dim": 8, "heads": heads, "layers": layers, "ffn_dim": 8}
            cls(cls.Config(**sizes, latents=n // 2, **options)).eval()(torch.zeros(1, n, dtype=torch.long))
        else:
            cls, options = LAYERS[row]
            layer = cls(8, heads, pattern="causal_self", max_length=n, **options).eval()
            for _ in range(layers):
                layer(torch.randn(1, n, 8))
    assert set(T8.rows) == {*DECODERS, *LAYERS}
    ours = T8.rows[row]
    assert pairs == [value_of(ours.computed, SIZES), value_of(ours.visible, SIZES)]


def test_the_default_of_v3_differs_by_what_the_footnote_says(pairs):
    n, layers, heads, p = (SIZES[name] for name in "nlhp")
    sizes = {"vocab_size": 5, "max_length": n, "dim": 8, "heads": heads, "layers": layers, "ffn_dim": 8}
    model = PerceiverARV3(PerceiverARV3.Config(**sizes, latents=n // 2, compressed=p)).eval()
    with torch.no_grad():
        model(torch.zeros(1, n, dtype=torch.long))
    there = value_of(T8.rows["Enhanced Model V3"].computed, SIZES)
    assert pairs[0] == there + heads * (p**2 - (n // 2) * (n // 2 - p))


@pytest.mark.parametrize(
    ("row", "printed", "by_formula", "ours"),
    [
        ("PerceiverAR (baseline)", 4932, 4932.5, 4932.5),
        ("Enhanced Model V1", 14495, 14495.5, 14394.9),
        ("Enhanced Model V2", 9682, 9739.2, 10255.1),
        ("Enhanced Model V3", 14858, 5597.8, 5596.3),
        ("Long LoRA Inspired Model (LLP)", 1226, 585.1, 1189.1),
        ("Transformer (full attention)", 19327, 19327.4, 19327.4),
    ],
)
def test_printed_numbers_against_our_formulas(row, printed, by_formula, ours):
    assert float(T6.printed[row, "attention_steps"]) == printed
    numbers = count_numbers(T6, row, "attention_steps")
    assert [round(number, 1) for number in numbers[:2]] == [by_formula, ours] and 0 < numbers[2] < numbers[1]
    [line] = [cell for cell in counts_page(T6).tidy if (cell["row"], cell["column"]) == (row, "attention_steps")]
    assert line["verdict"] == ("same" if abs(printed - ours) < 1 else "differs")
    assert float(line["delta"]) == pytest.approx(ours - printed, abs=0.06)


def test_formulas_are_the_same_if_they_agree_at_several_sizes():
    assert is_same_formula(T8, "[(n/2)*n]*h", "n^2*h/2")
    assert not is_same_formula(T8, "n*s", "n*p"), "s and p are equal in the table's sizes"
    verdicts = {row["row"]: row["verdict"] for row in page(T8).tidy}
    assert [verdicts[row] for row in T8.rows] == ["same", "differs", "differs", "differs", "differs", "same"]
