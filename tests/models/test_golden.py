"""Attention variants against public reference implementations: outputs and gradients. A new model adds a row."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from golden import golden, needs_golden
from zoo import load, run

from models.attention.base import Pattern

PROJECTIONS = {
    "w_q": "q_proj.weight",
    "w_k": "k_proj.weight",
    "w_v": "v_proj.weight",
    "w_o": "out_proj.weight",
    "b_q": "q_proj.bias",
    "b_k": "k_proj.bias",
    "b_v": "v_proj.bias",
    "b_o": "out_proj.bias",
}


@dataclass(frozen=True)
class Row:
    """How a case is built: yaml, hyper-parameters, and the parameter or buffer of each role except projections.

    Projection biases that are missing in the case are set to zero. `unused` lists name prefixes of parameters and
    buffers on which y does not depend.
    """

    model: str
    hyper: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def luna(tie_kv: bool = True, **linears: str) -> Row:
    """A case of Luna, whose P is the carry; each role's linear layer."""
    roles = {
        f"{part[0]}_{role}": f"{linear}.{part}"
        for role, linear in {"pq": "pack_q_proj", **linears}.items()
        for part in ("weight", "bias")
    }
    return Row("luna", {"tie_kv": tie_kv}, roles, unused=("first.", "slots_norm."))


PERFORMER = Row("performer", {"features": 16, "cab_compat": True}, {"proj": "directions"})
LINFORMER_ROLES = {"E_k": "key_map", "E_v": "value_map"}
LLP_ROLES = {
    "w_kv": "kv_proj.weight",
    "ln_k_w": "key_norm.weight",
    "ln_k_b": "key_norm.bias",
    "w_o0": "first_out_proj.weight",
    "b_o0": "first_out_proj.bias",
}
LONGSHORT_SHARED = {"w_dconv": "score.weight", "b_dconv": "score.bias"}
LONGSHORT_NS = LONGSHORT_SHARED | {
    "ln_l_w": "token_norm.weight",
    "ln_l_b": "token_norm.bias",
    "ln_s_w": "summary_norm.weight",
    "ln_s_b": "summary_norm.bias",
}
LONGSHORT_CS = LONGSHORT_SHARED | {
    "ln_win_w": "token_norm.weight",
    "ln_win_b": "token_norm.bias",
    "ln_chunk_w": "summary_norm.weight",
    "ln_chunk_b": "summary_norm.bias",
    "w_r_window": "near_position.weight",
    "w_r_chunk": "far_position.weight",
    "b_r_chunk": "far_position.bias",
    "r_w_bias": "content_bias",
    "r_r_bias": "position_bias",
}
LONGSHORT_NS_ROW = Row("longshort", {"landmarks": 8, "window": 8}, LONGSHORT_NS)
LONGSHORT_CS_ROW = Row("longshort", {"chunk": 16, "window": 16, "memory": 64}, LONGSHORT_CS)
LONGSHORT_RANK2 = {"chunk": 8, "window": 8, "memory": 16, "chunk_rank": 2}
LATTE = Row("latte", {"latents": 16, "vapor": False})
LLP = Row("llp", {"segment": 16, "rotary": False}, LLP_ROLES)
STATE_SPACE = {
    "C": "readout",
    "log_dt": "log_step",
    "log_w_real": "log_decay",
    "w_imag": "frequency",
    "D": "skip",
}
ABC = Row("abc", {"slots": 8}, {"c_k": "key_slots", "c_v": "value_slots"})
H3_ROLES = {
    "shift_B": "shift.enter",
    "shift_C": "shift.leave",
    "shift_D": "shift.skip",
    "diag_B": "diagonal.enter",
    "diag_C": "diagonal.leave",
    "diag_inv_A_real": "diagonal.log_decay",
    "diag_A_imag": "diagonal.frequency",
    "diag_log_dt": "diagonal.log_step",
    "diag_D": "diagonal.skip",
}
RETNET = Row("retnet", {"divide_scores": True}, {"w_g": "gate_proj.weight"})
S5_ROLES = {"Lambda": "eigenvalues", "B": "enter", "C": "leave", "D": "skip", "log_step": "log_step"}
ROWS = {
    "vanilla_ns_n63": Row("vanilla"),
    "vanilla_cs_n63": Row("vanilla"),
    "vanilla_nc_n48_m41": Row("vanilla"),
    "probsparse_ns_n63": Row("probsparse", {"factor": 3}, {"index_sample": "draws"}),
    "lara_ns_n63": Row("lara", {"landmarks": 8}),
    "lara_ns_n64": Row("lara", {"landmarks": 8}),
    "abc_cs_cab_quirk": Row("abc_cab", {"slots": 8}, ABC.roles),
    "abc_ns_n63": ABC,
    "abc_nc_n48_m41": ABC,
    "cosformer_ns_n63": Row("cosformer"),
    "cosformer_cs_n63": Row("cosformer"),
    "cosformer_cab_ns_n63": Row("cosformer"),
    "cosformer_cab_nc_n48_m60": Row("cosformer"),
    "local_ns_n63_w5": Row("local", {"window": 5}),
    "local_cs_n63_w5": Row("local", {"window": 5}),
    "performer_ns_n63": PERFORMER,
    "performer_nc_n48_m41": PERFORMER,
    "nystrom_cab_ns_n64": Row("nystrom", {"landmarks": 8, "cab_compat": True}),
    "linformer_ns_n63": Row("linformer", {"rank": 8, "share": False}, LINFORMER_ROLES),
    "linformer_ns_n63_shared_kv": Row("linformer", {"rank": 8, "share": False, "one_kv_head": True}, LINFORMER_ROLES),
    "llp_n48_c8": LLP,
    "llp_n63_c8_ragged": LLP,
    "longshort_ns_n63": LONGSHORT_NS_ROW,
    "longshort_ns_n64": LONGSHORT_NS_ROW,
    "longshort_cs_c16_w16_n63": LONGSHORT_CS_ROW,
    "longshort_cs_c16_w16_n64": LONGSHORT_CS_ROW,
    "longshort_cs_c8_w8_rank2_n48": Row("longshort", LONGSHORT_RANK2, LONGSHORT_CS),
    "latte_bid_n63": LATTE,
    "latte_causal_n63": LATTE,
    "latte_causal_L4": Row("latte", {"latents": 4, "vapor": False}),
    "luna_ns_n63": luna(pc="pack_v_proj", c="v_proj"),
    "luna_cross_n63_m41": luna(pc="pack_v_proj", c="v_proj"),
    "luna_cs_n63": luna(pc="pack_k_proj", c="v_proj"),
    "luna_ns_untied": luna(tie_kv=False, pk="pack_k_proj", pv="pack_v_proj"),
    "luna_cs_untied": luna(tie_kv=False, pc="pack_k_proj"),
    "longnet_cs_h6_r1_2_3": Row("longnet", {"segments": [16, 24, 48], "ratios": [1, 2, 3]}),
    "longnet_cs_r2_only": Row("longnet", {"segments": [32], "ratios": [2]}),
    "longnet_cs_subln": Row("longnet", {"segments": [16, 64], "ratios": [1, 2]}),
    "longnet_cs_w16_32_64_r1_2_4": Row("longnet", {"segments": [16, 32, 64], "ratios": [1, 2, 4]}),
    "longnet_cs_w8_32_64_n128": Row("longnet", {"segments": [8, 32, 64], "ratios": [1, 2, 4]}),
    "s4d_n63": Row("s4d", {"d_state": 16}, STATE_SPACE),
    "s4d_ch2_n48": Row("s4d", {"d_state": 16, "channels": 2}, STATE_SPACE),
    "s4d_bidirectional_n48": Row("s4d", {"d_state": 16}, STATE_SPACE),
    "h3_n48_headdim1": Row("h3", {"d_state": 8}, H3_ROLES),
    "retnet_n63": RETNET,
    "retnet_n64": RETNET,
    "s5_n63": Row("s5", {"d_state": 16, "blocks": 1, "conj_sym": False, "gate": "none"}, S5_ROLES),
}
FLOAT32_RELATIVE = 1e-5


