"""How soon and how steadily a polyp is found: latency, survival, detection rate, temporal coherence.

Latency (Bernal et al., section III-D) is the first frame with a correct detection minus the first frame with the polyp.
Their Table XII leaves polyps that are never found out of the mean, which flatters a method that misses many; the
survival curve here keeps them as censored observations, and `by appearance` restarts the clock whenever a polyp
re-enters the view. Seconds come from time stamps, never from a guessed frame rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import nan

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.regions import FloatArray, IntArray
from polypscope.evaluation.detection.tables import TruthTable

__all__ = [
    "PolypTiming",
    "Survival",
    "TimingSummary",
    "coherence_by_video",
    "polyp_timings",
    "summarise_timing",
    "survival_curve",
]


@dataclass(frozen=True)
class PolypTiming:
    """One polyp (`appearance` = 0) or one of its appearances (1, 2, …) as one method saw it.

    `latency_frames` and `latency_s` are NaN when it was never found; `exposure_frames` and `exposure_s` are the time
    during which it could have been found (the censoring time of a miss).
    """

    method: str
    video: str
    polyp: int
    appearance: int
    paris: str | None
    first_frame: int
    last_frame: int
    frames: int
    detected_frames: int
    latency_frames: float
    latency_s: float
    exposure_frames: int
    exposure_s: float
    fragments: int

    @property
    def found(self) -> bool:
        return bool(np.isfinite(self.latency_frames))


def polyp_timings(
    truth: TruthTable, method: str, detected: NDArray[np.bool_], took_part: NDArray[np.bool_]
) -> list[PolypTiming]:
    """Timings of every polyp and every appearance. `detected` (P,): instances found by the method."""
    out: list[PolypTiming] = []
    tracks, frames = truth.tracks, truth.polyp_frame
    interval = truth.interval_s
    order = np.lexsort((frames, tracks))
    edges = np.flatnonzero(np.diff(tracks[order])) + 1
    for rows in np.split(order, edges):
        if rows.size == 0 or not took_part[truth.video[frames[rows[0]]]]:
            continue
        seen, place = np.unique(frames[rows], return_inverse=True)
        found = np.zeros(len(seen), dtype=np.bool_)
        np.logical_or.at(found, place, detected[rows])
        video = int(truth.video[seen[0]])
        polyp = int(truth.polyp_id[rows[0]]) if truth.identities else 1
        step = float(np.nan_to_num(interval[video]))

        def timing(
            part: slice,
            appearance: int,
            seen: IntArray = seen,
            found: NDArray[np.bool_] = found,
            video: int = video,
            polyp: int = polyp,
            paris: str | None = truth.paris[int(rows[0])],
            step: float = step,
        ) -> PolypTiming:
            rows_here, found_here = seen[part], found[part]
            index, pts_s = truth.index[rows_here], truth.pts_s[rows_here]
            hits = np.flatnonzero(found_here)
            joined = np.diff(index, prepend=index[0] - 1) == 1
            starts = found_here & ~(np.concatenate([[False], found_here[:-1]]) & joined)
            return PolypTiming(
                method=method,
                video=truth.videos[video],
                polyp=polyp,
                appearance=appearance,
                paris=paris,
                first_frame=int(index[0]),
                last_frame=int(index[-1]),
                frames=len(index),
                detected_frames=len(hits),
                latency_frames=float(index[hits[0]] - index[0]) if hits.size else nan,
                latency_s=float(pts_s[hits[0]] - pts_s[0]) if hits.size and truth.timed else nan,
                exposure_frames=int(index[-1] - index[0]) + 1,
                exposure_s=float(pts_s[-1] - pts_s[0]) + step if truth.timed else nan,
                fragments=int(starts.sum()),
            )

        out.append(timing(slice(0, len(seen)), 0))
        breaks = np.flatnonzero(np.diff(truth.index[seen]) > 1) + 1
        bounds = [0, *(int(b) for b in breaks), len(seen)]
        out.extend(timing(slice(a, b), n) for n, (a, b) in enumerate(pairwise(bounds), start=1))
    return out


@dataclass(frozen=True, eq=False)
class Survival:
    """Kaplan–Meier estimate: share of polyps not yet found after each `time`, with Greenwood's log-log 95 % band."""

    time: FloatArray
    not_yet_found: FloatArray
    lower: FloatArray
    upper: FloatArray
    at_risk: IntArray

    def median(self) -> float:
        """First time at which half of the polyps are found; NaN if that never happens."""
        below = np.flatnonzero(self.not_yet_found <= 0.5)
        return float(self.time[below[0]]) if below.size else nan


