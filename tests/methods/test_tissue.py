"""What of a frame is mucosa: borders, sub-images, highlights, on pictures where it is known."""

from __future__ import annotations

import numpy as np
import pytest
from scenes_of_mucosa import flat, mucosa

from polypscope.methods.tissue import find_highlights, find_view, grow, paint_over, shrink, standard_size

WIDTH, HEIGHT = 160, 120


@pytest.mark.parametrize(("width", "height"), [(400, 200), (200, 400), (31, 62)])
def test_standard_size_keeps_the_shape_and_turns_nothing(width: int, height: int) -> None:
    rgb = flat(width, height, 40)
    rgb[:, width // 2 :] = 200
    small = standard_size(rgb, 100)
    assert small.shape[0] * small.shape[1] == pytest.approx(100**2, rel=0.03)
    assert small.shape[1] / small.shape[0] == pytest.approx(width / height, rel=0.03)
    quarter = small.shape[1] // 4
    assert small[:, :quarter].max() == 40
    assert small[:, -quarter:].min() == 200


@pytest.mark.parametrize("side", ["left", "right", "top", "bottom"])
def test_a_black_border_is_out_of_view_and_a_dark_lumen_is_not(side: str) -> None:
    rgb = mucosa(WIDTH, HEIGHT)
    border = {
        "left": np.s_[30:90, :20], "right": np.s_[30:90, -20:], "top": np.s_[:20, 30:90], "bottom": np.s_[-20:, 30:90],
    }[side]  # fmt: skip
    rgb[border] = 5
    rgb[50:70, 70:90] = 5
    view = find_view(rgb, margin_px=0)
    assert not view[border].any()
    assert view.sum() == rgb[..., 0].size - view[border].size


def test_a_drawn_sub_image_is_out_of_view() -> None:
    rgb = mucosa(WIDTH, HEIGHT)
    rgb[80:110, 10:40] = (20, 160, 60)
    view = find_view(rgb)
    assert not view[78:112, 8:42].any()
    assert view[20:70, 20:140].all()


def test_only_the_largest_part_is_the_view() -> None:
    rgb = mucosa(WIDTH, HEIGHT)
    rgb[:, 40:46] = 0
    view = find_view(rgb)
    assert not view[:, :46].any()
    assert view[10:110, 60:150].all()


def test_the_view_keeps_away_from_its_edge_and_that_of_the_picture() -> None:
    rgb = mucosa(WIDTH, HEIGHT)
    rgb[:, :20] = 0
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[3:-3, 23:-3] = True
    assert np.array_equal(find_view(rgb, margin_px=3), expected)


def test_growing_and_shrinking_by_a_disc() -> None:
    point = np.zeros((11, 11), bool)
    point[5, 5] = True
    y, x = np.mgrid[-5:6, -5:6]
    assert np.array_equal(grow(point, 2).sum(axis=0) > 0, np.abs(np.arange(-5, 6)) <= 2)
    assert not grow(point, 2)[np.hypot(x, y) > 2.5].any()
    assert np.array_equal(shrink(~point, 2)[2:-2, 2:-2], ~grow(point, 2)[2:-2, 2:-2])
    assert not shrink(~point, 2)[[0, 1, -2, -1]].any()


@pytest.mark.parametrize(
    ("side", "colour"), [(50, (250, 245, 240)), (4, (190, 140, 130))], ids=["wide and white", "small and pale"]
)
def test_highlights_are_found_with_a_margin_and_painted_over(side: int, colour: tuple[int, int, int]) -> None:
    rgb = flat(WIDTH, HEIGHT)
    rgb[:] = (150, 90, 80)
    rgb[40 : 40 + side, 60 : 60 + side] = colour
    found = find_highlights(rgb)
    assert found[40 : 40 + side, 60 : 60 + side].all()
    assert found[38, 60]
    assert found[40, 58]
    assert not found[:37].any()
    assert not found[:, :57].any()
    painted = paint_over(rgb, found)
    assert np.abs(painted.astype(int) - (150, 90, 80)).max() <= 8
    assert np.array_equal(painted[~found], rgb[~found])


def test_bright_red_mucosa_is_no_highlight() -> None:
    rgb = mucosa(WIDTH, HEIGHT)
    rgb[30:36, 40:46] = (240, 130, 100)
    assert not find_highlights(rgb).any()
