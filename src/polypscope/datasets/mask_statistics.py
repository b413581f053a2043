"""What masks say of a data set: the attributes that they determine, and the statistics of SUN-SEG's Figures 3 and 4.

Attributes follow Table 2 of Ji et al. 2022, per clip:
FM  mean distance between the polyp's centroids in consecutive frames above 20 px
SO  mean share of the image below 0.05        LO  above 0.15
OV  the polyp touches the image's edge in some frame
SV  mean ratio of box areas over all pairs of frames (smaller / larger) below 0.5
The others (SI, IB, HO, GH, OC) are seen, not computed. Frames without a polyp are left out of every mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polypscope.datasets.derived_labels import tight_box

__all__ = ["COMPUTED", "MaskFacts", "attributes_of", "centre_map", "contrast", "mask_facts"]

COMPUTED = ("FM", "SO", "LO", "OV", "SV")
MAP_SIZE = 64
_BINS = 16


@dataclass(frozen=True)
class MaskFacts:
    """One frame's polyp: share of the image, centroid (x, y) in px, box area in px, and whether it touches the edge.

    centre_distance and far_distance: from the image's centre to the centroid and to the polyp's farthest pixel, as
    shares of half the image diagonal. All NaN for a frame without a polyp.
    """

    share: float
    x_px: float
    y_px: float
    box_area_px: float
    at_edge: bool
    centre_distance: float
    far_distance: float


def mask_facts(mask: NDArray[np.bool_]) -> MaskFacts:
    """Facts of one mask, bool (H, W).

    >>> facts = mask_facts(np.pad(np.ones((2, 2), bool), 4))
    >>> facts.share, facts.x_px, facts.at_edge, facts.centre_distance
    (0.04, 4.5, False, 0.0)
    """
    box = tight_box(mask)
    if box is None:
        nan = float("nan")
        return MaskFacts(0.0, nan, nan, nan, False, nan, nan)
    height, width = mask.shape
    rows, columns = np.nonzero(mask)
    x, y = float(columns.mean()), float(rows.mean())
    middle_x, middle_y, half = (width - 1) / 2, (height - 1) / 2, float(np.hypot(width, height)) / 2
    edge = bool(mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any())
    far = float(np.hypot(columns - middle_x, rows - middle_y).max()) / half
    centre = float(np.hypot(x - middle_x, y - middle_y)) / half
    return MaskFacts(len(rows) / mask.size, x, y, float(box[2] * box[3]), edge, centre, far)


def attributes_of(frames: Sequence[MaskFacts]) -> tuple[str, ...]:
    """The attributes that the masks of one clip, in order, determine.

    >>> still = MaskFacts(0.02, 10, 10, 400, False, 0, 0)
    >>> attributes_of([still, still])
    ('SO',)
    """
    seen = [facts for facts in frames if facts.share > 0]
    if not seen:
        return ()
    share = float(np.mean([facts.share for facts in seen]))
    steps = [
        float(np.hypot(b.x_px - a.x_px, b.y_px - a.y_px)) for a, b in pairwise(frames) if a.share > 0 and b.share > 0
    ]
    tests = {
        "FM": bool(steps) and float(np.mean(steps)) > 20.0,
        "SO": share < 0.05,
        "LO": share > 0.15,
        "OV": any(facts.at_edge for facts in seen),
        "SV": _mean_pair_ratio(np.array([facts.box_area_px for facts in seen])) < 0.5,
    }
    return tuple(name for name in COMPUTED if tests[name])


def _mean_pair_ratio(areas: NDArray[np.float64]) -> float:
    """Mean of smaller / larger over all pairs; 1 for a single frame.

    Sorted, the i-th area is the smaller one of every pair with a later one, so that no pair is formed.

    >>> float(_mean_pair_ratio(np.array([1.0, 2.0, 4.0])))
    0.4166666666666667
    """
    n = len(areas)
    if n < 2:
        return 1.0
    areas = np.sort(areas)
    inverse_of_later = np.cumsum((1.0 / areas)[::-1])[::-1]
    return float((areas[:-1] * inverse_of_later[1:]).sum() / (n * (n - 1) / 2))


def centre_map(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mask brought to `MAP_SIZE` squared by area, to be averaged over a data set (centre bias)."""
    import cv2

    return cv2.resize(mask.astype(np.float32), (MAP_SIZE, MAP_SIZE), interpolation=cv2.INTER_AREA).astype(np.float64)


def contrast(rgb: NDArray[np.uint8], mask: NDArray[np.bool_]) -> tuple[float, float]:
    """Global and local contrast of a polyp, each in [0, 1]: chi-squared distance between colour histograms.

    Global compares the polyp with all else; local with a ring around it, as wide as half its equivalent radius.
    Histograms have 16 bins per channel. NaN when either side is empty.
    """
    if not mask.any() or mask.all():
        return float("nan"), float("nan")
    # cropped: a distance transform of the whole frame would cost more than all else
    x, y, w, h = tight_box(mask) or (0, 0, 0, 0)
    width = max(3.0, float(np.sqrt(mask.sum() / np.pi)) / 2)
    margin = int(np.ceil(width)) + 1
    window = slice(max(0, y - margin), y + h + margin), slice(max(0, x - margin), x + w + margin)
    inside = mask[window]
    ring = ~inside & (ndimage.distance_transform_edt(~inside) <= width)
    polyp = _histogram(rgb[mask])
    local = _chi2(polyp, _histogram(rgb[window][ring])) if ring.any() else float("nan")
    return _chi2(polyp, _histogram(rgb[~mask])), local


def _histogram(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    counts = [np.bincount(pixels[:, c] // (256 // _BINS), minlength=_BINS) for c in range(3)]
    return np.concatenate(counts) / (3.0 * len(pixels))


def _chi2(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    total = a + b
    return float(0.5 * np.sum((a - b)[total > 0] ** 2 / total[total > 0]))
