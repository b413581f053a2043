"""What the pipeline asks of a segmenter and of a depth model, and how a frame becomes a working image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.pipeline.findings import Working
from polypscope.records import Camera, DepthMap, ProbabilityMap
from polypscope.runtime.area import shrunk

__all__ = ["Ranger", "Seer", "to_working"]


@runtime_checkable
class Seer(Protocol):
    """A streaming segmenter. Its memory can be taken out and put back, so that an interrupted run goes on exactly."""

    def step(self, rgb: NDArray[np.uint8]) -> ProbabilityMap:
        """The next frame, uint8 (H, W, 3), to a probability map of the same size."""
        ...

    def reset(self) -> None:
        """Forget the frames so far: a new scene begins."""
        ...

    def state(self) -> Mapping[str, NDArray[Any]]:
        """The memory as named arrays; empty when there is none."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Put a memory back."""
        ...


@runtime_checkable
class Ranger(Protocol):
    """A metric depth model."""

    def depth(self, rgb: NDArray[np.uint8], camera: Camera) -> DepthMap:
        """Depth in mm of a frame, uint8 (H, W, 3), taken with this camera, at the frame's size."""
        ...


def to_working(rgb: NDArray[np.uint8], working: Working) -> NDArray[np.uint8]:
    """A frame at working size (area average, so that fine texture does not alias)."""
    if rgb.shape[:2] == working.shape:
        return rgb
    height, width = rgb.shape[:2]
    while height >= 2 * working.shape[0] and width >= 2 * working.shape[1] and height % 2 == width % 2 == 0:
        # Exact halves are averaged many times faster than other ratios: a 1080p frame takes half the time this way.
        height, width = height // 2, width // 2
        rgb = np.asarray(cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA))
    return shrunk(rgb, working.shape[1], working.shape[0])
