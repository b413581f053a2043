"""Forceps geometry on simulated forceps: closed forms for tilt and offset, contact depth with noise, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polypscope.geometry import cameras, forceps
from polypscope.records import Camera
from polypscope.records.errors import RecordError

CAMERA = Camera.from_fov(1157, 1157, 90.0)


def jaws(depth_mm: float, tilt_deg: float, roll_deg: float = 0.0) -> np.ndarray:
    phi, roll = np.radians([tilt_deg, roll_deg])
    half = 2.5 * np.array([np.cos(phi) * np.cos(roll), np.cos(phi) * np.sin(roll), np.sin(phi)])
    middle = np.array([0.0, 0.0, depth_mm])
    return cameras.project(CAMERA, np.stack([middle - half, middle + half]))


def polyp_axis(size_mm: float, depth_mm: float) -> np.ndarray:
    return cameras.project(CAMERA, [[-size_mm / 2, 0.0, depth_mm], [size_mm / 2, 0.0, depth_mm]])


@pytest.mark.parametrize(("tilt", "factor"), [(0.0, 1.0), (15.0, 1.035), (30.0, 1.155), (45.0, 1.414)])
def test_tilt_multiplies_by_one_over_cosine(tilt: float, factor: float) -> None:
    measured = forceps.proximal(jaws(40.0, tilt, 25.0), polyp_axis(8.0, 40.0)).long_mm
    assert measured / 8.0 == pytest.approx(factor, rel=0.004)
    # With the perspective of the two tips the closed form is exact.
    assert measured / 8.0 == pytest.approx(forceps.tilt_factor(tilt, 40.0), rel=1e-9)


@pytest.mark.parametrize("nearer", [-4.0, -1.0, 0.0, 2.0, 5.0])
def test_a_depth_offset_multiplies_by_its_ratio(nearer: float) -> None:
    measured = forceps.proximal(jaws(25.0 - nearer, 0.0), polyp_axis(8.0, 25.0)).long_mm
    assert measured / 8.0 == pytest.approx(forceps.offset_factor(nearer, 25.0), rel=1e-9)


def test_the_proximal_interval_covers_what_it_promises() -> None:
    generator = np.random.default_rng(3)
    hits, trials = 0, 400
    for _ in range(trials):
        tilt, nearer, size = generator.normal(0, 15.0), generator.normal(0, 1.5), generator.uniform(2, 15)
        tips = jaws(20.0 - nearer, tilt) + generator.normal(0, 2.0, (2, 2))
        axis = polyp_axis(size, 20.0) + generator.normal(0, 2.0, (2, 2))
        found = forceps.proximal(
            tips,
            axis,
            mark_sigma_px=2.0,
            outline_sigma_px=2.0,
            tilt_sigma_deg=15.0,
            depth_offset_sigma_mm=1.5,
            depth_mm=20.0,
        )
        assert found.interval_mm is not None
        hits += found.interval_mm[0] <= size <= found.interval_mm[1]
    assert 0.86 <= hits / trials <= 0.94


def test_distortion_is_taken_out_when_the_camera_is_known() -> None:
    lens = Camera(1157, 1157, 500.0, 500.0, 578.0, 578.0, "pinhole", (-0.3, 0.08, 0.0, 0.0))
    tips = cameras.project(lens, [[4.0, -2.5, 15.0], [4.0, 2.5, 15.0]])
    axis = cameras.project(lens, [[9.0, -3.0, 15.0], [9.0, 3.0, 15.0]])
    plain = forceps.proximal(tips, axis).long_mm
    corrected = forceps.proximal(tips, axis, camera=lens).long_mm
    assert corrected == pytest.approx(6.0, abs=1e-6)
    assert abs(plain - 6.0) > 0.2


def shaft(generator: np.random.Generator, marks: int) -> np.ndarray:
    """Tip and marks in mm: tip 15-40 mm away, shaft 10-70 degrees out of the image plane, coming towards the camera."""
    while True:
        tip = np.array([generator.uniform(-5, 5), generator.uniform(-5, 5), generator.uniform(15, 40)])
        phi, turn = np.radians(generator.uniform(10, 70)), generator.uniform(0, 2 * np.pi)
        along = np.array([np.cos(phi) * np.cos(turn), np.cos(phi) * np.sin(turn), -np.sin(phi)])
        points = tip + np.arange(marks)[:, None] * 5.0 * along
        pixels = cameras.project(CAMERA, points)
        if points[-1, 2] > 3 and (pixels > 0).all() and (pixels < 1156).all():
            return points


@pytest.mark.parametrize("marks", [3, 4, 6])
@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_contact_is_exact_without_noise(marks: int, lens: str) -> None:
    camera = Camera.from_fov(1157, 1157, 110.0, lens)  # type: ignore[arg-type]
    generator = np.random.default_rng(marks)
    for _ in range(10):
        points = shaft(generator, marks)
        found = forceps.extension(cameras.project(camera, points), camera)
        np.testing.assert_allclose(found.point_mm, points[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.direction, (points[1] - points[0]) / 5.0, atol=1e-5)
        assert found.residual_px < 1e-4


def test_contact_depth_from_four_marks_at_one_pixel() -> None:
    generator = np.random.default_rng(0)
    errors, covered = [], 0
    for _ in range(250):
        points = shaft(generator, 4)
        found = forceps.extension(cameras.project(CAMERA, points) + generator.normal(0, 1.0, (4, 2)), CAMERA)
        errors.append(abs(found.depth_mm / points[0, 2] - 1.0))
        covered += found.interval_mm[0] <= points[0, 2] <= found.interval_mm[1]
    assert np.median(errors) <= 0.005
    assert np.quantile(errors, 0.9) <= 0.02
    assert 0.84 <= covered / 250 <= 0.96


def test_a_known_channel_exit_replaces_a_mark() -> None:
    generator = np.random.default_rng(1)
    exit_mm = np.array([2.0, 4.0, 0.0])
    errors = []
    for _ in range(100):
        tip = np.array([generator.uniform(-5, 5), generator.uniform(-5, 5), generator.uniform(15, 30)])
        along = (exit_mm - tip) / np.linalg.norm(exit_mm - tip)
        pixels = cameras.project(CAMERA, tip + np.array([[0.0], [5.0]]) * along) + generator.normal(0, 0.5, (2, 2))
        errors.append(abs(forceps.extension(pixels, CAMERA, exit_mm=exit_mm).depth_mm / tip[2] - 1.0))
    assert np.median(errors) < 0.02


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 3.0))
def test_depth_scales_with_the_mark_spacing(seed: int, scale: float) -> None:
    points = shaft(np.random.default_rng(seed), 4)
    pixels = cameras.project(CAMERA, points)
    base = forceps.extension(pixels, CAMERA)
    scaled = forceps.extension(pixels, CAMERA, positions_mm=np.arange(4) * 5.0 * scale)
    assert scaled.depth_mm == pytest.approx(base.depth_mm * scale, rel=1e-4)


LINE = [[100.0, 500.0], [200.0, 500.0], [290.0, 500.0], [370.0, 500.0]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: forceps.proximal([[5, 5], [6, 5]], 100.0), "tips further apart"),
        (lambda: forceps.proximal([[5, 5]], 100.0), "two points"),
        (lambda: forceps.proximal([[5, 5], [105, 5]], 0.0), "above 0"),
        (lambda: forceps.extension(LINE[:2], CAMERA), "at least 3 points"),
        (lambda: forceps.extension([LINE[0], LINE[2], LINE[1], LINE[3]], CAMERA), "in order"),
        (lambda: forceps.extension([LINE[0], [200.0, 620.0], LINE[2], LINE[3]], CAMERA), "straight shaft"),
        (lambda: forceps.extension([[100.0, 500.0]] * 4, CAMERA), "spread along the shaft"),
        (lambda: forceps.extension(LINE, CAMERA, positions_mm=[0, 10, 5, 15]), "rising"),
    ],
)
def test_mistakes_are_said_in_one_sentence(call: object, says: str) -> None:
    with pytest.raises(RecordError) as error:
        call()  # type: ignore[operator]
    assert says in str(error.value)
    assert "\n" not in str(error.value)
