"""Tracks against the truth of a simulated or annotated video: found or missed, how soon, in how many pieces.

A shown polyp counts for the true polyp that its point lies in. A track belongs to the true polyp that most of its
points lie in, if that is at least half of them; else it is a false track. A true polyp counts as visible from the first
frame in which it covers `least_share` of the picture: a few pixels behind a fold are nothing anybody could point at.
Its alarm is the first frame in which one of its tracks points at it: a track that began elsewhere and ran on to the
polyp is not early.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from polypscope.pipeline.engine import Told
from polypscope.pipeline.findings import Working
from polypscope.records import GroundTruth, TruePolyp

__all__ = ["AgainstTruth", "PolypOutcome"]


@dataclass(frozen=True)
class PolypOutcome:
    """One true polyp: when it was visible, the tracks that followed it, frames from visible to alarm (None: missed)."""

    polyp: TruePolyp
    first_index: int
    first_s: float
    last_s: float
    visible_frames: int
    seen: tuple[tuple[float, float], ...]
    tracks: tuple[int, ...]
    latency_frames: int | None
    hit_frames: int


@dataclass
class _Seen:
    polyp: TruePolyp
    first_index: int
    first_s: float
    last_s: float
    frames: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)
    hits: int = 0


class AgainstTruth:
    """Give it the truth of each frame, then what was told of that frame, in order."""

    def __init__(self, working: Working, least_share: float = 0.001) -> None:
        self._working = working
        self._least = least_share
        self._truths: dict[int, GroundTruth] = {}
        self._polyps: dict[int, _Seen] = {}
        self._points: dict[int, Counter[int]] = defaultdict(Counter)
        self._alarms: dict[tuple[int, int], int] = {}
        self.frames = 0
        self.last_s = 0.0

    def expect(self, truth: GroundTruth) -> None:
        """The truth of a frame that will be told of later; kept until then."""
        self._truths[truth.index] = truth

    def add(self, told: Told) -> None:
        """What was told of a frame whose truth is known."""
        truth = self._truths.pop(told.findings.index, None)
        # Frames that were dropped or skipped leave their truth behind.
        for index in [n for n in self._truths if n < told.findings.index]:
            del self._truths[index]
        if truth is None or truth.instances is None:
            return
        self.frames += 1
        self.last_s = truth.pts_s
        areas = np.bincount(truth.instances.ravel())
        least = self._least * truth.instances.size
        for polyp in truth.polyps:
            if polyp.id < len(areas) and areas[polyp.id] >= least:
                self._visible(polyp, truth)
        hit = set()
        for shown in told.shown:
            if shown.found is None:
                continue
            x, y = self._working.to_frame(*shown.found.detection.point_xy)
            row = min(max(round(y), 0), truth.shape[0] - 1)
            column = min(max(round(x), 0), truth.shape[1] - 1)
            label = int(truth.instances[row, column])
            self._points[shown.id][label] += 1
            self._alarms.setdefault((shown.id, label), truth.index)
            hit.add(label)
        for label in hit:
            if label in self._polyps:
                self._polyps[label].hits += 1

    def _visible(self, polyp: TruePolyp, truth: GroundTruth) -> None:
        seen = self._polyps.get(polyp.id)
        if seen is None:
            seen = self._polyps[polyp.id] = _Seen(polyp, truth.index, truth.pts_s, truth.pts_s)
        seen.frames += 1
        if seen.spans and truth.pts_s - seen.spans[-1][1] <= 0.5:
            seen.spans[-1] = (seen.spans[-1][0], truth.pts_s)
        else:
            seen.spans.append((truth.pts_s, truth.pts_s))
        seen.last_s = truth.pts_s

    def belongs(self) -> dict[int, int]:
        """The true polyp of each track; 0 for a false track."""
        owner = {}
        for track, points in self._points.items():
            inside = [(n, c) for n, c in points.items() if n > 0]
            best = max(inside, key=lambda item: item[1], default=(0, 0))
            owner[track] = best[0] if 2 * best[1] >= sum(points.values()) else 0
        return owner

    def outcomes(self) -> list[PolypOutcome]:
        """Every true polyp that could be seen, by id."""
        owner = self.belongs()
        rows = []
        for label, seen in sorted(self._polyps.items()):
            tracks = tuple(sorted(track for track, polyp in owner.items() if polyp == label))
            alarms = [self._alarms[track, label] for track in tracks]
            latency = max(0, min(alarms) - seen.first_index) if alarms else None
            rows.append(
                PolypOutcome(
                    seen.polyp, seen.first_index, seen.first_s, seen.last_s, seen.frames, tuple(seen.spans),
                    tracks, latency, seen.hits,
                )
            )  # fmt: skip
        return rows

    def false_tracks(self) -> tuple[int, ...]:
        """Tracks that followed no polyp."""
        return tuple(sorted(track for track, polyp in self.belongs().items() if polyp == 0))
