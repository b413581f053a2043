"""Which detections find which polyps: the four criteria, exact and order-free.

MICCAI 2015 (Bernal et al., IEEE TMI 36(6), 2017, section III-A) asks whether the reported point lies inside the polyp's
mask. A polyp is detected when at least one detection matches it; a detection is a false positive when it matches no
polyp; further detections on the same polyp are neither. No assignment is needed, so the order of rows is irrelevant.
Coordinates are truncated with `int()`, x is the column; a point outside the image matches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.evaluation.detection.regions import FloatArray, IntArray, contains, intersection_px
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable
from polypscope.records.errors import UsageError, sentence

__all__ = ["Criterion", "Matches", "match"]

Criterion = Literal["point-in-mask", "point-in-box", "iou", "overlap"]
_CODES: dict[str, int] = {"point-in-mask": 0, "point-in-box": 1, "iou": 2, "overlap": 3}


@dataclass(frozen=True, eq=False)
class Matches:
    """`hit` (D,): the detection matches a polyp. `polyp_score` (P,): the best score among the detections that match the
    polyp, -inf where none does; detections without a score count as 1.
    """

    hit: NDArray[np.bool_]
    polyp_score: FloatArray

    @property
    def detected(self) -> NDArray[np.bool_]:
        """(P,) polyps found by at least one detection."""
        return np.asarray(self.polyp_score > -np.inf)


def match(
    truth: TruthTable,
    detections: DetectionTable,
    *,
    criterion: Criterion = "point-in-mask",
    iou_threshold: float = 0.5,
) -> Matches:
    """Match every detection against the polyps of its frame.

    `iou` and `overlap` compare masks where both sides have one, boxes otherwise, and refuse point-only methods.
    """
    if criterion not in _CODES:
        raise UsageError(sentence("criterion", expected=f"one of {', '.join(_CODES)}", found=repr(criterion)))
    code = _CODES[criterion]
    if code >= 2 and detections.regions is None and len(detections.x):
        raise UsageError(
            f"method {detections.name!r} gives points only, but the criterion {criterion!r} needs boxes or masks; "
            "use point-in-mask or point-in-box."
        )
    score = np.where(np.isnan(detections.score), 1.0, detections.score)
    regions, other = truth.regions, detections.regions
    if other is None:  # the kernel never reads these for the point criteria
        crop, start, bits = np.zeros((1, 4), np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint8)
        area, box = np.zeros(1, np.int64), np.zeros((1, 4))
    else:
        crop, start, bits, area, box = other.crop, other.start, other.bits, other.area_px, other.box
    hit, polyp_score = _match_kernel(
        code,
        iou_threshold,
        truth.height_px,
        truth.width_px,
        truth.first,
        (regions.crop, regions.start, regions.bits, regions.area_px, regions.box),
        detections.first,
        detections.x,
        detections.y,
        score,
        (crop, start, bits, area, box),
    )
    return Matches(hit=hit, polyp_score=polyp_score)


_Block = tuple[IntArray, IntArray, NDArray[np.uint8], IntArray, FloatArray]


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _match_kernel(
    code: int,
    iou_threshold: float,
    height: IntArray,
    width: IntArray,
    polyp_first: IntArray,
    polyps: _Block,
    detection_first: IntArray,
    xs: FloatArray,
    ys: FloatArray,
    score: FloatArray,
    others: _Block,
) -> tuple[NDArray[np.bool_], FloatArray]:
    crop, start, bits, area, box = polyps
    o_crop, o_start, o_bits, o_area, o_box = others
    hit = np.zeros(xs.shape[0], dtype=np.bool_)
    polyp_score = np.full(start.shape[0], -np.inf)
    for f in range(height.shape[0]):
        for d in range(detection_first[f], detection_first[f + 1]):
            x, y = int(xs[d]), int(ys[d])
            outside = xs[d] < 0 or ys[d] < 0 or x >= width[f] or y >= height[f]
            if code < 2 and outside:
                continue
            for p in range(polyp_first[f], polyp_first[f + 1]):
                if code == 0:
                    ok = contains(crop, start, bits, p, x, y)
                elif code == 1:
                    dx, dy = x - crop[p, 0], y - crop[p, 1]
                    ok = 0 <= dx < crop[p, 2] and 0 <= dy < crop[p, 3]
                elif start[p] < 0 and o_start[d] < 0:  # two boxes: exact real-valued areas
                    w = min(box[p, 0] + box[p, 2], o_box[d, 0] + o_box[d, 2]) - max(box[p, 0], o_box[d, 0])
                    h = min(box[p, 1] + box[p, 3], o_box[d, 1] + o_box[d, 3]) - max(box[p, 1], o_box[d, 1])
                    inter = max(w, 0.0) * max(h, 0.0)
                    union = box[p, 2] * box[p, 3] + o_box[d, 2] * o_box[d, 3] - inter
                    ok = inter > 0 and (code == 3 or inter >= iou_threshold * union)
                else:
                    shared = intersection_px(crop, start, bits, p, o_crop, o_start, o_bits, d)
                    joined = area[p] + o_area[d] - shared
                    ok = shared > 0 and (code == 3 or shared >= iou_threshold * joined)
                if ok:
                    hit[d] = True
                    polyp_score[p] = max(polyp_score[p], score[d])
    return hit, polyp_score
