"""`trainer=fsdp`: parameters, gradients and optimizer state are sharded between the devices of a cell (FSDP2).

Each attention layer is one unit, gathered when it is used, or all layers that share parameters are; the rest of the
model is another. Checkpoints and best weights are saved unsharded, so a run can be resumed on any number of devices.
"""

import sys
from typing import Any


def strategy(nodes: int, devices: int) -> Any:
    """Lightning's strategy for `nodes` nodes with `devices` devices each."""
    from lightning.pytorch.strategies import ModelParallelStrategy

    return ModelParallelStrategy(
        data_parallel_size=nodes * devices, tensor_parallel_size=1, save_distributed_checkpoint=False
    )


def shard(model: Any, mesh: Any) -> None:
    """Shard a model in place, once. `mesh` is the strategy's."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    from models.attention.base import Attention

    devices = mesh["data_parallel"]
    for layers in sharing([module for module in model.modules() if isinstance(module, Attention)]):
        fully_shard(layers, mesh=devices)
        for layer in layers:
            register_fsdp_forward_method(layer, "chunk")  # which reads long texts
    fully_shard(model, mesh=devices)


def sharing(layers: list[Any]) -> list[list[Any]]:
    """The modules `layers` in groups: those that share a parameter are in one."""
    groups: list[tuple[list[Any], set[int]]] = []
    for layer in layers:
        members, parameters = [layer], {id(parameter) for parameter in layer.parameters()}
        for group in [group for group in groups if group[1] & parameters]:
            groups.remove(group)
            members, parameters = group[0] + members, group[1] | parameters
        groups.append((members, parameters))
    return [sorted(members, key=layers.index) for members, _ in groups]


def is_sharded(module: Any) -> bool:
    """Whether a module is sharded: every device must then take part in every pass through it."""
    tensors = sys.modules.get("torch.distributed.tensor")  # `shard` imports it, which takes half a second
    return tensors is not None and any(isinstance(parameter, tensors.DTensor) for parameter in module.parameters())


def load_full_state_dict(module: Any, weights: dict[str, Any]) -> None:
    """Load an unsharded state dict into a module, which may be sharded."""
    if not is_sharded(module):
        module.load_state_dict(weights)
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    set_model_state_dict(module, weights, options=StateDictOptions(full_state_dict=True))
