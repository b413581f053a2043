"""One picture of a video, with its place in the file and its time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.records.checks import finite, frozen_array, non_negative_int

__all__ = ["Frame"]


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """A decoded picture.

    index: position in the source, from 0, counting every frame of the file (damaged ones too).
    pts_s: presentation time in seconds, as the file states it.
    rgb: uint8 array (H, W, 3), read-only.

    >>> Frame(0, 0.0, np.zeros((4, 6, 3), np.uint8)).shape
    (4, 6)
    """

    index: int
    pts_s: float
    rgb: NDArray[np.uint8]

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", non_negative_int("Frame.index", self.index))
        object.__setattr__(self, "pts_s", finite("Frame.pts_s", self.pts_s))
        object.__setattr__(
            self,
            "rgb",
            frozen_array("Frame.rgb", self.rgb, dtype=np.uint8, ndim=3, last=3, hint="give 8-bit RGB, not BGR or grey"),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return int(self.rgb.shape[0]), int(self.rgb.shape[1])
