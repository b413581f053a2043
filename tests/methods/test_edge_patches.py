"""Patches along the normal: where they are taken, and their coefficients against scipy's cosine transform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.fft import dct

from polypscope.methods.edge_patches import (
    ANGLES,
    BANDS,
    CONTEXT,
    DESCRIBED,
    SIDE,
    WAVES,
    around,
    context,
    describe,
    strips,
    turned,
)


def _ramp(height: int = 60, width: int = 80) -> np.ndarray:
    """A picture whose channels are its own x and y."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    return np.dstack([x, y, 0 * x])


@pytest.mark.parametrize(
    ("normal", "expected"),
    [((1, 0), (43, 32)), ((0, 1), (38, 33)), ((-1, 0), (37, 28)), ((0, -1), (42, 27))],
)
def test_places_turn_with_the_normal(normal: tuple[int, int], expected: tuple[int, int]) -> None:
    edges = np.array([[40.0, 30.0, *normal]])
    seen = around(_ramp(), edges, np.array([3.0]), np.array([2.0]))
    assert seen[0, 0, 0, :2] == pytest.approx(expected, abs=0.05)


def test_a_turned_edge_sees_the_patch_upside_down() -> None:
    edges = np.array([[40.0, 30.0, 0.6, 0.8], [22.0, 31.0, 1.0, 0.0]])
    reach = np.arange(-4.0, 5.0)
    one, other = (around(_ramp(), e, reach, reach) for e in (edges, turned(edges)))
    assert one == pytest.approx(other[:, ::-1, ::-1], abs=0.05)


@pytest.mark.parametrize("upright", [True, False])
def test_coefficients_equal_the_cosine_transform_of_averages(upright: bool) -> None:
    patch = np.random.default_rng(0).normal(0, 1, (SIDE, SIDE)).astype(np.float32)
    found = (patch.ravel() @ strips()).reshape(len(ANGLES), len(BANDS), WAVES + 1)
    for b, (low, high) in enumerate(BANDS):
        part = slice(int(low) + SIDE // 2, int(high) + SIDE // 2)
        # At a right angle, "along" is down the patch, and "across" goes from right to left.
        signal = patch[part].mean(axis=0) if upright else patch[:, ::-1][:, part].mean(axis=1)
        expected = dct(signal, type=2)[: WAVES + 1] / (2 * SIDE)
        assert found[0 if upright else 2, b] == pytest.approx(expected, abs=1e-5)


def test_light_changes_the_last_numbers_only() -> None:
    rng = np.random.default_rng(1)
    picture = rng.uniform(60, 120, (60, 80, 3)).astype(np.float32)
    edges = np.array([[40.0, 30.0, 0.6, 0.8], [5.0, 5.0, 0.0, -1.0]])
    plain, brighter = describe(picture, edges), describe(picture + 50, edges)
    assert plain.shape == (2, DESCRIBED)
    assert brighter[:, :-4] == pytest.approx(plain[:, :-4], abs=1e-3)
    assert brighter[:, -4:-1] == pytest.approx(plain[:, -4:-1] + 50, abs=0.01)
    assert describe(picture, np.zeros((0, 4))).shape == (0, DESCRIBED)


def test_context_tells_before_from_behind() -> None:
    maps = np.zeros((100, 100, 2), np.float32)
    maps[:, 60:, 1] = 1  # the second class is everywhere to the right
    edges = np.array([[50.0, 50.0, 1.0, 0.0]])
    ahead, behind = (context(maps, e).reshape(5, CONTEXT // 5, 2) for e in (edges, turned(edges)))
    assert ahead[0, :, 1].tolist() == [0, 0, 0, 1, 1, 1]
    assert behind[0, :, 1].tolist() == [1, 1, 0, 0, 0, 0]
    assert not ahead[..., 0].any()
