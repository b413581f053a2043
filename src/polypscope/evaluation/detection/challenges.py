"""Image challenges: does overlay text, glare, stool or blur make a method better or worse (Bernal et al., Table VIII)?

Labels come from several raters per frame; the majority decides, a tie leaves the frame undecided and it is then left
out of that challenge, and counted. Performance with the challenge minus performance without it is given in percentage
points: precision, recall and F1 on polyp frames, specificity on the others, each with an interval from a bootstrap
that draws whole videos, because neighbouring frames are near copies of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.bootstrap import bootstrap_weights
from polypscope.evaluation.detection.counts import FrameCounts, metrics_of
from polypscope.evaluation.detection.regions import FloatArray
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable
from polypscope.evaluation.statistics.agreement import fleiss_kappa, krippendorff_alpha

__all__ = ["CHALLENGES", "POLYP_ONLY", "Agreement", "ChallengeDifference", "Labels", "challenge_differences"]

CHALLENGES: dict[str, str] = {
    "overlay": "Overlay information",
    "highlights": "Many specular highlights",
    "overexposed": "Overexposed regions",
    "content": "Intestinal content",
    "lumen": "Visible lumen",
    "incomplete": "Incomplete polyp",
    "polyp_highlights": "Highlights inside the polyp",
    "low_visibility": "Low visibility",
}
# These can only be judged where a polyp is. (The paper prints N/A for the first two; low visibility it rates anywhere.)
POLYP_ONLY = ("incomplete", "polyp_highlights")


@dataclass(frozen=True, eq=False)
class Labels:
    """What the raters said: `values` (F, R, C) 1 present, 0 absent, NaN not rated; F frames of the truth table."""

    raters: tuple[str, ...]
    challenges: tuple[str, ...]
    values: FloatArray

    def majority(self) -> NDArray[np.int8]:
        """(F, C): 1 present, 0 absent, -1 undecided (a tie, or nobody rated it)."""
        yes = np.nansum(self.values, axis=1)
        rated = np.isfinite(self.values).sum(axis=1)
        return np.where(2 * yes > rated, 1, np.where(2 * yes < rated, 0, -1)).astype(np.int8)

    def agreement(self) -> list[Agreement]:
        """Per challenge, over the frames that anybody rated."""
        decided = self.majority()
        out = []
        for c, challenge in enumerate(self.challenges):
            ratings = self.values[:, :, c]
            rated = np.isfinite(ratings).any(axis=1)
            complete = ratings[np.isfinite(ratings).all(axis=1)]
            counts = np.stack([(complete == 0).sum(axis=1), (complete == 1).sum(axis=1)], axis=1)
            alike = (complete == complete[:, :1]).all(axis=1) if len(complete) else np.zeros(0)
            out.append(
                Agreement(
                    challenge=challenge,
                    frames=int(rated.sum()),
                    present=int((decided[:, c] == 1).sum()),
                    undecided=int(((decided[:, c] == -1) & rated).sum()),
                    unanimous=float(alike.mean()) if alike.size else nan,
                    fleiss_kappa=fleiss_kappa(counts) if len(complete) and ratings.shape[1] > 1 else nan,
                    krippendorff_alpha=krippendorff_alpha(ratings.T) if ratings.shape[1] > 1 else nan,
                )
            )
        return out


@dataclass(frozen=True)
class Agreement:
    """How far the raters agree on one challenge, and how many frames show it by majority (Table V)."""

    challenge: str
    frames: int
    present: int
    undecided: int
    unanimous: float
    fleiss_kappa: float
    krippendorff_alpha: float


@dataclass(frozen=True)
class ChallengeDifference:
    """With minus without, in percentage points, and its bootstrap interval; NaN where a side is empty."""

    method: str
    challenge: str
    metric: str
    frames_with: int
    frames_without: int
    with_challenge: float
    without: float
    difference_pp: float
    low_pp: float
    high_pp: float


def challenge_differences(
    truth: TruthTable,
    detections: DetectionTable,
    counts: FrameCounts,
    labels: Labels,
    *,
    clusters: Sequence[str] | None = None,
    replicates: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> list[ChallengeDifference]:
    """All differences of a method. `clusters` (V,) names the patient of each video; each video alone without it."""
    decided = labels.majority()
    weights = bootstrap_weights(list(clusters or truth.patients or truth.videos), replicates, seed)
    seen = detections.took_part[truth.video]
    out = []
    for c, challenge in enumerate(labels.challenges):
        for positive, metrics in ((True, ("precision", "recall", "f1")), (False, ("specificity",))):
            if not positive and challenge in POLYP_ONLY:
                continue
            frames = seen & (truth.has_polyp == positive)
            sides = [frames & (decided[:, c] == value) for value in (1, 0)]
            tables = [counts.by_video(truth, side) for side in sides]
            whole = [metrics_of(table.sum(axis=0)) for table in tables]
            drawn = [metrics_of(weights @ table) for table in tables]
            for metric in metrics:
                difference = 100.0 * (drawn[0][metric] - drawn[1][metric])
                difference = difference[np.isfinite(difference)]
                tail = 50.0 * (1.0 - level)
                low, high = np.percentile(difference, [tail, 100.0 - tail]) if difference.size else (nan, nan)
                with_, without = float(whole[0][metric]), float(whole[1][metric])
                out.append(
                    ChallengeDifference(
                        method=detections.name,
                        challenge=challenge,
                        metric=metric,
                        frames_with=int(sides[0].sum()),
                        frames_without=int(sides[1].sum()),
                        with_challenge=with_,
                        without=without,
                        difference_pp=100.0 * (with_ - without),
                        low_pp=float(low),
                        high_pp=float(high),
                    )
                )
    return out
