"""Weights in 16 bits: half the file, computed in float32 all the same.

Rounding must not make the exported file another network than the torch model that it is compared with. So batch norms
are folded into their convolutions in torch (the exporter would do it otherwise, after rounding), the folded weights are
rounded in torch, and the file keeps in 16 bits only what loses nothing by it.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from polypscope.records.errors import ModelError

HALF = "_half"  # ends the name of a weight that is stored so
LEAST_VALUES = 256  # a smaller tensor is kept whole: rounding it would save nothing


@torch.no_grad()
def followed(model: nn.Module, *example: Tensor) -> dict[nn.BatchNorm2d, nn.Conv2d]:
    """Which convolution each batch norm follows, where it is one convolution for one norm.

    It is seen while `example`, an input of the model, runs through it.
    """
    makers: dict[int, nn.Conv2d] = {}
    alive: list[Tensor] = []  # so that no identity is used twice
    pairs: dict[nn.BatchNorm2d, set[nn.Conv2d | None]] = {}

    def convolved(module: nn.Module, inputs: Any, output: Tensor) -> None:
        makers[id(output)] = module  # type: ignore[assignment]
        alive.append(output)

    def normed(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        pairs.setdefault(module, set()).add(makers.get(id(inputs[0])))  # type: ignore[arg-type]

    hooks = [m.register_forward_hook(convolved) for m in model.modules() if isinstance(m, nn.Conv2d)]
    hooks += [m.register_forward_pre_hook(normed) for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    model(*example)
    for hook in hooks:
        hook.remove()
    found = {}
    for norm, convs in pairs.items():
        conv = next(iter(convs))
        shared = [other for other, theirs in pairs.items() if other is not norm and conv in theirs]
        if len(convs) == 1 and conv is not None and not shared:
            found[norm] = conv
    return found


@torch.no_grad()
def folded(model: nn.Module, *example: Tensor) -> nn.Module:
    """A copy in which every batch norm that follows a convolution is part of it; computes the same, in eval mode.

    `example` is an input of the model.
    """
    model = copy.deepcopy(model).eval()
    expected = model(*example)
    owners = {child: (parent, name) for parent in model.modules() for name, child in parent.named_children()}
    for norm, conv in followed(model, *example).items():
        conv.weight, conv.bias = fuse_conv_bn_weights(
            conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
        parent, name = owners[norm]
        setattr(parent, name, nn.Identity())
    change = float((model(*example) - expected).abs().max() / expected.abs().max().clamp(min=1))
    if not change < 1e-4:  # a convolution whose bare output is used beside its norm
        raise ModelError(
            f"Model: expected batch norms that can be folded, found that folding changes it by {change:.1e}."
        )
    return model


@torch.no_grad()
def rounded(model: nn.Module) -> nn.Module:
    """A copy whose large weights have values that 16 bits can hold; those too large for 16 bits stay as they are."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        half = parameter.half().float()
        if parameter.numel() >= LEAST_VALUES and torch.isfinite(half).all():
            parameter.copy_(half)
    return model


def store_half(path: Path) -> float:
    """Store in 16 bits the weights of an ONNX file that lose nothing by it; returns their share of all weights.

    The runtime widens them once while it loads, so speed, memory and results stay those of float32.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(str(path))
    stored = total = 0
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        total += values.size
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if values.size < LEAST_VALUES or not np.array_equal(half.astype(np.float32), values):
            continue
        stored += values.size
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(half, f"{name}{HALF}"))
        casts.append(helper.make_node("Cast", [f"{name}{HALF}"], [name], to=TensorProto.FLOAT, name=f"{name}_widen"))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(path))
    return stored / max(1, total)
