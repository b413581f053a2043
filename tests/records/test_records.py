"""Records are checked at birth: each wrong value is refused with what was expected and what was found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polypscope.records import (
    BinaryMask,
    Box,
    Camera,
    Case,
    Clip,
    DepthKind,
    DepthMap,
    Detection,
    Frame,
    GroundTruth,
    Prediction,
    ProbabilityMap,
    RecordError,
    SizeEstimate,
    Track,
    TrackPoint,
    TruePolyp,
)

RGB = np.zeros((4, 6, 3), np.uint8)
LABELS = np.zeros((4, 6), np.uint16)


def point(index: int) -> TrackPoint:
    return TrackPoint(index, index / 25, Detection((1.0, 2.0)))


BAD = {
    "frame dtype": (lambda: Frame(0, 0.0, RGB.astype(float)), "uint8"),
    "frame grey": (lambda: Frame(0, 0.0, RGB[..., 0]), "(H, W, 3)"),
    "frame empty": (lambda: Frame(0, 0.0, RGB[:0]), "non-empty"),
    "frame index": (lambda: Frame(-1, 0.0, RGB), "from 0 on"),
    "frame index bool": (lambda: Frame(True, 0.0, RGB), "whole number"),
    "frame time": (lambda: Frame(0, float("nan"), RGB), "finite"),
    "mask dtype": (lambda: BinaryMask(np.zeros((4, 6), np.uint8)), "bool"),
    "probability range": (lambda: ProbabilityMap(np.full((2, 2), 255, np.float32)), "[0, 1]"),
    "probability nan": (lambda: ProbabilityMap(np.full((2, 2), np.nan, np.float32)), "[0, 1]"),
    "probability dtype": (lambda: ProbabilityMap(np.zeros((2, 2))), "float32"),
    "depth zero": (lambda: DepthMap(np.zeros((2, 2), np.float32), DepthKind.Z_MM), "above 0"),
    "depth inf": (lambda: DepthMap(np.full((2, 2), np.inf, np.float32), DepthKind.Z_MM), "infinite"),
    "depth kind": (lambda: DepthMap(np.ones((2, 2), np.float32), "metres"), "DepthKind"),  # type: ignore[arg-type]
    "depth sigma shape": (
        lambda: DepthMap(np.ones((2, 2), np.float32), DepthKind.Z_MM, np.ones((2, 3), np.float32)),
        "(2, 2)",
    ),
    "camera focal": (lambda: Camera(10, 10, 0, 1, 5, 5), "above 0"),
    "camera size": (lambda: Camera(0, 10, 1, 1, 5, 5), "at least 1"),
    "camera lens": (lambda: Camera(10, 10, 1, 1, 5, 5, "wide"), "fisheye"),  # type: ignore[arg-type]
    "camera distortion": (lambda: Camera(10, 10, 1, 1, 5, 5, "fisheye", (1.0,)), "coefficients"),
    "camera fov": (lambda: Camera.from_fov(10, 10, 180), "(0, 180)"),
    "camera json": (lambda: Camera.from_json("{"), "JSON"),
    "camera other json": (lambda: Camera.from_json('{"width": 3}'), "polypscope-camera"),
    "camera json unknown": (
        lambda: Camera.from_json('{"format": "polypscope-camera", "width": 3, "focal": 2}'),
        "unknown ['focal']",
    ),
    "box width": (lambda: Box(0, 0, 0, 1), "above 0"),
    "detection point": (lambda: Detection((1.0,)), "(x, y)"),  # type: ignore[arg-type]
    "detection score": (lambda: Detection((1.0, 2.0), 1.5), "[0, 1]"),
    "track empty": (lambda: Track(1, ()), "at least one point"),
    "track order": (lambda: Track(1, (point(3), point(2))), "rising"),
    "size order": (lambda: SizeEstimate(3, 4, None, 0.9, "x"), "long_mm >= short_mm"),
    "size interval": (lambda: SizeEstimate(3, 2, (4, 3), 0.9, "x"), "low <= high"),
    "size level": (lambda: SizeEstimate(3, 2, None, 90, "x"), "(0, 1)"),
    "polyp zero": (lambda: TruePolyp(0), "background"),
    "truth shape": (lambda: GroundTruth(0, 0.0, (5, 6), instances=LABELS), "(5, 6)"),
    "truth labels": (lambda: GroundTruth(0, 0.0, (4, 6), instances=LABELS.astype(int)), "uint16"),
    "truth twice": (lambda: GroundTruth(0, 0.0, (4, 6), polyps=(TruePolyp(1), TruePolyp(1))), "each polyp once"),
    "prediction shape": (
        lambda: Prediction(0, 0.0, (4, 6), probability=ProbabilityMap(np.zeros((2, 2), np.float32))),
        "(4, 6)",
    ),
    "clip name": (lambda: Clip("", ()), "a name"),
    "case clips": (lambda: Case("a", (Clip("x", ()), Clip("x", ()))), "different clip names"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_values_are_refused_in_words(name: str) -> None:
    make, expected = BAD[name]
    with pytest.raises(RecordError) as caught:
        make()
    assert expected in str(caught.value)
    assert "expected" in str(caught.value)
    assert "found" in str(caught.value)


def test_records_are_frozen_and_their_arrays_read_only() -> None:
    frame = Frame(0, 0.0, RGB.copy())
    with pytest.raises(dataclasses.FrozenInstanceError):
        frame.index = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        frame.rgb[0, 0, 0] = 1


def test_truth_and_prediction_are_different_types() -> None:
    assert not isinstance(GroundTruth(0, 0.0, (4, 6)), Prediction)
    labels = LABELS.copy()
    labels[1, 1] = 2
    truth = GroundTruth(0, 0.0, (4, 6), instances=labels)
    assert truth.has_polyp
    assert truth.mask is not None
    assert truth.mask.area_px == 1
    assert not GroundTruth(0, 0.0, (4, 6), instances=LABELS).has_polyp


@given(
    st.integers(1, 4000),
    st.integers(1, 4000),
    st.floats(1, 170),
    st.sampled_from(["pinhole", "fisheye"]),
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
)
def test_camera_json_round_trip(width, height, fov, lens, distortion) -> None:
    plain = Camera.from_fov(width, height, fov, lens)
    camera = dataclasses.replace(plain, distortion=tuple(distortion))
    assert Camera.from_json(camera.to_json()) == camera
    assert plain.fov_deg == pytest.approx(fov)
    assert plain.resized(2 * width, 2 * height).fov_deg == pytest.approx(fov)


@pytest.mark.parametrize(("long", "name"), [(5.0, "<=5"), (5.01, "5-10"), (9.99, "5-10"), (10.0, ">=10")])
def test_size_bins(long: float, name: str) -> None:
    assert SizeEstimate(long, 1, None, 0.9, "x").bin == name


def test_a_scaled_depth_map_is_as_uncertain_as_before() -> None:
    plain = DepthMap(np.array([[10.0, np.nan]], np.float32), DepthKind.RAY_MM, np.array([[1.0, 2.0]], np.float32))
    scaled = plain.scaled(1.5)
    assert scaled.kind is DepthKind.RAY_MM
    np.testing.assert_allclose(scaled.values, [[15.0, np.nan]])
    np.testing.assert_allclose(scaled.sigma, [[1.5, 3.0]])  # type: ignore[arg-type]
    with pytest.raises(RecordError, match="factor: expected a number above 0"):
        plain.scaled(0.0)
