"""Groups of videos by polyp presence, with pooled (micro) and per-video (macro) results.

The MICCAI 2015 study divides its videos into those with frames with and without polyps, those with polyp frames only
and those without any polyp (Table VII). A video without polyps has no recall, but a method that fires there gets
precision and F1 of 0 in the macro mean, so that silence on negatives is never worth the same as noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.counts import METRICS, Counts, FrameCounts, metrics_of
from polypscope.evaluation.detection.tables import TruthTable

__all__ = ["GROUPS", "GROUP_TITLES", "GroupResult", "group_results", "video_groups"]

GROUPS = ("all", "mixed", "polyp_only", "no_polyp")
GROUP_TITLES = {
    "all": "All videos",
    "mixed": "Videos with frames with and without polyp",
    "polyp_only": "Videos with only polyp frames",
    "no_polyp": "Videos without polyp frames",
}


@dataclass(frozen=True)
class GroupResult:
    """One method on one group: pooled counts, ratios from them (`micro`), and the mean over videos (`macro`).

    `macro_videos` says over how many videos each macro mean runs, since a ratio can be undefined in a video.
    """

    method: str
    group: str
    videos: int
    counts: Counts
    micro: dict[str, float]
    macro: dict[str, float]
    macro_videos: dict[str, int]


def video_groups(truth: TruthTable) -> NDArray[np.str_]:
    """(V,) group of each video: mixed, polyp_only or no_polyp."""
    frames = np.bincount(truth.video, minlength=len(truth.videos))
    positive = np.bincount(truth.video, weights=truth.has_polyp, minlength=len(truth.videos))
    return np.where(positive == 0, "no_polyp", np.where(positive == frames, "polyp_only", "mixed"))


def group_results(
    truth: TruthTable, method: str, counts: FrameCounts, took_part: NDArray[np.bool_], *, zero_division: float = nan
) -> list[GroupResult]:
    """One result for each group that has at least one video of the method; stills give `all` alone."""
    per_video = counts.by_video(truth)
    kind = video_groups(truth)
    ratios = metrics_of(per_video, zero_division=zero_division)
    out = []
    for group in GROUPS if truth.kind == "videos" else GROUPS[:1]:
        chosen = took_part & ((kind == group) | (group == "all"))
        if not chosen.any():
            continue
        pooled = Counts(*(int(v) for v in per_video[chosen].sum(axis=0)))
        defined = {name: ratios[name][chosen] for name in METRICS}
        defined = {name: values[np.isfinite(values)] for name, values in defined.items()}
        out.append(
            GroupResult(
                method=method,
                group=group,
                videos=int(chosen.sum()),
                counts=pooled,
                micro=pooled.metrics(zero_division),
                macro={name: float(values.mean()) if values.size else nan for name, values in defined.items()},
                macro_videos={name: int(values.size) for name, values in defined.items()},
            )
        )
    return out