def errors(case: str, dtype: torch.dtype, causal: bool = False) -> tuple[float, float, float]:
    """(largest error of y, largest error of a gradient, the case's tolerance for y).

    Errors are absolute in float64; in float32 they are relative to the largest entry of y, or of all gradients, because
    the gradient of the key bias is only a rounding error.
    """
    row = ROWS[case]
    meta, arrays = golden(case)
    pattern = Pattern.CAUSAL_CROSS if causal else Pattern(meta["pattern"])
    cls, hyper = load(row.model)
    size = meta["hyper"]
    sizes = {"pattern": pattern, "max_length": size["n"], **hyper, **row.hyper}
    model = cls(size["d"], size.get("heads", 1), **sizes).to(dtype)
    targets = dict(model.named_parameters()) | dict(model.named_buffers())
    targets = {name: target for name, target in targets.items() if not name.startswith(row.unused)}
    roles = {role: name for role, name in (PROJECTIONS | row.roles).items() if name in targets}
    assert set(targets) == set(roles.values()), "a role is missing"
    with torch.no_grad():
        for role, name in roles.items():
            target = targets[name]
            target.copy_(arrays[role].reshape(target.shape) if role in arrays else torch.zeros_like(target))

    def given(name: str) -> torch.Tensor | None:
        return arrays[name].to(dtype).requires_grad_() if name in arrays else None

    leaves = {name: given(name) for name in ("x", "context", "p")}
    leaves |= {role: targets[name] for role, name in roles.items()}
    mask = arrays.get("context_padding_mask", arrays.get("key_padding_mask"))
    y = run(model, leaves["x"], leaves["context"], key_padding_mask=mask, carry=leaves["p"])
    y.backward(arrays["g"].to(dtype))

    def error(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
        """Largest difference of (ours, reference), by the largest reference in float32."""
        difference = max((ours.double() - reference.reshape(ours.shape)).abs().max() for ours, reference in pairs)
        unit = 1.0 if dtype is torch.float64 else max(reference.abs().max() for _, reference in pairs)
        return float(difference / unit)

    stored = {key[1:]: array for key, array in arrays.items() if key[0] == "d" and key[1:] in leaves}
    assert {"x", *({"w_q", "w_o"} & set(roles))} <= set(stored)
    gradients = error([(leaves[key].grad, array) for key, array in stored.items()])
    return error([(y.detach(), arrays["y"])]), gradients, meta["tolerance_max_abs"]


# a noncausal cross case has the numbers of the causal one, because its rows do not see each other
CROSS = [
    case
    for case in ROWS
    if ("_nc_" in case or "_cross_" in case) and Pattern.CAUSAL_CROSS in load(ROWS[case].model)[0].patterns
]
CASES = [(case, False) for case in ROWS] + [(case, True) for case in CROSS]


@needs_golden
@pytest.mark.parametrize(("case", "causal"), CASES)
class TestGolden:
    def test_float64(self, case, causal):
        y, gradients, tolerance = errors(case, torch.float64, causal)
        assert y <= tolerance
        assert gradients <= 10 * tolerance

    def test_float32(self, case, causal):
        y, gradients, _ = errors(case, torch.float32, causal)
        assert y <= FLOAT32_RELATIVE
        assert gradients <= 10 * FLOAT32_RELATIVE
