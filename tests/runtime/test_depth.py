"""The depth head through the runtime: careful looks are symmetric, for lenses that are not, too."""

from __future__ import annotations

import numpy as np
import pytest

from polypscope.records import Camera
from polypscope.runtime.depth import DepthEstimator, _mean


@pytest.fixture(scope="module")
def ranger() -> DepthEstimator:
    return DepthEstimator.load()


# A camera whose axis is not in the middle of the picture: turned, it is another one.
CAMERA = Camera(width=120, height=96, fx=70.0, fy=80.0, cx=50.0, cy=55.0)
RGB = np.random.default_rng(0).integers(30, 220, (96, 120, 3), dtype=np.uint8)


TURNS = [(swapped, down, across) for swapped in (0, 1) for down in (1, -1) for across in (1, -1)]


def _turned(camera: Camera, swapped: int, down: int, across: int) -> Camera:
    """The camera that takes the picture with rows and columns exchanged or not, then flipped."""
    axes = (camera.width, camera.fx, camera.cx), (camera.height, camera.fy, camera.cy)
    (width, fx, cx), (height, fy, cy) = reversed(axes) if swapped else axes
    return Camera(
        width=width,
        height=height,
        fx=fx,
        fy=fy,
        cx=cx if across > 0 else width - 1 - cx,
        cy=cy if down > 0 else height - 1 - cy,
    )


def _picture(swapped: int, down: int, across: int) -> np.ndarray:
    return np.ascontiguousarray((RGB.swapaxes(0, 1) if swapped else RGB)[::down, ::across])


def _back(values: np.ndarray, swapped: int, down: int, across: int) -> np.ndarray:
    values = values[::down, ::across]
    return values.T if swapped else values


def test_a_careful_look_is_the_geometric_mean_of_turned_cameras(ranger: DepthEstimator) -> None:
    looks = [_back(ranger.depth(_picture(*turn), _turned(CAMERA, *turn)).values, *turn) for turn in TURNS]
    for other in looks[1:]:
        assert np.abs(np.log(looks[0] / other)).max() > 0.01, "the network is not symmetric by itself"
    careful = ranger.depth(RGB, CAMERA, careful=True)
    # Each look is enlarged before it is averaged here, and after that there: not the same to the last digit.
    expected = np.exp(np.mean(np.log(looks), axis=0))
    np.testing.assert_allclose(careful.values, expected, rtol=0.03)
    assert float(np.median(np.abs(np.log(careful.values / expected)))) < 2e-3


def test_distances_err_by_factors() -> None:
    told = [np.array([[10.0, 3.0]], np.float32), np.array([[40.0, 3.0]], np.float32)]
    np.testing.assert_allclose(_mean(told), [[20.0, 3.0]], rtol=1e-6)


@pytest.mark.parametrize("turn", [(0, 1, -1), (1, 1, 1), (1, -1, 1)])
def test_a_careful_look_at_a_turned_picture_is_the_turned_look(
    ranger: DepthEstimator, turn: tuple[int, int, int]
) -> None:
    told = ranger.depth(RGB, CAMERA, careful=True)
    again = ranger.depth(_picture(*turn), _turned(CAMERA, *turn), careful=True)
    np.testing.assert_allclose(_back(again.values, *turn), told.values, rtol=1e-4)
    np.testing.assert_allclose(_back(again.sigma, *turn), told.sigma, rtol=1e-4)
