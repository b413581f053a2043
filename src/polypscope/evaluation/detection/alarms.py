"""Alarm events: what a person at the screen would notice, instead of single frames.

Beyond the paper. A run of consecutive frames in which the method points at a polyp is a true alarm; a run in which it
fires without pointing at any polyp is a false alarm, also when it goes over into a polyp later, so that firing on
frames without polyps always costs. Only runs that last at least τ seconds count, for several τ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.counts import FrameCounts
from polypscope.evaluation.detection.regions import FloatArray, IntArray
from polypscope.evaluation.detection.tables import TruthTable

__all__ = ["DEFAULT_TAUS_S", "AlarmSummary", "Runs", "alarm_summaries", "find_runs"]

DEFAULT_TAUS_S = (0.0, 0.2, 0.5, 1.0)


@dataclass(frozen=True, eq=False)
class Runs:
    """Maximal runs: `first`, `last` (R,) frame rows, `video` (R,), `duration_s` (R,) including the last frame."""

    first: IntArray
    last: IntArray
    video: IntArray
    duration_s: FloatArray


@dataclass(frozen=True)
class AlarmSummary:
    """Alarms of at least `tau_s` seconds of one method over the whole time it was given."""

    method: str
    tau_s: float
    true_alarms: int
    false_alarms: int
    minutes: float
    false_alarms_per_minute: float
    false_alarm_seconds: float
    mean_false_alarm_s: float
    polyps_alarmed: int
    polyps: int


def find_runs(truth: TruthTable, active: NDArray[np.bool_]) -> Runs:
    """Maximal runs of active frames with consecutive indices inside one video."""
    interval = np.nan_to_num(truth.interval_s)
    joined = np.zeros(truth.frame_count, dtype=np.bool_)
    joined[1:] = (np.diff(truth.video) == 0) & (np.diff(truth.index) == 1)
    before = np.concatenate([[False], active[:-1]]) & joined
    after = np.concatenate([active[1:], [False]]) & np.concatenate([joined[1:], [False]])
    first = np.flatnonzero(active & ~before)
    last = np.flatnonzero(active & ~after)
    video = truth.video[first]
    duration = truth.pts_s[last] - truth.pts_s[first] + interval[video]
    return Runs(first=first, last=last, video=video, duration_s=duration)


def alarm_summaries(
    truth: TruthTable,
    method: str,
    counts: FrameCounts,
    detected: NDArray[np.bool_],
    took_part: NDArray[np.bool_],
    *,
    taus_s: Sequence[float] = DEFAULT_TAUS_S,
) -> list[AlarmSummary]:
    """One summary for each τ; empty without time stamps. `detected` (P,): polyp instances found."""
    if not truth.timed:
        return []
    minutes = float(np.nansum(np.where(took_part, truth.duration_s, nan))) / 60.0
    true_runs = find_runs(truth, counts.tp > 0)
    false_runs = find_runs(truth, (counts.fp > 0) & (counts.tp == 0))
    tracks = truth.tracks
    present = took_part[truth.video[truth.polyp_frame]]
    out = []
    # A stamp rarely falls on τ exactly; a thousandth of a frame keeps "at least τ" from depending on rounding.
    slack = 1e-3 * float(np.nanmedian(truth.interval_s)) if np.isfinite(truth.interval_s).any() else 0.0
    for tau_s in taus_s:
        long_true = true_runs.duration_s >= tau_s - slack
        long_false = false_runs.duration_s >= tau_s - slack
        inside = np.zeros(truth.frame_count + 1, dtype=np.int64)
        np.add.at(inside, true_runs.first[long_true], 1)
        np.add.at(inside, true_runs.last[long_true] + 1, -1)
        alarmed = np.cumsum(inside)[:-1] > 0
        lengths = false_runs.duration_s[long_false]
        out.append(
            AlarmSummary(
                method=method,
                tau_s=float(tau_s),
                true_alarms=int(long_true.sum()),
                false_alarms=int(long_false.sum()),
                minutes=minutes,
                false_alarms_per_minute=float(long_false.sum()) / minutes if minutes > 0 else nan,
                false_alarm_seconds=float(lengths.sum()),
                mean_false_alarm_s=float(lengths.mean()) if lengths.size else nan,
                polyps_alarmed=len(np.unique(tracks[detected & alarmed[truth.polyp_frame]])),
                polyps=len(np.unique(tracks[present])),
            )
        )
    return out
