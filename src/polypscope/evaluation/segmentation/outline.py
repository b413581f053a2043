"""Agreement of outlines (ours, beyond the published protocols): boundary F and the 95th-percentile Hausdorff distance.

The outline of a mask is its pixels that touch what is outside it (4-neighbours; the image's edge counts as outside),
as `mask & ~binary_erosion(mask)`. Boundary F is the F1 of "this outline pixel has one of the other outline within the
tolerance", the tolerance being a share of the image diagonal as in the DAVIS video benchmark. Hausdorff-95 is the 95th
percentile of the distances from each outline pixel, of both masks together, to the other outline; a mask that is
missing on one side only costs the image diagonal, so that no failure drops out of an average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

try:
    from polypscope.evaluation.segmentation.kernels import nearest_squared, outline_pixels
except ImportError:  # no numba on this machine
    from polypscope.evaluation.segmentation.plain import nearest_squared, outline_pixels

_PAIRS_BY_BRUTE_FORCE = 6_000_000


@dataclass(frozen=True)
class Outlines:
    """Boundary F in [0, 1] and Hausdorff-95 in pixels."""

    boundary_f: float
    hausdorff95_px: float


def compare_outlines(
    truth: NDArray[np.uint8], truth_above: int, prediction: NDArray[np.uint8], above: int, tolerance: float
) -> Outlines:
    """Outlines of `truth > truth_above` and `prediction > above`, uint8 (H, W) of one shape.

    >>> a = np.zeros((50, 50), np.uint8); a[10:20, 10:20] = 255
    >>> compare_outlines(a, 128, np.roll(a, 3, axis=1), 127, 0.0)
    Outlines(boundary_f=0.3888888888888889, hausdorff95_px=3.0)
    """
    diagonal = math.hypot(*truth.shape)
    t, p = outline_pixels(truth, truth_above), outline_pixels(prediction, above)
    if not len(t) or not len(p):
        return Outlines(1.0, 0.0) if len(t) == len(p) else Outlines(0.0, diagonal)
    from_t, from_p = _distances_squared(t, p)
    reach2 = math.ceil(tolerance * diagonal) ** 2
    recall, precision = float(np.mean(from_t <= reach2)), float(np.mean(from_p <= reach2))
    f = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Outlines(f, float(np.percentile(np.sqrt(np.concatenate([from_t, from_p])), 95)))


def _distances_squared(a: Any, b: Any) -> tuple[Any, Any]:
    if len(a) * len(b) <= _PAIRS_BY_BRUTE_FORCE:
        return nearest_squared(a, b)
    # Ragged masks have outlines of 100,000 pixels: a tree then, whose distances are rounded back to whole squares.
    to_b, to_a = cKDTree(b).query(a)[0], cKDTree(a).query(b)[0]
    return np.rint(to_b**2), np.rint(to_a**2)
