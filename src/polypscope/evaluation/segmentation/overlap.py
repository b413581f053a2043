"""How much two binary masks overlap: Dice, IoU, precision, recall. The plainest measures, and the ones training logs.

A pair of two empty masks has no overlap to measure; `empty` says what it scores (1: "rightly found nothing").
The published protocols have rules of their own for that case: see `spec.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import RecordError

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """Pixels of a binary comparison; counts of several images add up to a pooled comparison.

    >>> c = Counts(tp=2, fp=1, fn=1, tn=5)
    >>> round(c.dice(), 3), c.iou(), round(c.precision(), 3)
    (0.667, 0.5, 0.667)
    >>> (c + c).dice() == c.dice()
    True
    """

    tp: int
    fp: int
    fn: int
    tn: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.tp + other.tp, self.fp + other.fp, self.fn + other.fn, self.tn + other.tn)

    def dice(self, empty: float = 1.0) -> float:
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn, empty)

    def iou(self, empty: float = 1.0) -> float:
        return _ratio(self.tp, self.tp + self.fp + self.fn, empty)

    def recall(self, empty: float = 1.0) -> float:
        """TP / truth; without truth it is `empty` if nothing was predicted, else 0."""
        return _ratio(self.tp, self.tp + self.fn, empty if self.fp == 0 else 0.0)

    def precision(self, empty: float = 1.0) -> float:
        """TP / predicted; without a prediction it is `empty` if there was nothing to find, else 0."""
        return _ratio(self.tp, self.tp + self.fp, empty if self.fn == 0 else 0.0)

    def specificity(self, empty: float = 1.0) -> float:
        return _ratio(self.tn, self.tn + self.fp, empty)


def _ratio(part: int, whole: int, empty: float) -> float:
    return part / whole if whole else empty


def count(truth: Mask, prediction: Mask) -> Counts:
    """Count the pixels of `truth` and `prediction`, bool arrays of one shape."""
    for name, mask in (("truth", truth), ("prediction", prediction)):
        if mask.dtype != np.bool_:
            hint = "threshold it first, e.g. image > 128"
            raise RecordError.of(name, expected="a bool mask", found=f"dtype {mask.dtype}", hint=hint)
    if truth.shape != prediction.shape:
        raise RecordError.of(
            "prediction",
            expected=f"the truth's shape {truth.shape}",
            found=str(prediction.shape),
            hint="resize the prediction to the truth",
        )
    tp = int(np.count_nonzero(truth & prediction))
    positives, predicted = int(np.count_nonzero(truth)), int(np.count_nonzero(prediction))
    return Counts(tp=tp, fp=predicted - tp, fn=positives - tp, tn=truth.size - positives - predicted + tp)


def dice(truth: Mask, prediction: Mask, empty: float = 1.0) -> float:
    """2 |T and P| / (|T| + |P|) of two bool masks.

    >>> dice(np.array([True, True, False]), np.array([True, False, False]))
    0.6666666666666666
    """
    return count(truth, prediction).dice(empty)


def iou(truth: Mask, prediction: Mask, empty: float = 1.0) -> float:
    """|T and P| / |T or P| of two bool masks (also called Jaccard).

    >>> iou(np.array([True, True, False]), np.array([True, False, False]))
    0.5
    """
    return count(truth, prediction).iou(empty)


def mean_dice(pairs: Iterable[tuple[Mask, Mask]], empty: float = 1.0) -> float:
    """Mean of the Dice of each (truth, prediction) pair: every image counts once."""
    return _mean([dice(truth, prediction, empty) for truth, prediction in pairs])


def mean_iou(pairs: Iterable[tuple[Mask, Mask]], empty: float = 1.0) -> float:
    """Mean of the IoU of each (truth, prediction) pair: every image counts once."""
    return _mean([iou(truth, prediction, empty) for truth, prediction in pairs])


def _mean(values: list[float]) -> float:
    if not values:
        hint = "check that the folder or loader is not empty"
        raise RecordError.of("pairs", expected="at least one pair of masks", found="none", hint=hint)
    return float(np.mean(values))
