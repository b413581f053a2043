"""Area averaging is OpenCV's, byte for byte, and the exact average."""

from __future__ import annotations

import os
import signal
import time
import warnings

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polypscope.runtime.area import shrunk


def _opencv(rgb: np.ndarray, width: int, height: int) -> np.ndarray:
    return np.asarray(cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA))


@given(
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
    st.tuples(st.integers(0, 60), st.integers(0, 60)),
    st.integers(0, 9),
)
def test_any_sizes_give_the_bytes_of_opencv(size: tuple[int, int], more: tuple[int, int], seed: int) -> None:
    shape = (size[0] + more[0], size[1] + more[1], 3)
    # Few grey levels, so that many averages lie half-way between two.
    rgb = np.random.default_rng(seed).integers(0, 4 if seed % 2 else 256, shape, dtype=np.uint8)
    np.testing.assert_array_equal(shrunk(rgb, size[1], size[0]), _opencv(rgb, size[1], size[0]))


@pytest.mark.parametrize("shape", [(1080, 1920), (576, 720), (384, 512), (704, 704), (353, 999), (300, 400)])
def test_frames_give_the_bytes_of_opencv(shape: tuple[int, int]) -> None:
    small = np.random.default_rng(0).integers(0, 256, (shape[0] // 8, shape[1] // 8, 3), dtype=np.uint8)
    smooth = cv2.resize(small, shape[::-1], interpolation=cv2.INTER_CUBIC)
    np.testing.assert_array_equal(shrunk(smooth, 352, 352), _opencv(smooth, 352, 352))


def test_it_is_the_average() -> None:
    rgb = np.zeros((3, 3, 3), np.uint8)
    rgb[1, 1] = 180
    # Each of four outputs covers a quarter of the middle pixel, and 2.25 pixels in all.
    assert shrunk(rgb, 2, 2).tolist() == [[[20] * 3] * 2] * 2


def test_views_are_pictures_too() -> None:
    rgb = np.random.default_rng(1).integers(0, 256, (40, 62, 3), dtype=np.uint8)
    view = rgb[::-1, ::2]
    np.testing.assert_array_equal(shrunk(view, 20, 13), _opencv(view.copy(), 20, 13))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_forked_process_shrinks_large_pictures_too() -> None:
    rgb = np.random.default_rng(2).integers(0, 256, (1080, 1920, 3), dtype=np.uint8)
    expected = shrunk(rgb, 352, 352)  # starts the second thread, which a fork does not take along
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(shrunk(rgb, 352, 352), expected) else 1)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended
    assert status == 0
