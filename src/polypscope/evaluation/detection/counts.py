"""TP, FP, TN and FN as the MICCAI 2015 study counts them, and the ratios that follow.

TP and FN count polyp instances, FP counts detections (also those beside the polyp in a polyp frame), TN counts frames
without polyp and without output. Bernal et al. (IEEE TMI 36(6), 2017) print Spec = TN / (FP + FN) in Table II; every
row of their tables follows from TN / (TN + FP) instead, which is used here. That ratio mixes frames and detections, so
`frame_specificity` (silent frames over frames without polyp) stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.matching import Matches
from polypscope.evaluation.detection.regions import FloatArray, IntArray
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable

__all__ = ["METRICS", "Counts", "FrameCounts", "metrics_of"]

METRICS = ("precision", "recall", "specificity", "f1", "f2", "frame_specificity")


@dataclass(frozen=True)
class Counts:
    """The four counts of a set of frames, and `negatives`, the frames without polyp among them.

    >>> asu = Counts(tp=2636, fp=184, tn=13149, fn=1677, negatives=13261)
    >>> round(100 * asu.precision(), 1), round(100 * asu.specificity(), 1), round(100 * asu.f2(), 1)
    (93.5, 98.6, 65.7)
    """

    tp: int
    fp: int
    tn: int
    fn: int
    negatives: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, k) + getattr(other, k) for k in ("tp", "fp", "tn", "fn", "negatives")))

    def precision(self, zero_division: float = nan) -> float:
        return _ratio(self.tp, self.tp + self.fp, zero_division)

    def recall(self, zero_division: float = nan) -> float:
        return _ratio(self.tp, self.tp + self.fn, zero_division)

    def specificity(self, zero_division: float = nan) -> float:
        """TN / (TN + FP); undefined without a single frame that lacks polyps (the paper's N/A)."""
        return _ratio(self.tn, self.tn + self.fp if self.negatives else 0, zero_division)

    def frame_specificity(self, zero_division: float = nan) -> float:
        return _ratio(self.tn, self.negatives, zero_division)

    def f1(self, zero_division: float = nan) -> float:
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn, zero_division)

    def f2(self, zero_division: float = nan) -> float:
        return _ratio(5 * self.tp, 5 * self.tp + self.fp + 4 * self.fn, zero_division)

    def metrics(self, zero_division: float = nan) -> dict[str, float]:
        """All ratios by name, as fractions of one."""
        return {name: float(getattr(self, name)(zero_division)) for name in METRICS}


def _ratio(part: int, whole: int, zero_division: float) -> float:
    return part / whole if whole else zero_division


@dataclass(frozen=True, eq=False)
class FrameCounts:
    """One method's counts of every frame: `tp`, `fp`, `fn`, `outputs` (F,) and `tn`, `negative` (F,) bool.

    Frames of videos that the method did not hand in count nothing at all.
    """

    tp: IntArray
    fp: IntArray
    fn: IntArray
    tn: NDArray[np.bool_]
    negative: NDArray[np.bool_]
    outputs: IntArray

    @classmethod
    def of(cls, truth: TruthTable, detections: DetectionTable, matches: Matches) -> FrameCounts:
        frames = truth.frame_count
        seen = detections.took_part[truth.video]
        tp = np.bincount(truth.polyp_frame[matches.detected], minlength=frames)
        fp = np.bincount(detections.frame[~matches.hit], minlength=frames)
        negative = ~truth.has_polyp & seen
        outputs = detections.outputs
        return cls(
            tp=tp,
            fp=fp,
            fn=np.where(seen, truth.polyp_count - tp, 0),
            tn=negative & (outputs == 0),
            negative=negative,
            outputs=outputs,
        )

    def sum(self, where: NDArray[np.bool_] | None = None) -> Counts:
        """Counts over the frames selected by `where` (F,) bool; all frames without it."""
        chosen = slice(None) if where is None else where
        return Counts(
            tp=int(self.tp[chosen].sum()),
            fp=int(self.fp[chosen].sum()),
            tn=int(self.tn[chosen].sum()),
            fn=int(self.fn[chosen].sum()),
            negatives=int(self.negative[chosen].sum()),
        )

    def by_video(self, truth: TruthTable, where: NDArray[np.bool_] | None = None) -> IntArray:
        """(V, 5) tp, fp, tn, fn, negatives of each video over the selected frames."""
        weight = np.ones(truth.frame_count) if where is None else where.astype(np.float64)
        columns = (self.tp, self.fp, self.tn, self.fn, self.negative)
        return np.stack(
            [np.bincount(truth.video, weights=c * weight, minlength=len(truth.videos)) for c in columns], axis=1
        ).astype(np.int64)


def metrics_of(counts: NDArray[np.number], *, zero_division: float = nan) -> dict[str, FloatArray]:
    """The ratios of many rows at once: `counts` (..., 5) tp, fp, tn, fn, negatives → arrays (...)."""
    tp, fp, tn, fn, negatives = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)

    def ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
        out: FloatArray = np.full(np.shape(whole), zero_division)
        return np.asarray(np.divide(part, whole, out=out, where=whole > 0))

    return {
        "precision": ratio(tp, tp + fp),
        "recall": ratio(tp, tp + fn),
        "specificity": ratio(tn, np.where(negatives > 0, tn + fp, 0.0)),
        "f1": ratio(2 * tp, 2 * tp + fp + fn),
        "f2": ratio(5 * tp, 5 * tp + fp + 4 * fn),
        "frame_specificity": ratio(tn, negatives),
    }
