"""Concentration ratio: how much of a heat map's energy lies inside the polyp (Bernal et al., section III-E5)."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

__all__ = ["ConcentrationSummary", "concentration_ratio", "summarise_concentration"]


def concentration_ratio(energy: NDArray[np.floating], inside: NDArray[np.bool_]) -> float:
    """Share of the sum of `energy` (H, W) that falls on `inside` (H, W).

    A map without any energy scores 0 on a frame with a polyp: it did not point at the polyp.

    >>> concentration_ratio(np.array([[3.0, 1.0]]), np.array([[True, False]]))
    0.75
    """
    total = float(energy.sum(dtype=np.float64))
    return float(energy[inside].sum(dtype=np.float64)) / total if total > 0 else 0.0


@dataclass(frozen=True)
class ConcentrationSummary:
    """Mean and SD (n − 1) over the polyp frames of a method that handed in maps."""

    method: str
    frames: int
    mean: float
    sd: float


def summarise_concentration(method: str, ratios: NDArray[np.float64]) -> ConcentrationSummary:
    """`ratios` (F,) with NaN for frames without polyp or map."""
    values = ratios[np.isfinite(ratios)]
    return ConcentrationSummary(
        method=method,
        frames=int(values.size),
        mean=float(values.mean()) if values.size else nan,
        sd=float(values.std(ddof=1)) if values.size > 1 else nan,
    )
