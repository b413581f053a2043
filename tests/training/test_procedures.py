"""Procedures are rendered once, seen once for each set of weights, and judged against their truth."""

import json

import numpy as np
import pytest
from scenes import ColourSeer

from polypscope.pipeline.engine import Settings
from polypscope.pipeline.follow import FollowSettings
from polypscope.pipeline.models import Models
from polypscope.records import ProbabilityMap
from polypscope.training import procedures
from polypscope.training.procedures import Procedure, judged, rendered, seen

TINY = Procedure(910_001, 0, "clinical", frames=12, side_px=96)


class TruthSeer(ColourSeer):
    """A segmenter that knows the labels: it finds every polyp in every frame, and one false one if asked to."""

    def __init__(self, labels: np.ndarray, false: bool = False) -> None:
        self._labels, self._next, self._false = labels, 0, false

    def step(self, rgb):
        values = np.where(self._labels[self._next] > 0, 0.98, 0.01).astype(np.float32)
        if self._false:
            values[-20:-6, 40:56] = 0.98
        self._next += 1
        return ProbabilityMap(values)

    def reset(self):
        self._next = 0

    def state(self):
        return {}

    def restore(self, state):
        pass


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("procedures")
    rendered(folder, TINY)
    return folder


def labels_of(cache):
    with np.load(rendered(cache, TINY)) as data:
        return data["labels"], json.loads(str(data["facts"]))["polyps"]


def test_nothing_is_rendered_or_seen_twice(cache, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("rendered again")

    monkeypatch.setattr(procedures, "sequence", refuse)
    labels, _ = labels_of(cache)
    models = Models(TruthSeer(labels), None, "weights A", 0.5)
    first = seen(cache, TINY, models)
    assert seen(cache, TINY, Models(None, None, "weights A", 0.5)) == first  # a model that is None can't have run
    other = seen(cache, TINY, Models(TruthSeer(labels), None, "weights B", 0.5))
    assert other != first
    with pytest.raises(AssertionError, match="rendered again"):
        rendered(cache, Procedure(910_002, 0, "clinical", frames=12, side_px=96))


def test_a_segmenter_that_knows_the_truth_finds_everything(cache):
    labels, polyps = labels_of(cache)
    path = seen(cache, TINY, Models(TruthSeer(labels), None, "truth", 0.5))
    result = judged(path, [Settings()])[0]
    areas = (labels[..., None] == [n for n, *_ in polyps]).mean(axis=(1, 2))
    visible = int(((areas >= procedures.VISIBLE_SHARE).sum(0) >= procedures.LEAST_FRAMES).sum())
    assert visible > 0  # else the sequence shows nothing
    assert len(result.polyps) == visible
    assert all(row["tracks"] == 1 and row["latency"] <= 4 for row in result.polyps)
    assert result.false_tracks == 0
    assert not result.negative
    assert result.seconds == pytest.approx(12 / 25)


def test_settings_are_compared_on_the_same_findings(cache):
    labels, _ = labels_of(cache)
    path = seen(cache, TINY, Models(TruthSeer(labels, false=True), None, "false", 0.5))
    usual, never = judged(path, [Settings(), Settings(follow=FollowSettings(alarm_hits=99))], sizes=False)
    assert usual.false_tracks == 1
    assert never.false_tracks == 0
    assert all(row["tracks"] == 0 and row["latency"] is None for row in never.polyps)


@pytest.mark.parametrize("false", [True, False])
def test_detections_in_empty_frames_are_counted(cache, tmp_path, false):
    labels, _ = labels_of(cache)
    emptied = labels.copy()
    emptied[:4] = 0
    path = seen(cache, TINY, Models(TruthSeer(emptied, false), None, f"first four empty, {false}", 0.5))
    with np.load(path) as data:
        np.savez(tmp_path / "emptied.npz", **{**data, "labels": emptied})
    result = judged(tmp_path / "emptied.npz", [Settings()])[0]
    assert 4 <= result.empty < 12
    assert result.alarmed == (result.empty if false else 0)
