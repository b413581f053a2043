"""Sizes through the pipeline: a disc of known size at known depth; the reason where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scenes import ColourSeer, SceneSource, procedure

from polypscope.io.images import write_image
from polypscope.pipeline.engine import Settings
from polypscope.pipeline.locate import locate
from polypscope.pipeline.measure import measurable, measured
from polypscope.pipeline.models import Models
from polypscope.pipeline.polyp_views import Predictions
from polypscope.pipeline.run import run
from polypscope.records import Camera, DepthKind, DepthMap, ProbabilityMap

_SHAPE = (120, 160)


class _FlatWall:
    """Everything is 40 mm away."""

    def depth(self, rgb: np.ndarray, camera: Camera) -> DepthMap:
        assert rgb.shape[:2] == (camera.height, camera.width)
        return DepthMap(np.full(rgb.shape[:2], 40, np.float32), DepthKind.Z_MM)


def test_disc_is_measured_in_millimetres(tmp_path: Path) -> None:
    camera = Camera.from_fov(_SHAPE[1], _SHAPE[0], 80)
    source = SceneSource(lambda: procedure(110, _SHAPE), _SHAPE)
    done = run(source, tmp_path, ColourSeer(), Settings(), camera=camera, ranger=_FlatWall(), overlay=False)
    first, second = done.results.polyps
    for polyp, radius_px in ((first, 14), (second, 10)):
        true_mm = (2 * radius_px + 1) * 40 / camera.fx
        assert polyp.size is not None
        assert polyp.size.long_mm == pytest.approx(true_mm, rel=0.12)
        assert polyp.measured_frames >= 8
        assert polyp.best[0].distance_mm == pytest.approx(40)
        assert polyp.reason == ""
    rows = pl.read_csv(tmp_path / "polyps.csv")
    assert rows["long_mm"].to_list() == pytest.approx([p.size.long_mm for p in (first, second)], abs=0.006)
    assert (rows["low_mm"] <= rows["long_mm"]).all()
    assert (rows["long_mm"] <= rows["high_mm"]).all()


def test_without_depth_the_reason_is_told(tmp_path: Path) -> None:
    camera = Camera.from_fov(_SHAPE[1], _SHAPE[0], 80)
    source = SceneSource(lambda: procedure(40, _SHAPE), _SHAPE)
    done = run(source, tmp_path, ColourSeer(), Settings(), camera=camera, overlay=False)
    assert [p.reason for p in done.results.polyps] == ["the model has no depth"]


@pytest.mark.parametrize(("probability", "has_size"), [(0.51, False), (0.55, True), (0.9, True)])
def test_what_the_segmenter_only_holds_on_to_is_not_measured(probability: float, has_size: bool) -> None:
    shape = np.zeros(_SHAPE, np.float32)
    shape[40:80, 60:100] = probability
    rgb = np.full((*_SHAPE, 3), 120, np.uint8)
    camera = Camera.from_fov(_SHAPE[1], _SHAPE[0], 80)
    found = locate(ProbabilityMap(shape), rgb, np.ones(_SHAPE, bool), threshold=0.8)
    (one,) = measured(found, camera, _FlatWall().depth(rgb, camera))
    assert (one.size is not None) == has_size
    outlined = measurable(ProbabilityMap(shape))
    assert np.array_equal(outlined, shape > 0 if has_size else np.zeros(_SHAPE, bool))
    beside = shape.copy()
    beside[:10, :10] = 0.505  # in a frame with a finding, what is as likely as not belongs to an outline
    assert measurable(ProbabilityMap(beside))[:10, :10].all() == has_size


@pytest.mark.parametrize(("probability", "outlined"), [(0.51, False), (0.7, True)])
def test_evaluations_of_sizes_leave_out_what_is_only_held_on_to(
    tmp_path: Path, probability: float, outlined: bool
) -> None:
    class Seer:
        def step(self, rgb: np.ndarray) -> ProbabilityMap:
            return ProbabilityMap(np.full(rgb.shape[:2], probability, np.float32))

    write_image(tmp_path / "0.png", np.zeros((*_SHAPE, 3), np.uint8))
    predictions = Predictions(models=Models(seer=Seer(), ranger=None, identity="", threshold=0.8))  # type: ignore[arg-type]
    camera = Camera.from_fov(_SHAPE[1], _SHAPE[0], 80)
    mask, depth = predictions.of(None, "0", tmp_path / "0.png", camera)  # type: ignore[arg-type]
    assert depth is None
    assert mask is not None
    assert mask.all() if outlined else not mask.any()
