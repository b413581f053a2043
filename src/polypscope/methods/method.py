"""What a method is: a callable from an RGB frame to detections, which can also show its energy map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.records import Detection
from polypscope.records.errors import RecordError

__all__ = ["Look", "Method", "check_frame"]


@dataclass(frozen=True, eq=False)
class Look:
    """What a method makes of one frame.

    detections: best first, in pixels of the frame. energy: float32 (H, W) of the frame's size in [0, 1], on a scale
    that is the same for every frame; None for a method that has no map.
    """

    detections: tuple[Detection, ...]
    energy: NDArray[np.float32] | None = None


class Method(ABC):
    """One team's method, ready to run; it keeps nothing from one frame to the next.

    has_map: whether its looks have an energy map.
    """

    has_map = True

    @abstractmethod
    def look(self, rgb: NDArray[np.uint8]) -> Look:
        """Detections and energy map of a frame, uint8 RGB (H, W, 3)."""

    def __call__(self, rgb: NDArray[np.uint8]) -> tuple[Detection, ...]:
        """Detections of a frame, best first."""
        return self.look(rgb).detections


def check_frame(rgb: NDArray[np.uint8]) -> None:
    """Refuse what is not an RGB frame."""
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8 or min(rgb.shape[:2]) < 8:
        raise RecordError.of(
            "frame", expected="uint8 RGB (H, W, 3) of at least 8×8 pixels", found=f"{rgb.dtype} {rgb.shape}"
        )
