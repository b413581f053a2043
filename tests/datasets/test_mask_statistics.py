"""Attributes by their definitions and statistics against obvious versions."""

from itertools import combinations

import numpy as np
import pytest

from polypscope.datasets.mask_statistics import MaskFacts, attributes_of, centre_map, contrast, mask_facts


def facts(**values: float) -> MaskFacts:
    base = {"share": 0.1, "x_px": 50.0, "y_px": 50.0, "box_area_px": 100.0, "at_edge": False}
    return MaskFacts(**{**base, "centre_distance": 0.0, "far_distance": 0.1, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([facts(), facts()], ()),
        ([facts(x_px=0), facts(x_px=12, y_px=67)], ("FM",)),
        ([facts(x_px=0), facts(x_px=20)], ()),  # 20 px is not more than 20
        ([facts(x_px=0), facts(share=0.0, x_px=np.nan), facts(x_px=90)], ()),  # no two consecutive frames with a polyp
        ([facts(share=0.049)] * 2, ("SO",)),
        ([facts(share=0.05), facts(share=0.15)], ()),
        ([facts(share=0.2), facts(share=0.11)], ("LO",)),
        ([facts(), facts(at_edge=True)], ("OV",)),
        ([facts(box_area_px=100), facts(box_area_px=201)], ("SV",)),
        ([facts(box_area_px=100), facts(box_area_px=200)], ()),
        ([facts(share=0.0, x_px=np.nan)] * 3, ()),
        ([], ()),
    ],
)
def test_attributes_follow_table_2(frames: list[MaskFacts], expected: tuple[str, ...]) -> None:
    assert attributes_of(frames) == expected


def test_scale_variation_is_the_mean_over_all_pairs() -> None:
    from polypscope.datasets.mask_statistics import _mean_pair_ratio

    areas = np.random.default_rng(0).uniform(10, 500, 20)
    assert _mean_pair_ratio(areas) == pytest.approx(np.mean([min(p) / max(p) for p in combinations(areas, 2)]))


def test_facts_of_a_mask() -> None:
    mask = np.zeros((40, 60), bool)
    mask[30:40, 0:6] = True
    got = mask_facts(mask)
    assert (got.share, got.x_px, got.y_px, got.box_area_px, got.at_edge) == (60 / 2400, 2.5, 34.5, 60.0, True)
    half = np.hypot(60, 40) / 2
    assert got.centre_distance == pytest.approx(np.hypot(2.5 - 29.5, 34.5 - 19.5) / half)
    assert got.far_distance == pytest.approx(np.hypot(29.5, 19.5) / half)
    empty = mask_facts(np.zeros((4, 4), bool))
    assert empty.share == 0
    assert np.isnan(empty.x_px)


def test_centre_map_keeps_the_share() -> None:
    mask = np.zeros((128, 192), bool)
    mask[20:70, 30:90] = True
    assert centre_map(mask).mean() == pytest.approx(mask.mean(), abs=1e-6)


def test_contrast() -> None:
    mask = np.zeros((60, 60), bool)
    mask[20:40, 20:40] = True
    rgb = np.zeros((60, 60, 3), np.uint8)
    assert contrast(rgb, mask) == (0.0, 0.0)
    rgb[mask] = 255
    assert contrast(rgb, mask) == pytest.approx((1.0, 1.0))
    rgb[17:43, 17:43] = 255  # a halo like the polyp: less local than global contrast
    globally, locally = contrast(rgb, mask)
    assert 0 < locally < globally < 1
    assert np.isnan(contrast(rgb, np.zeros_like(mask))).all()
