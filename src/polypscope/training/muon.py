"""Muon: steps whose matrices turn every direction by as much, for layers that mix channels.

The momentum of a matrix is replaced by the nearest matrix with orthonormal rows or columns (Jordan et al., "Muon: an
optimizer for hidden layers in neural networks", 2024), found by five steps of a Newton-Schulz iteration, and scaled so
that its entries are as large as those of an AdamW step (Liu et al., "Muon is scalable for LLM training", 2025): one
rate serves both. Directions that few gradients point to are learnt as fast as the common ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from polypscope.training.precision import has_bfloat16

__all__ = ["Muon", "make_optimisers", "nearly_orthonormal"]

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the iteration: singular values end between 0.7 and 1.2, quickly
LEAST_SIDE = 16  # what has fewer rows or columns than this is hardly a matrix


@torch.no_grad()
def nearly_orthonormal(matrix: Tensor, steps: int = 5) -> Tensor:
    """A matrix with the same singular vectors whose singular values are all near 1."""
    upright = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if upright else matrix) / (matrix.norm() + 1e-7)
    x = x.bfloat16() if has_bfloat16() else x
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if upright else x).float()


class Muon(torch.optim.Optimizer):
    """For weights of two or more dimensions; all but the first count as columns."""

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step; weights without a gradient stay."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
                ahead = weight.grad.lerp(state["momentum"], MOMENTUM).flatten(1)
                change = nearly_orthonormal(ahead).view(weight.shape)
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(change, alpha=-group["lr"] * 0.2 * max(ahead.shape) ** 0.5)
        return loss


def make_optimisers(model: nn.Module, rate: float, decay: float = 1e-2) -> list[torch.optim.Optimizer]:
    """Muon for the convolutions of a model that mix channels, AdamW for everything else."""
    mixing = [
        layer.weight
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d) and layer.groups == 1 and min(layer.weight.flatten(1).shape) >= LEAST_SIDE
    ]
    chosen = {id(weight) for weight in mixing}
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    groups = [
        {"params": [parameter for parameter in others if parameter.ndim > 1], "weight_decay": decay},
        {"params": [parameter for parameter in others if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    return [Muon(mixing, rate, decay), torch.optim.AdamW(groups, lr=rate)]
