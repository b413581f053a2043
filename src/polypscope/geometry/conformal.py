"""Split conformal intervals for sizes: honest coverage from a calibration set of other polyps.

Scores are |log(true / estimate)| / sigma, sigma being the estimate's own relative uncertainty, so that easy polyps get
short intervals and hard ones long ones. With n calibration *polyps* (never frames: frames of one polyp are not
exchangeable with those of another) the ceil((n + 1) level)-th smallest score q gives intervals
estimate · exp(± q sigma) that cover a new polyp of the same kind with probability at least `level` (Vovk et al. 2005;
Lei et al. 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polypscope.records.errors import RecordError

__all__ = ["Conformal", "fit"]


@dataclass(frozen=True, slots=True)
class Conformal:
    """A fitted interval rule: quantile of the scores, its level, how many polyps it came from, and what they were."""

    quantile: float
    level: float
    polyps: int
    source: str

    def interval_mm(self, size_mm: float, sigma: float) -> tuple[float, float]:
        """Interval of a size whose relative uncertainty is `sigma`.

        >>> low, high = Conformal(1.5, 0.9, 100, "example").interval_mm(10.0, 0.05)
        >>> round(low, 2), round(high, 2)
        (9.28, 10.78)
        """
        half = self.quantile * sigma
        return size_mm * math.exp(-half), size_mm * math.exp(half)


def fit(sizes_mm: ArrayLike, true_mm: ArrayLike, sigmas: ArrayLike, *, level: float = 0.9, source: str) -> Conformal:
    """Fit the rule on one estimate per calibration polyp.

    >>> rule = fit([10, 10, 10, 10], [10, 11, 10, 9], [0.1] * 4, level=0.75, source="example")
    >>> round(rule.quantile, 2)
    1.05
    """
    sizes, true, sigma = (np.asarray(a, dtype=np.float64) for a in (sizes_mm, true_mm, sigmas))
    if not (sizes.shape == true.shape == sigma.shape and sizes.ndim == 1):
        raise RecordError.of(
            "conformal fit", expected="three lists of one length", found=f"{sizes.shape}, {true.shape}"
        )
    if np.any(sizes <= 0) or np.any(true <= 0) or np.any(sigma <= 0):
        raise RecordError.of("conformal fit", expected="sizes and sigmas above 0", found="zero or negative values")
    rank = math.ceil((len(sizes) + 1) * level)
    if rank > len(sizes):
        raise RecordError.of(
            "conformal fit",
            expected=f"at least {math.ceil(level / (1 - level) - 1e-9)} polyps for level {level:g}",
            found=str(len(sizes)),
            hint="calibrate on more polyps or ask for a lower level",
        )
    scores = np.sort(np.abs(np.log(true / sizes)) / sigma)
    return Conformal(float(scores[rank - 1]), level, len(sizes), source)
