"""Edges of polyps: labels in pictures whose classes are drawn, and what two forests learn from them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from scenes_of_mucosa import bright_disk, mucosa

from polypscope.methods.edge_classes import (
    LUMEN,
    OTHER,
    POLYP,
    SPECULAR,
    VESSEL,
    fit_edges,
    label_edges,
    look_at,
    other_classes,
)
from polypscope.records.errors import InputError


def _near(edges: np.ndarray, x: float, y: float, reach: float) -> np.ndarray:
    return np.hypot(edges[:, 0] - x, edges[:, 1] - y) < reach


def test_classes_without_a_mask_come_from_the_picture() -> None:
    rgb = mucosa(160, 160, seed=3)
    dark = np.zeros((160, 160), np.float32)
    cv2.circle(dark, (115, 115), 26, 1.0, -1)
    rgb = (rgb * (1 - 0.85 * cv2.GaussianBlur(dark, (0, 0), 2))[..., None]).astype(np.uint8)
    cv2.line(rgb, (20, 70), (70, 110), (178, 60, 45), 3)  # dark in green and blue only
    cv2.rectangle(rgb, (100, 20), (140, 60), (140, 80, 60), -1)
    cv2.circle(rgb, (125, 20), 4, (250, 248, 245), -1)  # painted over, but the edge beside it stays
    scene = look_at(rgb)
    found = other_classes(scene)
    for code, (x, y), reach in (
        (LUMEN, (115, 115), 31), (VESSEL, (45, 90), 15), (SPECULAR, (125, 20), 7), (OTHER, (100, 40), 6),
    ):  # fmt: skip
        here = found[_near(scene.edges, x, y, reach)]
        assert len(here), code
        assert (here == code).mean() > 0.7, code


def _disk(seed: int, x: int = 80, y: int = 75) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.mgrid[:160, :160]
    return bright_disk(160, 160, (x, y), 28, seed=seed), np.hypot(columns - x, rows - y) < 28


def test_edges_of_a_mask_are_of_the_polyp_and_know_their_side() -> None:
    rgb, mask = _disk(0)
    scene = look_at(rgb)
    labels, inside = label_edges(scene, mask)
    radius = np.hypot(scene.edges[:, 0] - 80, scene.edges[:, 1] - 75)
    assert (labels == POLYP).sum() > 60
    assert np.abs(radius[labels == POLYP] - 28).max() < 6
    to_middle = (80 - scene.edges[:, 0]) * scene.edges[:, 2] + (75 - scene.edges[:, 1]) * scene.edges[:, 3]
    assert np.array_equal(inside[labels == POLYP], to_middle[labels == POLYP] > 0)
    assert {True, False} == set(inside[labels == POLYP].tolist())  # the rim is dark: there is an edge on either side
    none, _ = label_edges(scene, np.zeros((160, 160), bool))
    assert not (none == POLYP).any()


def _folds(seed: int) -> np.ndarray:
    """Parallel stripes of light."""
    x = np.mgrid[:160, :160][1].astype(np.float32)
    return mucosa(160, 160, seed=30 + seed, shade=1 + 0.3 * np.sin(x / 9 + seed))


def test_forests_keep_a_new_disks_edges_and_turn_them_inward() -> None:
    pairs = [_disk(seed, 60 + 8 * seed, 70 + 3 * seed) for seed in range(6)]
    folds = [_folds(s) for s in range(6)]
    pairs += [(rgb, np.zeros((160, 160), bool)) for rgb in folds]
    forests = fit_edges([look_at(rgb) for rgb, _ in pairs], [mask for _, mask in pairs], trees=12)
    rgb, mask = _disk(50, 90, 90)
    scene = look_at(rgb)
    labels, _ = label_edges(scene, mask)
    edges, probability = forests.judge(scene)
    polyp = labels == POLYP
    assert (probability[polyp] > 0.5).mean() > 0.8
    inward = (90 - edges[:, 0]) * edges[:, 2] + (90 - edges[:, 1]) * edges[:, 3] > 0
    assert inward[polyp].mean() > 0.9
    other = look_at(_folds(7))
    assert len(other.edges) > 100
    assert (forests.judge(other)[1] > 0.5).mean() < 0.2


def test_pictures_without_polyps_teach_nothing() -> None:
    scenes = [look_at(mucosa(160, 160, seed=s)) for s in range(4)]
    with pytest.raises(InputError, match="edges of polyps and others"):
        fit_edges(scenes, [np.zeros((160, 160), bool)] * 4)
