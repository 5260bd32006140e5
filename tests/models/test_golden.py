"""Attention variants against public reference implementations: outputs and gradients. A new model adds a row."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from golden import check, fill, golden, leaves_of, needs_golden
from zoo import load, run

from models.attention.base import Pattern

PROJECTIONS = {
    f"{part[0]}_{role}": f"{name}_proj.{part}"
    for role, name in {"q": "q", "k": "k", "v": "v", "o": "out"}.items()
    for part in ("weight", "bias")
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
LONGSHORT_NS, LONGSHORT_CS = (
    LONGSHORT_SHARED
    | {f"ln_{role}_{part[0]}": f"{name}_norm.{part}" for role, name in names.items() for part in ("weight", "bias")}
    for names in ({"l": "token", "s": "summary"}, {"win": "token", "chunk": "summary"})
)
LONGSHORT_CS |= {"w_r_window": "near_position.weight", "w_r_chunk": "far_position.weight"}
LONGSHORT_CS |= {"b_r_chunk": "far_position.bias", "r_w_bias": "content_bias", "r_r_bias": "position_bias"}
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
    f"{kind}_{role}": f"{name}.{part}"
    for kind, name in (("shift", "shift"), ("diag", "diagonal"))
    for role, part in {"B": "enter", "C": "leave", "D": "skip"}.items()
}
H3_ROLES |= {"diag_inv_A_real": "diagonal.log_decay", "diag_A_imag": "diagonal.frequency"}
H3_ROLES |= {"diag_log_dt": "diagonal.log_step"}
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
# a noncausal cross case has the numbers of the causal one, because its rows do not see each other
CROSS = [
    case
    for case in ROWS
    if ("_nc_" in case or "_cross_" in case) and Pattern.CAUSAL_CROSS in load(ROWS[case].model)[0].patterns
]
CASES = [(case, False) for case in ROWS] + [(case, True) for case in CROSS]


@needs_golden
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize(("case", "causal"), CASES)
def test_published_numbers(case, causal, dtype):
    row = ROWS[case]
    meta, arrays = golden(case)
    cls, hyper = load(row.model)
    size = meta["hyper"]
    pattern = Pattern.CAUSAL_CROSS if causal else Pattern(meta["pattern"])
    sizes = {"pattern": pattern, "max_length": size["n"], **hyper, **row.hyper}
    model = cls(size["d"], size.get("heads", 1), **sizes).to(dtype)
    targets = [*dict(model.named_parameters()), *dict(model.named_buffers())]
    targets = {name for name in targets if not name.startswith(row.unused)}
    roles = {role: name for role, name in (PROJECTIONS | row.roles).items() if name in targets}
    assert targets == set(roles.values()), "a role is missing"
    leaves = leaves_of(arrays, ("x", "context", "p"), dtype) | fill(model, arrays, roles)
    assert {"x", *({"w_q", "w_o"} & set(roles))} <= {name[1:] for name in arrays if name[0] == "d"}
    mask = arrays.get("context_padding_mask", arrays.get("key_padding_mask"))
    y = run(model, leaves["x"], leaves.get("context"), key_padding_mask=mask, carry=leaves.get("p"))
    check(meta, arrays, y, leaves)
