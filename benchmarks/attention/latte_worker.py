"""The JAX side of C1 and C2, in a process of its own: its threads and torch's disturb each other."""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection

import torch


class JaxLatte:
    """`call` runs the scan once in that process, on inputs that were sent once. Raises ImportError without jax."""

    def __init__(self, unroll: int, heads: int, leaves: Sequence[torch.Tensor], what: str):
        import jax  # noqa: F401  (a missing package is an error here, not in the other process)

        self.unroll = unroll
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        arrays = [leaf.numpy() for leaf in leaves]
        self.process = context.Process(
            target=serve, args=(theirs, unroll, heads, arrays, what != "forward"), daemon=True
        )
        self.process.start()
        self.pid = self.process.pid

    def call(self) -> None:
        self.pipe.send(True)
        self.pipe.recv()

    def close(self) -> None:
        self.pipe.send(False)
        self.process.join(10)


def serve(pipe: Connection, unroll: int, heads: int, arrays: Sequence, gradients: bool) -> None:
    import jax

    from benchmarks.latte_scan import jax_scan_layer

    forward, gradient = jax_scan_layer(heads, unroll=unroll)
    inputs = [jax.numpy.asarray(array) for array in arrays]
    cotangent = jax.numpy.ones(arrays[0].shape, arrays[0].dtype)
    while pipe.recv():
        jax.block_until_ready(gradient(cotangent, *inputs) if gradients else forward(*inputs))
        pipe.send(None)
