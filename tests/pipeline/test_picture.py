"""The picture reader on scenes with a known border, text, inset, freeze and cut."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from scenes import wall, window

from polypscope.pipeline.picture import PictureReader

_SHAPE = (240, 320)


def _octagon() -> np.ndarray:
    mask = np.zeros(_SHAPE, np.uint8)
    points = [(80, 10), (270, 10), (305, 50), (305, 190), (270, 230), (80, 230), (50, 190), (50, 50)]
    cv2.fillConvexPoly(mask, np.array(points, np.int32), 1)
    return mask > 0


def _circle() -> np.ndarray:
    mask = np.zeros(_SHAPE, np.uint8)
    cv2.circle(mask, (170, 120), 110, 1, -1)
    return mask > 0


def _read(pictures, reader: PictureReader | None = None):
    reader = reader or PictureReader(_SHAPE)
    return [reader.look(picture) for picture in pictures]


def _iou(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / (a | b).sum())


@pytest.mark.parametrize("shape_of_view", [_octagon(), _circle(), np.ones(_SHAPE, bool)], ids=["oct", "circle", "full"])
def test_field_of_view_from_the_first_frames(shape_of_view: np.ndarray) -> None:
    texture = wall(1, _SHAPE)
    pictures = []
    for n in range(60):
        picture = np.where(shape_of_view[..., None], window(texture, n, _SHAPE), 4).astype(np.uint8)
        cv2.putText(picture, "ID 0000 12:31", (2, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.35, (220, 220, 220), 1)
        pictures.append(picture)
    seen = _read(pictures)
    assert _iou(seen[0].area, shape_of_view) > 0.9
    assert _iou(seen[-1].area, shape_of_view) > 0.93


def test_dark_lumen_stays_in_the_picture() -> None:
    texture = wall(2, _SHAPE)
    pictures = []
    for n in range(30):
        picture = window(texture, n, _SHAPE)
        cv2.circle(picture, (160, 120), 50, (6, 3, 3), -1)
        pictures.append(picture)
    assert _read(pictures)[-1].area[120, 160]


def test_text_over_the_picture_is_left_out_after_a_while() -> None:
    texture = wall(3, _SHAPE)
    pictures = []
    for n in range(200):
        picture = window(texture, n, _SHAPE)
        cv2.putText(picture, "F 7: NBI", (100, 60), cv2.FONT_HERSHEY_SIMPLEX, 1.0, (255, 255, 255), 3)
        pictures.append(picture)
    area = _read(pictures)[-1].area
    text = (pictures[-1] == 255).all(axis=-1)
    assert (~area[text]).mean() > 0.85
    assert area.mean() > 0.9


@pytest.mark.parametrize("moving", [False, True], ids=["frozen inset", "moving inset"])
def test_picture_in_picture_is_left_out(moving: bool) -> None:
    texture, other = wall(4, _SHAPE), (wall(5, _SHAPE) * 0.6).astype(np.uint8)
    box = np.zeros(_SHAPE, bool)
    box[150:220, 200:290] = True
    pictures = []
    for n in range(220):
        picture = window(texture, n, _SHAPE)
        inset = cv2.resize(window(other, n if moving else 7, _SHAPE, speed=3.0), (90, 70))
        inset = np.clip(inset.astype(int) + 90, 0, 255).astype(np.uint8)  # a brighter picture with clear sides
        picture[150:220, 200:290] = inset
        pictures.append(picture)
    area = _read(pictures)[-1].area
    assert (~area[box]).mean() > 0.8
    assert area[~box].mean() > 0.95


def test_nothing_is_left_out_while_the_camera_stands_still() -> None:
    picture = window(wall(6, _SHAPE), 0, _SHAPE)
    rng = np.random.default_rng(0)
    noisy = [np.clip(picture + rng.normal(0, 4, picture.shape), 0, 255).astype(np.uint8) for _ in range(150)]
    assert _read(noisy)[-1].area.mean() > 0.98


def test_freeze_and_motion() -> None:
    texture = wall(7, _SHAPE)
    frozen = window(texture, 10, _SHAPE)
    rng = np.random.default_rng(1)
    stills = [np.clip(frozen + rng.integers(-1, 2, frozen.shape), 0, 255).astype(np.uint8) for _ in range(5)]
    seen = _read([*(window(texture, n, _SHAPE) for n in range(11)), *stills, window(texture, 14, _SHAPE)])
    assert [p.frozen for p in seen] == [False] * 11 + [True] * 5 + [False]
    assert not any(p.cut for p in seen)


def test_global_motion_is_measured_in_working_pixels() -> None:
    texture = wall(8, _SHAPE)
    a, b = texture[100:340, 100:420], texture[106:346, 92:412]
    seen = _read([np.ascontiguousarray(a), np.ascontiguousarray(b)])
    assert seen[1].motion_xy == pytest.approx((8, -6), abs=1.0)


def test_cut_between_scenes_but_not_in_fast_motion() -> None:
    one, two = wall(9, _SHAPE), wall(10, _SHAPE)[:, :, ::-1]
    seen = _read([*(window(one, n, _SHAPE) for n in range(5)), *(window(two, n, _SHAPE) for n in range(5))])
    assert [p.cut for p in seen] == [False] * 5 + [True] + [False] * 4
    assert not any(p.cut for p in _read([window(one, n, _SHAPE, speed=8.0) for n in range(60)]))


@pytest.mark.parametrize(
    ("colour", "flag"), [((3, 2, 2), "dark"), ((252, 250, 249), "overexposed"), ((70, 110, 120), "outside")]
)
def test_flags(colour: tuple[int, int, int], flag: str) -> None:
    assert flag in _read([np.full((*_SHAPE, 3), colour, np.uint8)])[0].flags


def test_blur_is_relative_to_the_recording() -> None:
    texture = wall(11, _SHAPE)
    sharp = [
        np.clip(window(texture, n, _SHAPE) + np.random.default_rng(2).normal(0, 12, (*_SHAPE, 3)), 0, 255)
        for n in range(40)
    ]
    pictures = [p.astype(np.uint8) for p in sharp]
    pictures.append(cv2.GaussianBlur(pictures[-1], (0, 0), 6))
    seen = _read(pictures)
    assert not any("blurred" in p.flags for p in seen[:-1])
    assert "blurred" in seen[-1].flags


def test_state_carries_over_an_interruption() -> None:
    texture = wall(12, _SHAPE)
    pictures = [np.where(_octagon()[..., None], window(texture, n, _SHAPE), 0).astype(np.uint8) for n in range(60)]
    whole = _read(pictures)
    first = PictureReader(_SHAPE)
    _read(pictures[:33], first)
    second = PictureReader(_SHAPE)
    second.restore(first.state())
    for a, b in zip(whole[33:], _read(pictures[33:], second), strict=True):
        assert (a.flags, a.frozen, a.cut, a.motion_xy, a.sharpness) == (
            b.flags,
            b.frozen,
            b.cut,
            b.motion_xy,
            b.sharpness,
        )
        assert (a.area == b.area).all()
