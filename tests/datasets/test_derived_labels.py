"""Labels derived from masks hold what their names promise, on any mask."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polypscope.datasets.derived_labels import boundary, frame_seed, polygon, scribble, tight_box


@st.composite
def masks(draw: st.DrawFn) -> np.ndarray:
    height, width = draw(st.integers(12, 70)), draw(st.integers(12, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mask = np.zeros((height, width), np.uint8)
    for _ in range(draw(st.integers(1, 3))):
        centre = (int(rng.integers(0, width)), int(rng.integers(0, height)))
        axes = (int(rng.integers(0, width // 2)), int(rng.integers(0, height // 2)))
        cv2.ellipse(mask, centre, axes, float(rng.integers(0, 180)), 0, 360, 1, -1)
    if draw(st.booleans()):
        mask[rng.random(mask.shape) < 0.02] ^= 1
    return mask > 0


@settings(max_examples=60, deadline=None)
@given(masks())
def test_polygons_contain_or_are_contained(mask: np.ndarray) -> None:
    outer, inner = polygon(mask, "circumscribed").filled > 0, polygon(mask, "inscribed").filled > 0
    assert (mask <= outer).all()
    holes = cv2.floodFill(np.pad(mask.astype(np.uint8), 1), None, (0, 0), 1)[1][1:-1, 1:-1] == 0
    assert (inner <= mask | holes).all()


def test_polygons_are_simple_and_close() -> None:
    mask = np.zeros((200, 260), np.uint8)
    cv2.ellipse(mask, (130, 100), (80, 55), 20, 0, 360, 1, -1)
    for kind in ("circumscribed", "inscribed"):
        shape = polygon(mask > 0, kind)
        assert 4 <= sum(len(part) for part in shape.parts) <= 24
        filled = shape.filled > 0
        assert np.sum(filled & (mask > 0)) / np.sum(filled | (mask > 0)) > 0.75


@settings(max_examples=40, deadline=None)
@given(masks(), st.integers(0, 100))
def test_scribbles_stay_in_their_region_and_follow_the_seed(mask: np.ndarray, seed: int) -> None:
    image = scribble(mask, frame_seed(seed, "c", "f"))
    assert mask[image == 255].all()
    assert not mask[image == 128].any()
    assert (image == 255).any() == mask.any()
    assert (image == 128).any() == (~mask).any()
    assert set(np.unique(image)) <= {0, 128, 255}
    np.testing.assert_array_equal(image, scribble(mask, frame_seed(seed, "c", "f")))


@settings(max_examples=40, deadline=None)
@given(masks())
def test_boundary_is_where_a_neighbour_differs(mask: np.ndarray) -> None:
    expected = np.zeros(mask.shape, bool)
    for y, x in np.ndindex(mask.shape):
        for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            if 0 <= y + dy < mask.shape[0] and 0 <= x + dx < mask.shape[1]:
                expected[y, x] |= mask[y, x] != mask[y + dy, x + dx]
    np.testing.assert_array_equal(boundary(mask) > 0, expected)


@settings(max_examples=40, deadline=None)
@given(masks())
def test_boxes_are_tight(mask: np.ndarray) -> None:
    box = tight_box(mask)
    if box is None:
        assert not mask.any()
        return
    x, y, w, h = box
    assert mask.sum() == mask[y : y + h, x : x + w].sum()
    for side in (mask[y, :], mask[y + h - 1, :], mask[:, x], mask[:, x + w - 1]):
        assert side.any()


@pytest.mark.parametrize("value", [False, True])
def test_empty_and_full_masks(value: bool) -> None:
    mask = np.full((30, 30), value)
    assert not boundary(mask).any()
    assert (polygon(mask, "circumscribed").filled > 0).all() == value
    assert set(np.unique(scribble(mask, frame_seed(0)))) == {0, 255 if value else 128}


def test_seeds_differ_by_name() -> None:
    draws = {frame_seed(0, clip, frame).integers(2**60) for clip in "ab" for frame in "xy"}
    assert len(draws) == 4
