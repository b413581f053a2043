"""The camera model against OpenCV, against closed forms, and against its own inverse."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polypscope.geometry import cameras
from polypscope.records import Camera, DepthKind, DepthMap
from polypscope.records.errors import RecordError

PINHOLE = Camera(width=64, height=48, fx=40.0, fy=41.0, cx=30.2, cy=24.9)
BROWN = Camera(64, 48, 40.0, 41.0, 30.2, 24.9, "pinhole", (-0.28, 0.09, 1e-3, -2e-3, -0.012))
RATIONAL = Camera(64, 48, 40.0, 41.0, 30.2, 24.9, "pinhole", (0.3, 0.05, 1e-3, -2e-3, 0.01, 0.6, 0.1, 0.02))
FISHEYE = Camera(64, 48, 30.0, 30.5, 30.2, 24.9, "fisheye", (0.05, -0.02, 0.004, -0.001))
IDEAL_FISHEYE = Camera(64, 48, 25.0, 25.5, 30.2, 24.9, "fisheye")
ALL = [PINHOLE, BROWN, RATIONAL, FISHEYE, IDEAL_FISHEYE]


def matrix(camera: Camera) -> np.ndarray:
    return np.array([[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy], [0, 0, 1.0]])


def some_points(seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.column_stack([generator.uniform(-8, 8, (200, 2)), generator.uniform(9, 60, 200)])


@pytest.mark.parametrize("camera", [PINHOLE, BROWN, RATIONAL])
def test_pinhole_projection_agrees_with_opencv(camera: Camera) -> None:
    xyz = some_points()
    expected, _ = cv2.projectPoints(
        xyz, np.zeros(3), np.zeros(3), matrix(camera), np.array(camera.distortion or [0.0] * 4)
    )
    np.testing.assert_allclose(cameras.project(camera, xyz), expected.reshape(-1, 2), atol=1e-9)


@pytest.mark.parametrize("camera", [FISHEYE, IDEAL_FISHEYE])
def test_fisheye_projection_agrees_with_opencv(camera: Camera) -> None:
    xyz = some_points()
    coefficients = np.array(camera.distortion or [0.0] * 4)
    expected, _ = cv2.fisheye.projectPoints(xyz[:, None], np.zeros(3), np.zeros(3), matrix(camera), coefficients)
    np.testing.assert_allclose(cameras.project(camera, xyz), expected.reshape(-1, 2), atol=1e-9)


@pytest.mark.parametrize("camera", ALL)
@pytest.mark.parametrize("kind", [DepthKind.Z_MM, DepthKind.RAY_MM])
def test_unproject_inverts_project(camera: Camera, kind: DepthKind) -> None:
    xyz = some_points(1)
    depth = xyz[:, 2] if kind is DepthKind.Z_MM else np.linalg.norm(xyz, axis=1)
    back = cameras.unproject(camera, cameras.project(camera, xyz), depth, kind=kind)
    np.testing.assert_allclose(back, xyz, atol=1e-8)


@pytest.mark.parametrize("camera", ALL)
def test_rays_are_unit_and_project_to_their_pixels(camera: Camera) -> None:
    directions = cameras.rays(camera)
    assert directions.shape == (48, 64, 3)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=-1), 1.0, atol=1e-12)
    v, u = np.mgrid[:48, :64]
    np.testing.assert_allclose(cameras.project(camera, directions * 20.0), np.stack([u, v], -1), atol=1e-9)


def test_rays_are_remembered_but_cannot_be_changed() -> None:
    assert cameras.rays(PINHOLE) is cameras.rays(PINHOLE)
    with pytest.raises(ValueError, match="read-only"):
        cameras.rays(PINHOLE)[0, 0, 0] = 1.0


def test_the_papers_field_of_view_is_196_px() -> None:
    camera = Camera.from_fov(320, 320, 78.4)
    assert camera.fx == pytest.approx(196.18, abs=0.01)
    # The image's outer edges, not its outer pixel centres, subtend the field of view.
    left, right = cameras.unproject_rays(camera, [[-0.5, camera.cy], [319.5, camera.cy]])
    assert np.degrees(np.arccos(left @ right)) == pytest.approx(78.4, abs=1e-9)


def test_fisheye_angle_is_linear_in_radius_beyond_90_degrees() -> None:
    camera = Camera(200, 200, 60.0, 60.0, 100.0, 100.0, "fisheye")
    angle = np.radians(95.0)
    direction = cameras.unproject_rays(camera, [100.0 + 60.0 * angle, 100.0])
    np.testing.assert_allclose(direction, [np.sin(angle), 0.0, np.cos(angle)], atol=1e-12)
    # Its axial depth says nothing about where it ends.
    assert np.isnan(cameras.unproject(camera, [100.0 + 60.0 * angle, 100.0], 10.0)).all()


def test_pixels_beyond_the_fold_of_the_distortion_have_no_ray() -> None:
    # r (1 - r^2/3) rises to 2/3 at r = 1 and falls again: no ray reaches normalised radius 0.7.
    camera = Camera(300, 300, 100.0, 100.0, 150.0, 150.0, "pinhole", (-1 / 3, 0.0, 0.0, 0.0))
    inside, outside = cameras.unproject_rays(camera, [[150.0 + 66.0, 150.0], [150.0 + 70.0, 150.0]])
    assert np.isfinite(inside).all()
    assert np.isnan(outside).any()
    fold = Camera(300, 300, 100.0, 100.0, 150.0, 150.0, "fisheye", (-1 / 3, 0.0, 0.0, 0.0))
    assert np.isnan(cameras.unproject_rays(fold, [150.0 + 70.0, 150.0])).any()


def test_points_behind_a_pinhole_have_no_pixel() -> None:
    assert np.isnan(cameras.project(PINHOLE, [[0.0, 0.0, -5.0], [1.0, 2.0, 0.0]])).all()
    assert cameras.project(IDEAL_FISHEYE, [0.0, 0.0, 5.0]).tolist() == [30.2, 24.9]


@pytest.mark.parametrize("camera", [BROWN, FISHEYE])
def test_depth_kinds_convert_and_holes_stay_holes(camera: Camera) -> None:
    values = np.full((48, 64), 25.0, np.float32)
    values[5, 6] = np.nan
    flat = DepthMap(values, kind=DepthKind.Z_MM, sigma=np.full((48, 64), 0.5, np.float32))
    along = cameras.to_ray(camera, flat)
    back = cameras.to_z(camera, along)
    holes = np.zeros((48, 64), bool)
    holes[5, 6] = True
    np.testing.assert_array_equal(np.isnan(back.values), holes)
    np.testing.assert_allclose(back.values[~holes], 25.0, rtol=1e-6)
    np.testing.assert_allclose(back.sigma, 0.5, rtol=1e-6)
    cloud = cameras.points(camera, flat)
    np.testing.assert_allclose(cloud[~holes][:, 2], 25.0, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(cloud[~holes], axis=-1), along.values[~holes], rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: cameras.project(PINHOLE, [1.0, 2.0]), "shape (..., 3)"),
        (lambda: cameras.unproject(PINHOLE, [1.0, 2.0, 3.0], 1.0), "shape (..., 2)"),
        (lambda: cameras.points(PINHOLE, DepthMap(np.ones((4, 4), np.float32), kind=DepthKind.Z_MM)), "48 x 64"),
        (lambda: cameras.points(PINHOLE, DepthMap(np.ones((48, 64), np.float32), kind=DepthKind.RELATIVE)), "align"),
    ],
)
def test_what_does_not_fit_is_said(call: object, says: str) -> None:
    with pytest.raises(RecordError) as error:
        call()  # type: ignore[operator]
    assert says in str(error.value)


@settings(max_examples=60, deadline=None)
@given(
    k1=st.floats(-0.3, 0.3),
    k2=st.floats(-0.05, 0.05),
    x=st.floats(-0.6, 0.6),
    y=st.floats(-0.6, 0.6),
    lens=st.sampled_from(["pinhole", "fisheye"]),
)
def test_any_moderate_lens_round_trips(k1: float, k2: float, x: float, y: float, lens: str) -> None:
    camera = Camera(320, 320, 150.0, 150.0, 160.0, 160.0, lens, (k1, k2, 0.0, 0.0))
    point = np.array([x, y, 1.0]) * 30.0
    back = cameras.unproject(camera, cameras.project(camera, point), 30.0)
    np.testing.assert_allclose(back, point, atol=1e-7)
