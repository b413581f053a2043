"""Depth metrics against hand-made numbers, invariances, alignments and sparse truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polypscope.evaluation import depth
from polypscope.records import DepthKind, DepthMap
from polypscope.records.errors import RecordError


def frame(true: np.ndarray, predicted: np.ndarray, sequence: str = "a", index: int = 0, polyp=None) -> depth.DepthFrame:
    return depth.DepthFrame(
        sequence,
        index,
        DepthMap(true.astype(np.float32), DepthKind.Z_MM),
        DepthMap(predicted.astype(np.float32), DepthKind.Z_MM),
        polyp,
    )


def test_metrics_by_hand() -> None:
    true, predicted = np.array([10.0, 20.0, 40.0, 80.0]), np.array([12.0, 20.0, 30.0, 160.0])
    found = depth.metrics(true, predicted)
    assert found["mae"] == pytest.approx((2 + 0 + 10 + 80) / 4)
    assert found["rmse"] == pytest.approx(np.sqrt((4 + 0 + 100 + 6400) / 4))
    assert found["absrel"] == pytest.approx((0.2 + 0 + 0.25 + 1) / 4)
    assert found["sqrel"] == pytest.approx((0.4 + 0 + 2.5 + 80) / 4)
    assert found["log10"] == pytest.approx(np.mean(np.abs(np.log10(predicted / true))))
    assert found["rmselog"] == pytest.approx(np.sqrt(np.mean(np.log(predicted / true) ** 2)))
    # Ratios 1.2, 1, 1.333, 2: only the first two lie under 1.25, three under 1.5625, and 2 exceeds 1.953.
    assert (found["delta1"], found["delta2"], found["delta3"]) == (0.5, 0.75, 0.75)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.floats(0.2, 5.0))
def test_alignments_undo_a_wrong_scale(seed: int, factor: float) -> None:
    generator = np.random.default_rng(seed)
    true = generator.uniform(5, 90, (3, 6, 7))
    frames = [frame(t, t * factor, index=i) for i, t in enumerate(true)]
    result = depth.evaluate(frames)
    assert result.value("absrel", "median") == pytest.approx(0.0, abs=1e-5)
    assert result.value("absrel", "trajectory") == pytest.approx(0.0, abs=1e-5)
    assert result.value("absrel", "none") == pytest.approx(abs(factor - 1), rel=1e-4, abs=1e-6)


def test_one_scale_per_trajectory_is_not_one_per_frame() -> None:
    true = np.full((4, 4), 20.0)
    frames = [frame(true, true, index=0), frame(true, 2 * true, index=1), frame(true, 3 * true, "b", 0)]
    result = depth.evaluate(frames)
    assert result.value("absrel", "median") == pytest.approx(0.0, abs=1e-6)
    # Least squares over means (20, 20) and (20, 40): 1200 / 2000 = 0.6; frames end at 0.6 and 1.2 times the truth.
    rows = {
        (r["sequence"], r["index"]): r for r in result.rows if r["alignment"] == "trajectory" and r["region"] == "all"
    }
    assert rows["a", 0]["absrel"] == pytest.approx(0.4)
    assert rows["a", 1]["absrel"] == pytest.approx(0.2)
    assert rows["b", 0]["absrel"] == pytest.approx(0.0, abs=1e-6)


def test_regions_and_holes() -> None:
    true = np.full((4, 5), 20.0)
    true[0] = 150.0
    true[3, 4] = np.nan
    predicted = np.where(true == 150.0, 300.0, true)
    polyp = np.zeros((4, 5), bool)
    polyp[1:] = True
    result = depth.evaluate([frame(true, predicted, polyp=polyp)])
    assert result.value("absrel", region="near") == 0.0
    assert result.value("absrel", region="polyp") == 0.0
    assert result.value("absrel", region="all") == pytest.approx(5 / 19)
    assert {r["pixels"] for r in result.rows} == {19, 14}


def test_sparse_points_count_and_are_skipped_by_the_dense_rule() -> None:
    true = np.full((5, 5), np.nan)
    true[2, 2], true[3, 1] = 10.0, 20.0
    item = frame(true, np.full((5, 5), 11.0))
    assert depth.evaluate([item], depth.SPARSE).value("absrel") == pytest.approx((0.1 + 0.45) / 2, rel=1e-5)
    dense = depth.evaluate([item])
    assert not dense.rows
    assert "under 10 pixels" in dense.skipped[0]


def test_relative_depth_has_no_metric_rows() -> None:
    true = np.full((4, 4), 20.0, np.float32)
    item = depth.DepthFrame(
        "a", 0, DepthMap(true, DepthKind.Z_MM), DepthMap(true / np.float32(20), DepthKind.RELATIVE), None
    )
    assert {r["alignment"] for r in depth.evaluate([item]).rows} == {"median", "trajectory"}


def test_what_cannot_be_compared_is_refused() -> None:
    true = np.full((4, 4), 20.0)
    with pytest.raises(RecordError, match="shape"):
        depth.evaluate([frame(true, true[:2])])
    mixed = depth.DepthFrame(
        "a",
        0,
        DepthMap(true.astype(np.float32), DepthKind.Z_MM),
        DepthMap(true.astype(np.float32), DepthKind.RAY_MM),
        None,
    )
    with pytest.raises(RecordError, match="to_z"):
        depth.evaluate([mixed])
