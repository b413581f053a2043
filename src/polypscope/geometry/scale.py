"""How wrong the scale of predicted depth is at any moment of a video, from a few known depths.

A network that sees one colon errs in scale in two ways: by a factor that all frames share, because of what this colon
looks like, and by one that comes and goes with the view. `python benchmarks/depth_accuracy.py --course` measures both,
and how long the second lasts. A known depth, such as a forceps contact, tells the error of one point at one moment; the
best linear estimate at any other moment follows from these figures (simple kriging: Krige 1951; Rasmussen and Williams,
"Gaussian Processes for Machine Learning", 2006, chapter 2). Contacts count most for the frames around them, and several
count more than one. What they are worth for sizes is measured by `python benchmarks/contact_scale.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import RecordError

__all__ = ["CHANGING", "LASTS_S", "READING", "SHARED", "ScaleCourse"]

Array = NDArray[np.float64]

# Standard deviations of the logarithm of predicted / true depth, measured on simulated colons.
SHARED = 0.074  # of what all frames of a video share
CHANGING = 0.080  # of what changes with the view
LASTS_S = 0.6  # how long that stays alike, in s
READING = 0.09  # of a single point that an instrument touches, against its frame
_ODD = 2.0  # readings so many times further off than usual lose their say


@dataclass(frozen=True, slots=True)
class ScaleCourse:
    """By what predicted depth is to be multiplied, frame by frame.

    Parameters
    ----------
    times_s
        When a depth was known.
    ratios
        Known / predicted depth there.

    >>> course = ScaleCourse((2.0,), (1.2,))
    >>> round(course.factor(2.0), 3), round(course.factor(60.0), 3)
    (1.114, 1.051)
    """

    times_s: tuple[float, ...]
    ratios: tuple[float, ...]
    _weights: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.times_s or len(self.times_s) != len(self.ratios):
            raise RecordError.of(
                "ScaleCourse",
                expected="as many ratios as times, at least one",
                found=f"{len(self.ratios)} and {len(self.times_s)}",
            )
        if not all(math.isfinite(ratio) and ratio > 0 for ratio in self.ratios):
            raise RecordError.of("ScaleCourse.ratios", expected="numbers above 0", found=str(self.ratios))
        told = np.log(self.ratios)
        alike = _alike(np.array(self.times_s), np.array(self.times_s))
        weights: Array = np.zeros(len(told))
        for _ in range(10):
            # A reading that disagrees with the others is trusted less, as if its error were drawn from heavy tails.
            left = told - alike @ weights
            doubt = 1 + (left / (_ODD * READING)) ** 2 if len(told) > 2 else np.ones(len(told))
            weights = np.asarray(np.linalg.solve(alike + READING**2 * np.diag(doubt), told), np.float64)
        object.__setattr__(self, "_weights", weights)

    def factor(self, time_s: float) -> float:
        """What to multiply the depth of a frame at `time_s` by."""
        return float(np.exp(_alike(np.array([time_s]), np.array(self.times_s))[0] @ self._weights))


def _alike(a: Array, b: Array) -> Array:
    """Covariance of the scale's error between the moments a (n,) and b (m,): (n, m)."""
    apart_s = np.abs(a[:, None] - b[None])
    return SHARED**2 + CHANGING**2 * np.exp(-apart_s / LASTS_S)
