"""Tables of formulas: ours against the query-key pairs that the code computes, and against the printed numbers."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from harness.report import spec_files
from harness.report.pages.formulas import count_numbers, counts_page, is_same_formula, page, value_of
from models.attention.llp import LLP
from models.attention.vanilla import Vanilla
from models.backbones.perceiver_ar import PerceiverAR, PerceiverARV1, PerceiverARV2, PerceiverARV3

ROOT = Path(__file__).resolve().parents[2]
CONF, PAPER = ROOT / "conf", ROOT / "results" / "paper"
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


def test_the_printed_numbers_of_x58_follow_the_formulas_of_the_footnotes():
    """The footnotes of Table 6 name formulas that are printed nowhere."""
    sizes, million = T6.sizes, 1e6
    formulas = {
        "Enhanced Model V2": "[((n/2)/s)*((n/2)/s)*s + (n/2)*n]*h*l",
        "Enhanced Model V3": "[(n/2)*n + (n/2)*(p+n/2) + p*p]*(l-1)*h",
        "Long LoRA Inspired Model (LLP)": "[(s/2)*(s/2) + (s/2)*s*(2*n/s)]*h*l",
    }
    for row, formula in formulas.items():
        assert int(value_of(formula, sizes) / million) == int(T6.printed[row, "attention_steps"])


def test_formulas_are_the_same_if_they_agree_at_several_sizes():
    assert is_same_formula(T8, "[(n/2)*n]*h", "n^2*h/2")
    assert not is_same_formula(T8, "n*s", "n*p"), "s and p are equal in the table's sizes"
    verdicts = {row["row"]: row["verdict"] for row in page(T8).tidy}
    assert [verdicts[row] for row in T8.rows] == ["same", "differs", "differs", "differs", "differs", "same"]
