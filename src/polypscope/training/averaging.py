"""The mean of two runs of which the second went on from the first.

Two such solutions lie in one valley, and a point between them generalises better than either (Wortsman et al., "Model
soups", 2022); it costs nothing at run time.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from polypscope.records.errors import UsageError

# What a head grew between the runs stood for zero before: what it adds is scaled, the rest of it is kept.
_GROWN = (".pointwise.1", "depth.grain.5.1", *(f"depth.surveys.{n}.out" for n in range(2)))
_ADDS = tuple(f"{layer}.{part}" for layer in _GROWN for part in ("weight", "bias"))


def mean_of(first: dict[str, Tensor], second: dict[str, Tensor], share: float = 0.5) -> dict[str, Tensor]:
    """Weights between two states, `share` of the way from the first to the second."""
    if unknown := sorted(first.keys() - second.keys()):
        raise UsageError(f"Runs: expected the second to go on from the first, found {unknown[0]} in the first only.")
    mean = {}
    for name, value in second.items():
        if not value.is_floating_point():
            mean[name] = value
        elif name in first:
            mean[name] = torch.lerp(first[name], value, share)
        else:
            mean[name] = share * value if name.endswith(_ADDS) else value
    return mean


def average_runs(first: Path, second: Path, out: Path, share: float = 0.5) -> None:
    """Write the mean of two runs with [simulated], each a `last.pt` or a `joint.pt`, into the folder `out`.

    `weights.pt` and `depth.pt` are the parts to export, `joint.pt` both in one, from which a further run can start.
    """
    states = [torch.load(path, map_location="cpu", weights_only=True) for path in (first, second)]
    config = states[1]["config"]
    weights = mean_of(*(state.get("average") or state["model"] for state in states), share)
    parts = {
        part: {name.removeprefix(part): value for name, value in weights.items() if name.startswith(part)}
        for part in ("segmenter.", "depth.")
    }
    head = parts["depth."]
    channels = [head["grain.0.0.weight"].shape[1], head["merge8.fine.0.weight"].shape[1]]
    out.mkdir(parents=True, exist_ok=True)
    torch.save({"model": weights, "config": config}, out / "joint.pt")
    torch.save({"model": parts["segmenter."], "config": config}, out / "weights.pt")
    torch.save({"depth": head, "channels": channels}, out / "depth.pt")
