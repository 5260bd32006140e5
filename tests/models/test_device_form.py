"""On a GPU no layer makes the CPU wait, copies anything to the device, or launches more kernels for a longer text."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from torch.utils.cpp_extension import include_paths

from benchmarks.gpu.models import cases

GUARD = Path(__file__).parents[1] / "helpers" / "fake_cuda" / "guard.cpp"
GROWTH = 1.3  # kernels at 16,384 tokens, per kernel at 1,024
# forms that launch more, and why
GROWING = {
    "abc_cab": "tiles of the running softmax with one group of tokens per slot",
    "block_recurrent": "one block after another: the state of a block is an input of the next",
    "compressive": "one segment after another: memories of a segment are inputs of the next",
    "deltanet": "one chunk's matrix state after another; fla's kernel does it in one launch",
    "forgetting": "segments of 1,024 queries with references of their own; fla's kernel does it in one launch",
    "gated_deltanet": "as deltanet",
    "infinity_former": "one segment after another: the memory of a segment is an input of the next",
    "kda": "as deltanet",
    "kernelized": "tiles of a matrix of N x N weights",
    "longshort": "tiles of the causal scores of all summaries",
    "luna": "tiles of the prefix sums",
    "mamba": "log2 N steps of its scan, several times",
    "mega": "tiles of N x N scores",
    "perceiver_ar_v1": "tiles of the history's scores",
    "perceiver_ar_v2": "tiles of the history's scores",
    "perceiver_ar_v3": "tiles of the history's scores",
    "probsparse": "one key of all queries' samples after another",
    "routing": "tiles of the clusters' windows",
    "rwkv7": "as deltanet",
    "sparse_transformer": "one block of queries after another sees a longer list of summaries",
    "transformer_xl": "one segment after another: states of a segment are inputs of the next",
}
# torch's fake tensors have no kernel for its backward pass
UNCOUNTED = ("reformer",)


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


@pytest.mark.slow
def test_no_form_waits_or_copies(guard):
    found = counted(guard, *sorted({case.model for case in cases()} - {*UNCOUNTED}), lengths="1024")
    assert len(found) > 100
    assert not [x for x in found if "error" in x or x["wait"] or x["copy"]]


@pytest.mark.slow
def test_kernels_do_not_grow_with_the_length(guard):
    names = sorted({case.model for case in cases()} - {*UNCOUNTED, *GROWING})
    found = counted(guard, *names, lengths="1024,16384")
    kernels = {(x["form"], x["length"]): x["kernel"] for x in found}
    assert not [
        (form, count, kernels[form, 1024])
        for (form, length), count in kernels.items()
        if length > 1024 and count > GROWTH * kernels[form, 1024]
    ]
