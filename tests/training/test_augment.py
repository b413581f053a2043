"""Augmentation keeps shapes and types, is a pure function of its seed, and moves picture and mask together."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.training.augment import AugmentSpec, augment, exchange, geometric, paste, soften
from polypscope.training.clips import clip_from_still
from polypscope.training.data import Batches, _balanced_draw


def _disc(size: int = 96) -> tuple[np.ndarray, np.ndarray]:
    mask = np.zeros((size, size), np.uint8)
    cv2.circle(mask, (size // 3, size // 2), size // 6, 255, -1)
    rgb = np.full((size, size, 3), (180, 90, 80), np.uint8)
    rgb[mask > 0] = (90, 200, 60)
    return rgb, mask


@pytest.mark.parametrize("seed", range(12))
def test_shapes_and_purity(seed: int) -> None:
    spec = AugmentSpec(exchange=1, degrade=1, soften=1, highlights=1, overlay=1, field_of_view=1, paste=1)
    first = augment(*_disc(), 64, np.random.default_rng(seed), spec, _disc())
    again = augment(*_disc(), 64, np.random.default_rng(seed), spec, _disc())
    assert first[0].shape == (64, 64, 3)
    assert first[1].shape == (64, 64)
    assert first[0].dtype == first[1].dtype == np.uint8
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])


@pytest.mark.parametrize("seed", range(8))
def test_the_mask_stays_on_the_polyp(seed: int) -> None:
    rgb, mask = geometric(*_disc(), 64, np.random.default_rng(seed), AugmentSpec())
    green = rgb[..., 1].astype(int) > rgb[..., 0]
    assert np.mean(green == (mask > 127)) > 0.97


def test_pasting_adds_a_polyp_and_its_mask() -> None:
    plain = np.full((96, 96, 3), 150, np.uint8)
    rgb, mask = paste(plain, np.zeros((96, 96), np.uint8), *_disc(), np.random.default_rng(1))
    assert 0 < (mask > 127).sum() < mask.size / 3
    assert np.abs(rgb.astype(int) - plain)[mask > 127].mean() > 5
    assert np.array_equal(
        rgb[cv2.dilate(mask, np.ones((25, 25))) == 0], plain[cv2.dilate(mask, np.ones((25, 25))) == 0]
    )


def _lit(colour: tuple[int, int, int], seed: int, spread: int = 12) -> np.ndarray:
    """A grainy picture of one colour with black corners."""
    grain = np.random.default_rng(seed).normal(0, spread, (96, 96, 1))
    rgb = np.clip(np.array(colour) + grain, 20, 255).astype(np.uint8)
    rgb[:24, :24] = rgb[-24:, -24:] = 0
    return rgb


@pytest.mark.parametrize("seed", range(8))
def test_exchanging_moves_towards_the_donors_colours(seed: int) -> None:
    rgb, donor = _lit((190, 90, 70), 1), _lit((120, 110, 130), 2)
    moved = exchange(rgb, donor, np.random.default_rng(seed))
    lit = rgb.max(-1) > 0
    before, after = (np.abs(picture[lit].mean(0) - donor[lit].mean(0)) for picture in (rgb, moved))
    assert (after < 0.7 * before).all(), "at least four tenths of the way"
    assert not moved[~lit].any(), "black surrounds stay black"
    # What is where does not change: the grain is the same, only its strength is the donor's.
    assert np.corrcoef(rgb[lit].mean(-1), moved[lit].mean(-1))[0, 1] > 0.95


def test_exchanging_with_itself_or_with_the_dark_changes_nothing() -> None:
    rgb = _lit((190, 90, 70), 1)
    assert np.abs(exchange(rgb, rgb, np.random.default_rng(0)).astype(int) - rgb).max() <= 4, "rounding in Lab"
    assert exchange(rgb, np.zeros_like(rgb), np.random.default_rng(0)) is rgb


def test_exchanging_does_not_blow_up_the_contrast() -> None:
    flat, panel = _lit((190, 90, 70), 1, 2), _lit((120, 110, 130), 2, 2)
    panel[40:70] = (20, 240, 60)
    moved = exchange(flat, panel, np.random.default_rng(0))
    lit = flat.max(-1) > 0
    assert moved[lit].std(0).max() < 2 * flat[lit].std(0).max()


def test_a_recipe_exchanges_as_often_as_it_says() -> None:
    still = AugmentSpec(scale=(1, 1), rotate_deg=0, aspect=0, shift=0, colour=0, degrade=0, highlights=0, overlay=0,
                        field_of_view=0, paste=0)  # fmt: skip
    rgb, mask = _lit((190, 90, 70), 1), np.zeros((96, 96), np.uint8)
    donor = (_lit((60, 120, 200), 2), mask)
    for often in (0.0, 1.0):
        spec = AugmentSpec(**{**still.__dict__, "exchange": often})
        bluer = [augment(rgb, mask, 96, np.random.default_rng(seed), spec, donor)[0] for seed in range(20)]
        assert np.mean([picture[..., 2].mean() > rgb[..., 2].mean() + 10 for picture in bluer]) == often


@pytest.mark.parametrize("seed", range(8))
def test_softening_takes_detail_and_leaves_the_light(seed: int) -> None:
    rgb = np.random.default_rng(0).integers(60, 200, (320, 320, 3), dtype=np.uint8)
    soft = soften(rgb, np.random.default_rng(seed))
    assert soft.shape == rgb.shape
    assert np.abs(np.diff(soft.astype(int), axis=0)).mean() < 0.9 * np.abs(np.diff(rgb.astype(int), axis=0)).mean()
    assert abs(float(soft.mean()) - float(rgb.mean())) < 2


def test_a_recipe_softens_as_often_as_it_says() -> None:
    rgb = np.random.default_rng(0).integers(60, 200, (320, 320, 3), dtype=np.uint8)
    still = {"scale": (1.0, 1.0), "rotate_deg": 0, "aspect": 0, "shift": 0, "colour": 0, "degrade": 0}
    none = {"highlights": 0, "overlay": 0, "field_of_view": 0, "paste": 0}
    detail = [
        np.abs(np.diff(augment(rgb, rgb[..., 0], 320, np.random.default_rng(seed), spec)[0].astype(int), axis=0)).mean()
        for spec in (AugmentSpec(**still, **none), AugmentSpec(**still, **none, soften=1))
        for seed in range(6)
    ]
    assert max(detail[6:]) < 0.9 * min(detail[:6])


def test_a_clip_moves_smoothly_and_mask_follows() -> None:
    rgb, mask = _disc()
    pictures, masks = clip_from_still(rgb, mask, 6, np.random.default_rng(3))
    assert pictures.shape == (6, 96, 96, 3)
    centres = np.array([np.argwhere(m > 127).mean(0) for m in masks])
    assert 0 < np.linalg.norm(np.diff(centres, axis=0), axis=1).max() < 12


def test_draws_follow_the_weights() -> None:
    weights = np.array([1.0, 1.0, 2.0])
    counts = np.bincount(_balanced_draw(weights / 4, 400, np.random.default_rng(0)), minlength=3)
    assert counts.tolist() == [100, 100, 200]


def test_processes_share_an_epoch_without_overlap() -> None:
    def draws(rank: int) -> set[int]:
        sampler = Batches(np.ones(24), 3, [32], seed=1, rank=rank, world=2)
        return {draw.item for batch in sampler for draw in batch}

    assert len(draws(0)) == len(draws(1)) == 12
    assert not draws(0) & draws(1)
