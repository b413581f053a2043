"""Curves over the confidence threshold: precision–recall, ROC as the paper draws it, frame-presence ROC and FROC.

Every curve comes from one matching pass: a polyp is found at threshold t when its best matching score reaches t, a
false positive stays while its own score does, and a frame without polyp turns into a true negative once its highest
score falls below. Methods without confidences give one operating point. False positives on frames without polyps
count in every curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.counts import metrics_of
from polypscope.evaluation.detection.matching import Matches
from polypscope.evaluation.detection.regions import FloatArray, IntArray
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable

__all__ = ["Curves", "threshold_curves"]


@dataclass(frozen=True, eq=False)
class Curves:
    """T operating points from strict to lax; one point when the method gives no confidences (`is_curve` False).

    `counts` (T, 5) tp, fp, tn, fn, negatives. `presence_tpr`, `presence_fpr` (T,) judge frames, not places.
    """

    method: str
    is_curve: bool
    threshold: FloatArray
    counts: IntArray
    precision: FloatArray
    recall: FloatArray
    specificity: FloatArray
    f1: FloatArray
    presence_tpr: FloatArray
    presence_fpr: FloatArray
    fp_per_frame: FloatArray
    fp_per_minute: FloatArray
    fp_per_video: FloatArray
    average_precision: float
    presence_auc: float

    def best_f1(self) -> tuple[float, float]:
        """(threshold, F1) of the best F1: chosen on this very data, so it flatters."""
        if not np.isfinite(self.f1).any():
            return nan, nan
        k = int(np.nanargmax(self.f1))
        return float(self.threshold[k]), float(self.f1[k])

    def recall_at_fp_per_frame(self, rate: float) -> float:
        """Highest recall with at most `rate` false positives per frame; 0 when even the strictest point has more."""
        allowed = self.recall[self.fp_per_frame <= rate]
        return float(allowed.max()) if allowed.size else 0.0


def threshold_curves(
    truth: TruthTable, detections: DetectionTable, matches: Matches, *, max_points: int = 2000
) -> Curves:
    """All curves of a method over the videos in which it took part; `max_points` thins what is kept, not the areas."""
    seen = detections.took_part[truth.video]
    polyp_seen = seen[truth.polyp_frame]
    scored = detections.has_scores
    score = detections.score if scored else np.ones(len(detections.x))
    polyp_score = matches.polyp_score[polyp_seen]
    frame_score = np.full(truth.frame_count, -np.inf)
    np.maximum.at(frame_score, detections.frame, score)
    positive = truth.has_polyp & seen
    negative = ~truth.has_polyp & seen

    if scored:
        threshold = np.unique(score)[::-1]
    else:
        threshold = np.array([1.0])
    tp = _at_least(polyp_score, threshold)
    fp = _at_least(score[~matches.hit], threshold)
    alarmed_negative = _at_least(frame_score[negative], threshold)
    alarmed_positive = _at_least(frame_score[positive], threshold)
    negatives, positives, polyps = int(negative.sum()), int(positive.sum()), int(polyp_seen.sum())
    counts = np.stack(
        [tp, fp, negatives - alarmed_negative, polyps - tp, np.full(len(threshold), negatives)], axis=1
    ).astype(np.int64)
    ratios = metrics_of(counts)
    presence_tpr = alarmed_positive / positives if positives else np.full(len(threshold), nan)
    presence_fpr = alarmed_negative / negatives if negatives else np.full(len(threshold), nan)
    minutes = float(np.nansum(np.where(detections.took_part, truth.duration_s, nan))) / 60.0
    keep = _thin(len(threshold), max_points)
    return Curves(
        method=detections.name,
        is_curve=scored,
        threshold=threshold[keep],
        counts=counts[keep],
        precision=ratios["precision"][keep],
        recall=ratios["recall"][keep],
        specificity=ratios["specificity"][keep],
        f1=ratios["f1"][keep],
        presence_tpr=presence_tpr[keep],
        presence_fpr=presence_fpr[keep],
        fp_per_frame=(fp / max(int(seen.sum()), 1))[keep],
        fp_per_minute=(fp / minutes if minutes > 0 else np.full(len(threshold), nan))[keep],
        fp_per_video=(fp / max(int(detections.took_part.sum()), 1))[keep],
        average_precision=_average_precision(ratios["precision"], ratios["recall"]) if scored else nan,
        presence_auc=_presence_auc(frame_score[positive], frame_score[negative]) if scored else nan,
    )


def _at_least(values: FloatArray, threshold: FloatArray) -> IntArray:
    """How many values reach each threshold."""
    ordered = np.sort(values)
    return np.asarray(len(ordered) - np.searchsorted(ordered, threshold, side="left"), dtype=np.int64)


def _average_precision(precision: FloatArray, recall: FloatArray) -> float:
    """Sum of precision over the steps of recall: no interpolation, so that it never flatters."""
    steps = np.diff(np.nan_to_num(recall), prepend=0.0)
    return float(np.sum(steps * np.nan_to_num(precision)))


def _presence_auc(positive: FloatArray, negative: FloatArray) -> float:
    """Chance that a polyp frame outscores a frame without polyp, ties count half; silent frames are lowest."""
    if positive.size == 0 or negative.size == 0:
        return nan
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, side="left")
    equal = np.searchsorted(ordered, positive, side="right") - below
    return float((below + 0.5 * equal).sum() / (positive.size * negative.size))


def _thin(count: int, max_points: int) -> NDArray[np.int64]:
    if count <= max_points:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, max_points).round().astype(np.int64))
