"""Frames at working size: the average of the pixels they stand for, whatever the way there."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from scenes import wall

from polypscope.pipeline.findings import Working
from polypscope.pipeline.see import to_working


@pytest.mark.parametrize("shape", [(540, 960), (541, 960), (1080, 1920), (384, 480), (1536, 1536)], ids=str)
def test_working_size_is_an_average_of_the_frame(shape) -> None:
    working = Working.of(shape, 192)
    picture = np.ascontiguousarray(wall(3, shape)[: shape[0], : shape[1]])
    small = to_working(picture, working)
    assert small.shape == (*working.shape, 3)
    once = cv2.resize(picture, working.shape[::-1], interpolation=cv2.INTER_AREA)
    assert np.abs(small.astype(int) - once).mean() < 1.0


def test_a_frame_of_working_size_is_left_alone() -> None:
    picture = np.ascontiguousarray(wall(3, (96, 128))[:96, :128])
    assert to_working(picture, Working.of((96, 128), 96)) is picture
