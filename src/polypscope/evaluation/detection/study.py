"""The whole MICCAI 2015 validation study as one pure function: truth and methods in, every table's numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np

from polypscope.evaluation.detection.alarms import DEFAULT_TAUS_S, AlarmSummary, alarm_summaries
from polypscope.evaluation.detection.challenges import (
    Agreement,
    ChallengeDifference,
    Labels,
    challenge_differences,
)
from polypscope.evaluation.detection.concentration import ConcentrationSummary, summarise_concentration
from polypscope.evaluation.detection.counts import FrameCounts, metrics_of
from polypscope.evaluation.detection.curves import Curves, threshold_curves
from polypscope.evaluation.detection.groups import GroupResult, group_results, video_groups
from polypscope.evaluation.detection.matching import Criterion, Matches, match
from polypscope.evaluation.detection.morphology import MorphologyResult, morphology_results
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable
from polypscope.evaluation.detection.timing import (
    PolypTiming,
    TimingSummary,
    coherence_by_video,
    polyp_timings,
    summarise_timing,
)
from polypscope.records.errors import UsageError

__all__ = ["OFFICIAL", "DetectionResult", "DetectionSpec", "MethodResult", "evaluate_detection"]


@dataclass(frozen=True)
class DetectionSpec:
    """The choices of the protocol; the defaults are the paper's, as its own numbers show.

    criterion, iou_threshold: when a detection finds a polyp. zero_division: value of a ratio without cases.
    alarm_taus_s: shortest alarms that count. replicates, seed: of the bootstrap.
    """

    criterion: Criterion = "point-in-mask"
    iou_threshold: float = 0.5
    zero_division: float = nan
    alarm_taus_s: tuple[float, ...] = DEFAULT_TAUS_S
    replicates: int = 1000
    seed: int = 0


OFFICIAL = DetectionSpec()


@dataclass(frozen=True, eq=False)
class MethodResult:
    """Everything about one method. `video_metrics`: per metric an array (V,), NaN where it did not take part."""

    name: str
    detections: DetectionTable
    matches: Matches
    counts: FrameCounts
    groups: tuple[GroupResult, ...]
    video_counts: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    video_metrics: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]
    timings: tuple[PolypTiming, ...]
    timing: TimingSummary | None
    curves: Curves
    alarms: tuple[AlarmSummary, ...]
    morphology: tuple[MorphologyResult, ...]
    challenges: tuple[ChallengeDifference, ...] = ()
    concentration: ConcentrationSummary | None = None

    def group(self, name: str) -> GroupResult | None:
        """Result on one group of videos, if there is such a video."""
        return next((g for g in self.groups if g.group == name), None)


@dataclass(frozen=True, eq=False)
class DetectionResult:
    """The study: the truth, what was chosen, one result per method, and how the raters agreed."""

    truth: TruthTable
    spec: DetectionSpec
    methods: tuple[MethodResult, ...]
    labels: Labels | None = None
    agreement: tuple[Agreement, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    def method(self, name: str) -> MethodResult:
        """A method by name."""
        for result in self.methods:
            if result.name == name:
                return result
        raise UsageError(f"no method {name!r} in this study; there are {', '.join(m.name for m in self.methods)}.")


def evaluate_detection(
    truth: TruthTable,
    methods: Sequence[DetectionTable],
    *,
    spec: DetectionSpec = OFFICIAL,
    labels: Labels | None = None,
) -> DetectionResult:
    """Score every method on the whole study; frames without polyps and silent methods included."""
    names = [m.name for m in methods]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two methods are called {twice!r}; name them apart, as in NAME=PATH.")
    kind = video_groups(truth)
    results = []
    for table in methods:
        found = match(truth, table, criterion=spec.criterion, iou_threshold=spec.iou_threshold)
        counts = FrameCounts.of(truth, table, found)
        per_video = counts.by_video(truth)
        ratios = metrics_of(per_video, zero_division=spec.zero_division)
        metrics = {name: np.where(table.took_part, values, nan) for name, values in ratios.items()}
        timings = polyp_timings(truth, table.name, found.detected, table.took_part)
        timing = None
        if truth.kind == "videos":
            coherence = coherence_by_video(truth, found.detected, table.took_part)
            metrics["coherence"] = coherence
            metrics["latency_frames"], metrics["latency_s"] = _latency_by_video(truth, timings)
            recall = np.where(kind == "no_polyp", nan, metrics["recall"])
            timing = summarise_timing(table.name, timings, coherence, recall)
        results.append(
            MethodResult(
                name=table.name,
                detections=table,
                matches=found,
                counts=counts,
                groups=tuple(
                    group_results(truth, table.name, counts, table.took_part, zero_division=spec.zero_division)
                ),
                video_counts=per_video,
                video_metrics=metrics,
                timings=tuple(timings),
                timing=timing,
                curves=threshold_curves(truth, table, found),
                alarms=tuple(
                    alarm_summaries(
                        truth, table.name, counts, found.detected, table.took_part, taus_s=spec.alarm_taus_s
                    )
                ),
                morphology=tuple(morphology_results(truth, table, found, timings)),
                challenges=tuple(
                    challenge_differences(truth, table, counts, labels, replicates=spec.replicates, seed=spec.seed)
                    if labels is not None
                    else ()
                ),
                concentration=(
                    summarise_concentration(table.name, table.concentration)
                    if table.concentration is not None
                    else None
                ),
            )
        )
    return DetectionResult(
        truth=truth,
        spec=spec,
        methods=tuple(results),
        labels=labels,
        agreement=tuple(labels.agreement()) if labels is not None else (),
        notes=tuple(_notes(truth, results)),
    )


def _latency_by_video(
    truth: TruthTable, timings: Sequence[PolypTiming]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """(V,) mean latency of the polyps of each video in frames and seconds; NaN as soon as one was never found."""
    frames, seconds = np.full(len(truth.videos), nan), np.full(len(truth.videos), nan)
    for v, video in enumerate(truth.videos):
        here = [t for t in timings if t.video == video and t.appearance == 0]
        if here and all(t.found for t in here):
            frames[v] = float(np.mean([t.latency_frames for t in here]))
            seconds[v] = float(np.mean([t.latency_s for t in here]))
    return frames, seconds


def _notes(truth: TruthTable, results: Sequence[MethodResult]) -> list[str]:
    """What a reader must know before comparing rows."""
    out = []
    if not truth.identities and truth.kind == "videos":
        out.append(
            "The truth does not say which polyp is which over time: each video counts as one polyp for latency, "
            "detection rate and coherence."
        )
    if not truth.timed and truth.kind == "videos":
        out.append("The truth has no time stamps: nothing is told in seconds or per minute.")
    for r in results:
        part = r.detections.took_part
        if not part.all():
            out.append(
                f"{r.name} handed in {int(part.sum())} of {len(part)} videos and is scored on those alone; "
                "its rows cannot be compared with the others'."
            )
        if len(r.detections.x) == 0:
            out.append(f"{r.name} has no detection at all.")
    if not (~truth.has_polyp).any():
        out.append("No frame is without polyp, so specificity and false alarms on normal mucosa are unknown.")
    return out
