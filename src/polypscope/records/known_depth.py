"""A depth that somebody measured: what a forceps contact tells about one point of one frame."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polypscope.records.checks import finite, non_negative_int, positive
from polypscope.records.errors import RecordError

__all__ = ["KnownDepth"]


@dataclass(frozen=True, slots=True)
class KnownDepth:
    """The depth of one point: frame (index in its video), x_px and y_px (pixel centres at whole numbers), depth_mm
    along the optical axis. shaft: unit vector in the camera frame along the instrument that touches the point, from its
    tip backwards, if there is one: it hides tissue, and nobody should take it for tissue.

    >>> KnownDepth(120, 310.5, 244.0, 21.4).depth_mm
    21.4
    """

    frame: int
    x_px: float
    y_px: float
    depth_mm: float
    shaft: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        non_negative_int("KnownDepth.frame", self.frame, hint="count frames from 0")
        finite("KnownDepth.x_px", self.x_px)
        finite("KnownDepth.y_px", self.y_px)
        positive("KnownDepth.depth_mm", self.depth_mm, hint="give millimetres along the optical axis")
        if self.shaft is not None:
            length = math.hypot(*(finite("KnownDepth.shaft", value) for value in self.shaft))
            if not 0.99 < length < 1.01:
                raise RecordError.of("KnownDepth.shaft", expected="a unit vector", found=f"one of length {length:g}")
