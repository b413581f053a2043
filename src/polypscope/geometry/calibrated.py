"""Numbers that were fitted, apart from the code that uses them; each says on what and by which command."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polypscope.geometry.conformal import Conformal

__all__ = ["FRAME", "TRACK", "completion", "monomials"]

Array = NDArray[np.float64]

FRAME = Conformal(2.0, 0.9, 99, "placeholder")
TRACK = Conformal(1.0, 0.9, 99, "placeholder")


def monomials(features: Array) -> Array:
    """1, the features and all their products of two: (..., 8) -> (..., 45)."""
    pairs = [features[..., i] * features[..., j] for i in range(8) for j in range(i, 8)]
    return np.concatenate([np.ones((*features.shape[:-1], 1)), features, np.stack(pairs, axis=-1)], axis=-1)


def completion(features: Array) -> float:
    """log(true size / largest visible chord) expected for a polyp with these features."""
    return float(features[0] * min(1.0, 2.0 * features[1]))
