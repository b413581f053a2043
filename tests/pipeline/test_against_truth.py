"""Tracks against a truth that is known: whose a track is, and when its alarm counts."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import found_at

from polypscope.pipeline.against_truth import AgainstTruth
from polypscope.pipeline.engine import Told
from polypscope.pipeline.findings import Findings, Working
from polypscope.pipeline.follow import Shown
from polypscope.records import GroundTruth, TruePolyp

SHAPE = (240, 320)
WORKING = Working.of(SHAPE, 384)


def judge(points: dict[int, list[tuple[int, float, float]]], first: int = 0, frames: int = 20) -> AgainstTruth:
    """A polyp of 40 x 40 pixels at (100, 100) from frame `first` on; points: by frame, (track, x, y)."""
    against = AgainstTruth(WORKING)
    for n in range(frames):
        labels = np.zeros(SHAPE, np.uint16)
        if n >= first:
            labels[80:120, 80:120] = 1
        against.expect(GroundTruth(n, n / 25, SHAPE, (TruePolyp(1, size_mm=5.0),) if n >= first else (), labels))
        shown = tuple(Shown(track, found_at(x, y).box, found_at(x, y), 0.9, False) for track, x, y in points.get(n, ()))
        against.add(Told(Findings(n, n / 25, (), False, (0.0, 0.0), 1.0, ()), shown, {}, ()))
    return against


@pytest.mark.parametrize(
    ("points", "tracks", "latency", "false"),
    [
        ({}, (), None, ()),
        ({n: [(1, 100, 100)] for n in range(5, 20)}, (1,), 5, ()),
        ({n: [(1, 200, 200)] for n in range(5, 20)}, (), None, (1,)),
        # Ran on from the wall to the polyp: it counts from where it points at the polyp.
        ({n: [(1, 200 if n < 8 else 100, 100)] for n in range(2, 20)}, (1,), 8, ()),
        # Two pieces.
        ({n: [(1 if n < 10 else 2, 100, 100)] for n in range(3, 20)}, (1, 2), 3, ()),
        # A track that hits the polyp in passing is not the polyp's.
        ({n: [(1, 100 if n == 4 else 200, 100)] for n in range(2, 20)}, (), None, (1,)),
    ],
    ids=["nothing", "late", "false", "ran on", "pieces", "in passing"],
)
def test_whose_a_track_is(points, tracks, latency, false) -> None:
    against = judge(points)
    (outcome,) = against.outcomes()
    assert outcome.tracks == tracks
    assert outcome.latency_frames == latency
    assert against.false_tracks() == false


def test_latency_counts_from_the_first_appearance() -> None:
    against = judge({n: [(1, 100, 100)] for n in range(12, 20)}, first=10)
    assert against.outcomes()[0].latency_frames == 2
