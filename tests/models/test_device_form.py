"""On a GPU no layer makes the CPU wait, copies anything to the device, or launches more kernels for a longer text."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from torch.utils.cpp_extension import include_paths

from benchmarks.gpu.models import LAYERS, cases

pytestmark = pytest.mark.xdist_group("device_form")  # its counts are made once
GUARD = Path(__file__).parents[1] / "helpers" / "fake_cuda" / "guard.cpp"
GROWTH = 1.3  # kernels at 16,384 tokens, per kernel at 1,024
MOST = 300  # kernels of a layer, forward and backward
# forms that launch more: at most so many at 16,384 tokens, and why
BOUNDS = {
    "abc causal_self": (460, "four passes of the running softmax: two for scores, two for values"),
    "block_recurrent causal_self": (6000, "one block after another: the state of a block is an input of the next"),
    "compressive causal_self": (800, "one segment after another: memories of a segment are inputs of the next"),
    "forgetting causal_self": (1800, "segments of 512 queries with references of their own; fla has one kernel"),
    "kernelized noncausal_self": (730, "tiles of a matrix of N x N weights"),
    "latte_rglru_swa causal_self": (390, "a scan beside a running softmax and a window"),
    "nsa causal_self": (470, "three attentions: blocks' summaries, chosen blocks and a window"),
    "rwkv7 causal_self": (470, "a scan of matrices with two keys and a low-rank network for each coefficient"),
    "sparse_transformer causal_self": (2300, "one block of queries after another sees a longer list of summaries"),
}
# torch's fake tensors have no kernel for its backward pass
UNCOUNTED = ("reformer",)
# of 1,024 tokens all are latents: the shorter text with a history has 4,096
WITH_HISTORY = ("perceiver_ar_v1", "perceiver_ar_v2", "perceiver_ar_v3")


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    library = tmp_path_factory.mktemp("guard") / "guard.so"
    include = [f"-I{path}" for path in (*include_paths(), sysconfig.get_paths()["include"])]
    command = ["g++", "-O1", "-shared", "-fPIC", "-std=c++20", *include, str(GUARD), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def counted(guard, *names, lengths):
    command = [sys.executable, "-m", "tests.helpers.fake_cuda.count", str(guard), lengths, *names]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture(scope="module")
def counts(guard):
    """Of each form at a short and at a long length."""
    forms = {}
    names = sorted({case.model for case in cases()} - {*UNCOUNTED, *WITH_HISTORY})
    for found in counted(guard, *names, lengths="1024,16384") + counted(guard, *WITH_HISTORY, lengths="4096,16384"):
        forms.setdefault(found["form"], []).append(found)
    return forms


@pytest.mark.slow
def test_no_form_waits_or_copies(counts):
    assert len(counts) > 100
    assert not [x for pair in counts.values() for x in pair if "error" in x or x["wait"] or x["copy"]]


@pytest.mark.slow
def test_few_kernels_whatever_the_length(counts):
    over = {}
    for form, (short, long) in counts.items():
        most = MOST * (LAYERS if form.endswith("decoder") else 1)
        if long["kernel"] > min(most, GROWTH * short["kernel"]):
            over[form] = long["kernel"]
    assert over.keys() == BOUNDS.keys()
    assert not {form: count for form, count in over.items() if count > BOUNDS[form][0]}