def survival_curve(latency: FloatArray, exposure: FloatArray) -> Survival:
    """Kaplan–Meier over polyps: `latency` (n,) with NaN for misses, censored at `exposure` (n,); any unit of time.

    >>> curve = survival_curve(np.array([0.0, 2.0, np.nan, 5.0]), np.array([9.0, 9.0, 3.0, 9.0]))
    >>> curve.time.tolist(), curve.not_yet_found.round(3).tolist()
    ([0.0, 2.0, 5.0], [0.75, 0.5, 0.0])
    """
    found = np.isfinite(latency)
    end = np.where(found, latency, exposure)
    times = np.unique(end[found])
    at_risk = np.array([(end >= t).sum() for t in times], dtype=np.int64)
    events = np.array([(end[found] == t).sum() for t in times], dtype=np.int64)
    survival: FloatArray = np.cumprod(1.0 - events / np.maximum(at_risk, 1)).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        greenwood = np.cumsum(events / (at_risk * (at_risk - events)))
        spread = 1.959963984540054 * np.sqrt(greenwood) / np.abs(np.log(survival))
        lower, upper = survival ** np.exp(spread), survival ** np.exp(-spread)
    inside = (survival > 0) & (survival < 1)
    return Survival(
        time=times,
        not_yet_found=survival,
        lower=np.where(inside, lower, survival),
        upper=np.where(inside, upper, survival),
        at_risk=at_risk,
    )


@dataclass(frozen=True)
class TimingSummary:
    """The row of a method in Tables XI(a) and XII; SDs use n − 1, fractions are of one.

    Latency means run over found polyps only (the paper's rule); `missed` polyps are counted beside them.
    """

    method: str
    polyps: int
    found: int
    missed: int
    detection_rate: float
    latency_frames_mean: float
    latency_frames_sd: float
    latency_s_mean: float
    latency_s_sd: float
    reappearance_latency_frames_mean: float
    reappearances: int
    reappearances_found: int
    median_time_to_detection_s: float
    coherence_mean: float
    coherence_sd: float
    sequence_recall_mean: float
    sequence_recall_sd: float
    fragments_per_found_appearance: float


def coherence_by_video(truth: TruthTable, detected: NDArray[np.bool_], took_part: NDArray[np.bool_]) -> FloatArray:
    """(V,) share of consecutive polyp-frame pairs in which the polyp is detected in both frames; NaN without pairs.

    With identities a pair is two consecutive frames showing the same polyp; without, two consecutive polyp frames.
    """
    tracks, frames = truth.tracks, truth.polyp_frame
    keys = np.stack([tracks, frames])
    if keys.shape[1] == 0:
        return np.full(len(truth.videos), nan)
    unique, place = np.unique(keys, axis=1, return_inverse=True)
    found = np.zeros(unique.shape[1], dtype=np.bool_)
    np.logical_or.at(found, place.reshape(-1), detected)
    track, frame = unique
    index, video = truth.index[frame], truth.video[frame]
    pair = (np.diff(track) == 0) & (np.diff(index) == 1)
    both = pair & found[:-1] & found[1:]
    total = np.bincount(video[:-1], weights=pair, minlength=len(truth.videos))
    good = np.bincount(video[:-1], weights=both, minlength=len(truth.videos))
    share = np.divide(good, total, out=np.full(len(truth.videos), nan), where=total > 0)
    return np.where(took_part, share, nan)


def summarise_timing(
    method: str, timings: list[PolypTiming], coherence: FloatArray, sequence_recall: FloatArray
) -> TimingSummary:
    """Means and SDs of a method. `coherence`, `sequence_recall` (V,) with NaN for videos without polyps."""
    whole = [t for t in timings if t.appearance == 0]
    again = [t for t in timings if t.appearance > 1]
    shown = [t for t in timings if t.appearance > 0 and t.found]
    frames = np.array([t.latency_frames for t in whole if t.found])
    seconds = np.array([t.latency_s for t in whole if t.found])
    timed = all(np.isfinite(t.exposure_s) for t in whole)
    curve = survival_curve(np.array([t.latency_s for t in whole]), np.array([t.exposure_s for t in whole]))
    return TimingSummary(
        method=method,
        polyps=len(whole),
        found=len(frames),
        missed=len(whole) - len(frames),
        detection_rate=len(frames) / len(whole) if whole else nan,
        latency_frames_mean=_mean(frames),
        latency_frames_sd=_sd(frames),
        latency_s_mean=_mean(seconds),
        latency_s_sd=_sd(seconds),
        reappearance_latency_frames_mean=_mean(np.array([t.latency_frames for t in again if t.found])),
        reappearances=len(again),
        reappearances_found=sum(t.found for t in again),
        median_time_to_detection_s=curve.median() if timed else nan,
        coherence_mean=_mean(coherence),
        coherence_sd=_sd(coherence),
        sequence_recall_mean=_mean(sequence_recall),
        sequence_recall_sd=_sd(sequence_recall),
        fragments_per_found_appearance=_mean(np.array([float(t.fragments) for t in shown])),
    )


def _mean(values: FloatArray) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else nan


def _sd(values: FloatArray) -> float:
    values = values[np.isfinite(values)]
    return float(values.std(ddof=1)) if values.size > 1 else nan
