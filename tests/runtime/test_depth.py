"""The depth head through the runtime: careful looks are symmetric, for lenses that are not, too."""

from __future__ import annotations

import numpy as np
import pytest

from polypscope.records import Camera
from polypscope.runtime.depth import DepthEstimator, _mean


@pytest.fixture(scope="module")
def ranger() -> DepthEstimator:
    return DepthEstimator.load()


# A camera whose axis is not in the middle of the picture: mirrored, it is another one.
CAMERA = Camera(width=120, height=96, fx=70.0, fy=80.0, cx=50.0, cy=55.0)
RGB = np.random.default_rng(0).integers(30, 220, (96, 120, 3), dtype=np.uint8)


def _mirrored(camera: Camera, down: int, across: int) -> Camera:
    return Camera(
        width=camera.width,
        height=camera.height,
        fx=camera.fx,
        fy=camera.fy,
        cx=camera.cx if across > 0 else camera.width - 1 - camera.cx,
        cy=camera.cy if down > 0 else camera.height - 1 - camera.cy,
    )


def test_a_careful_look_is_the_geometric_mean_of_mirrored_cameras(ranger: DepthEstimator) -> None:
    looks = []
    for down, across in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        seen = np.ascontiguousarray(RGB[::down, ::across])
        looks.append(ranger.depth(seen, _mirrored(CAMERA, down, across)).values[::down, ::across])
    assert np.abs(np.log(looks[0] / looks[3])).max() > 0.01, "the network is not symmetric by itself"
    careful = ranger.depth(RGB, CAMERA, careful=True)
    # Each look is enlarged before it is averaged here, and after that there: not the same to the last digit.
    np.testing.assert_allclose(careful.values, np.exp(np.mean(np.log(looks), axis=0)), rtol=0.03)
    middle = float(np.median(np.abs(np.log(careful.values / np.exp(np.mean(np.log(looks), axis=0))))))
    assert middle < 2e-3


def test_distances_err_by_factors() -> None:
    told = [np.array([[10.0, 3.0]], np.float32), np.array([[40.0, 3.0]], np.float32)]
    np.testing.assert_allclose(_mean(told), [[20.0, 3.0]], rtol=1e-6)


def test_the_mirror_image_of_a_careful_look_is_the_look_at_the_mirror_image(ranger: DepthEstimator) -> None:
    told = ranger.depth(RGB, CAMERA, careful=True)
    again = ranger.depth(np.ascontiguousarray(RGB[:, ::-1]), _mirrored(CAMERA, 1, -1), careful=True)
    np.testing.assert_allclose(again.values[:, ::-1], told.values, rtol=1e-4)
    np.testing.assert_allclose(again.sigma[:, ::-1], told.sigma, rtol=1e-4)
