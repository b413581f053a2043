"""An exported file as the start of further training: its weights back in the torch model that they came from.

Exporting folds every batch norm into the convolution before it and leaves out what only training needs. Here the
convolutions get the folded weights, their norms become plain shifts, and where they are to be used in training,
`settle_norms` gives these running statistics again and `settle_sizes` the convolutions weights of one size.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polypscope.records.errors import ModelError
from polypscope.runtime.cards import find_card
from polypscope.training.storage import HALF, followed

EXPORTED = ".onnx"
EIGHT_BITS = "_quantized"  # ends the name of a weight that is stored so
MEMBERS = "members"  # what `models.ensemble.Ensemble` calls its networks


def reopen(model: nn.Module, path: Path, *example: Tensor, part: str = "") -> None:
    """Fill `model` with the weights of an ONNX file that `polypscope export` made; in eval mode it computes the same.

    `example` is an input of the model. Layers that are not in the file, such as heads for deep supervision, stay as
    they are. `part` names what of the file's network the model is, such as "members.0" of an ensemble; else all of it.
    """
    stored = _stored(path)
    if part:
        stored = {name.removeprefix(f"{part}."): value for name, value in stored.items() if name.startswith(f"{part}.")}
    model.eval()
    names = {module: name for name, module in model.named_modules()}
    folded = {names[norm]: names[conv] for norm, conv in followed(model, *example).items()}
    state = model.state_dict()
    used: set[str] = set()

    def put(name: str, source: str) -> None:
        if stored[source].shape != state[name].shape:
            raise ModelError(
                f"{path}: expected {source} of shape {tuple(state[name].shape)}, found {tuple(stored[source].shape)}; "
                "give the model the arguments that it was trained with."
            )
        state[name].copy_(stored[source])
        used.add(source)

    for norm, conv in folded.items():
        if f"{norm}.running_mean" in stored or f"{conv}.bias" not in stored:
            continue  # this norm was not folded, or its layers are not in the file
        put(f"{conv}.weight", f"{conv}.weight")
        put(f"{norm}.bias", f"{conv}.bias")
        state[f"{norm}.weight"].fill_(1)
        state[f"{norm}.running_mean"].zero_()
        state[f"{norm}.running_var"].fill_(1 - model.get_submodule(norm).eps)
    for name in state:
        if name in stored and name not in used:
            put(name, name)
    if not used or (strange := sorted(stored.keys() - used)):
        found = f"{strange[0]}, which that has not" if used else "none whose layers have its names"
        raise ModelError(f"{path}: expected weights of a {type(model).__name__}, found {found}.")


def parts_of(path: Path) -> list[str]:
    """What `reopen` can take as `part`: the members of an exported ensemble in order, or "" for a single network."""
    found = {name.split(".")[1] for name in _stored(path) if name.startswith(f"{MEMBERS}.")}
    return [f"{MEMBERS}.{number}" for number in sorted(found, key=int)] or [""]


@torch.no_grad()
def settle_norms(model: nn.Module, run: Callable[[], None]) -> None:
    """Give batch norms the statistics that they see while `run` feeds the model; what it computes stays the same.

    A norm that came out of a file has none of its own, and would change its output when training begins.
    """
    model.eval()
    seen: dict[nn.BatchNorm2d, tuple[int, Tensor, Tensor]] = {}

    def look(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, nn.BatchNorm2d)
        x = inputs[0].double()
        count, total, squares = seen.get(norm, (0, torch.zeros(1), torch.zeros(1)))
        seen[norm] = (
            count + x.numel() // x.shape[1], total + x.sum((0, 2, 3)), squares + (x * x).sum((0, 2, 3))
        )  # fmt: skip

    hooks = [m.register_forward_pre_hook(look) for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    run()
    for hook in hooks:
        hook.remove()
    for norm, (count, total, squares) in seen.items():
        mean = total / count
        spread = (squares / count - mean * mean).clamp(min=0)
        slope = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        norm.bias.copy_(norm.bias.double() + slope * (mean - norm.running_mean.double()))
        norm.weight.copy_(slope * (spread + norm.eps).sqrt())
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(spread)


@torch.no_grad()
def settle_sizes(model: nn.Module, *example: Tensor) -> None:
    """Give weights before norms the size that they are born with; what the model computes stays the same.

    Folding leaves every channel the size that its norm gave it: layers of the shipped depth head have from an 18th to
    35 times their size of birth. As a norm follows, size only decides how far a step turns the weights: one rate would
    shake some layers and hardly move others. `example` is an input of the model, whose norms have been settled.
    """
    for norm, conv in followed(model, *example).items():
        weight = conv.weight.flatten(1).double()
        size = weight.square().mean(1).sqrt()
        factor = torch.where(size > 0, (3 * weight.shape[1]) ** -0.5 / size, torch.ones_like(size))
        slope = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        conv.weight.mul_(factor.to(conv.weight.dtype).view(-1, *[1] * (conv.weight.ndim - 1)))
        norm.running_mean.copy_(norm.running_mean * factor)
        norm.running_var.copy_(norm.running_var * factor**2)
        norm.weight.copy_(slope / factor * (norm.running_var.double() + norm.eps).sqrt())


def _stored(path: Path) -> dict[str, Tensor]:
    """Weights of an exported file by the names that its model gives them; of an 8-bit file, as they were rounded."""
    import onnx
    from onnx import numpy_helper

    card = find_card(path)
    if card.storage == "int8" and card.streaming:
        # The quantiser replaces what it can compute beforehand, the memory's own numbers among it.
        raise ModelError(
            f"{path}: expected weights to train on from, found an 8-bit file of a network with a memory, which has "
            "lost them; start from the file that it was made from."
        )
    tensors = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(str(card.check_file())).graph.initializer
    }
    weights = {}
    for label, values in tensors.items():
        if label.endswith(EIGHT_BITS):
            values = _widened(values, *(_found(tensors, label, end) for end in ("_scale", "_zero_point")))
        elif not np.issubdtype(values.dtype, np.floating) or label.startswith("/") or label.endswith("_scale"):
            continue  # shapes, and constants of the graph that are no weights
        _, _, name = label.removesuffix(HALF).removesuffix(EIGHT_BITS).partition(".")  # without the graph's own prefix
        if not name and values.ndim == 4:
            raise ModelError(
                f"{path}: expected layers with the names of their model, found {label}; write the file again "
                "with the present `polypscope export`."
            )
        weights[name] = torch.from_numpy(values.astype(np.float32))
    return weights


def _found(tensors: dict[str, NDArray[Any]], label: str, end: str) -> NDArray[Any]:
    """What belongs to a quantised tensor: named after it, or, for weights, after what it was before."""
    return tensors.get(label + end, tensors.get(label.removesuffix(EIGHT_BITS) + end))  # type: ignore[return-value]


def _widened(values: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any]) -> NDArray[np.float32]:
    """What integers stand for; scales are of the whole tensor or of each output channel."""
    shape = (-1,) + (1,) * (values.ndim - 1)
    steps = values.astype(np.float32) - zero.astype(np.float32).reshape(shape)
    return np.asarray(steps * scale.reshape(shape), np.float32)
