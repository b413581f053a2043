"""What was found: a detection in one frame, a track over many."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from polypscope.records.checks import finite, non_negative_int, positive
from polypscope.records.errors import RecordError
from polypscope.records.maps import BinaryMask

__all__ = ["Box", "Detection", "Track", "TrackPoint"]


@dataclass(frozen=True, slots=True)
class Box:
    """An upright rectangle in pixels: left, top, width, height (COCO's order).

    >>> Box(2, 3, 4, 5).contains(5.9, 3)
    True
    """

    x: float
    y: float
    width: float
    height: float

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            object.__setattr__(self, name, finite(f"Box.{name}", getattr(self, name)))
        for name in ("width", "height"):
            object.__setattr__(
                self, name, positive(f"Box.{name}", getattr(self, name), hint="give x, y, width, height")
            )

    @property
    def center_xy(self) -> tuple[float, float]:
        """The middle of the box (x, y)."""
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def area_px(self) -> float:
        """Area in square pixels."""
        return self.width * self.height

    def contains(self, x: float, y: float) -> bool:
        """Whether a point lies inside (left and top edges count, right and bottom do not)."""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height

    def iou(self, other: Box) -> float:
        """Intersection over union with another box.

        >>> Box(0, 0, 2, 2).iou(Box(1, 0, 2, 2))
        0.3333333333333333
        """
        w = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        h = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        shared = max(w, 0.0) * max(h, 0.0)
        return shared / (self.area_px + other.area_px - shared)


@dataclass(frozen=True, eq=False, slots=True)
class Detection:
    """One output of a method in one frame: a point at least; a box, a mask and a score where the method gives them.

    point_xy: column and row in pixels, 0-based. score: confidence in [0, 1], or None when the method gives none.
    """

    point_xy: tuple[float, float]
    score: float | None = None
    box: Box | None = None
    mask: BinaryMask | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.point_xy, tuple) or len(self.point_xy) != 2:
            raise RecordError.of("Detection.point_xy", expected="(x, y)", found=repr(self.point_xy)[:60])
        x, y = (finite("Detection.point_xy", v, hint="give column and row") for v in self.point_xy)
        object.__setattr__(self, "point_xy", (x, y))
        if self.score is not None:
            score = finite("Detection.score", self.score)
            if not 0.0 <= score <= 1.0:
                raise RecordError.of(
                    "Detection.score", expected="a confidence in [0, 1]", found=f"{score:g}", hint="rescale it"
                )
            object.__setattr__(self, "score", score)

    @property
    def area_px(self) -> float | None:
        """Area of the mask, else of the box, else None."""
        if self.mask is not None:
            return float(self.mask.area_px)
        return self.box.area_px if self.box is not None else None


@dataclass(frozen=True, eq=False, slots=True)
class TrackPoint:
    """Where a followed polyp was in one frame."""

    index: int
    pts_s: float
    detection: Detection

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", non_negative_int("TrackPoint.index", self.index))
        object.__setattr__(self, "pts_s", finite("TrackPoint.pts_s", self.pts_s))


@dataclass(frozen=True, eq=False, slots=True)
class Track:
    """One polyp over time: its points in frame order, at least one."""

    id: int
    points: tuple[TrackPoint, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", non_negative_int("Track.id", self.id))
        indices = [p.index for p in self.points]
        if not indices or any(b <= a for a, b in itertools.pairwise(indices)):
            raise RecordError.of(
                "Track.points",
                expected="at least one point, frame indices rising",
                found=f"{len(indices)} points" + (f" with indices {indices[:6]}" if indices else ""),
            )

    @property
    def first(self) -> TrackPoint:
        """Where it was seen first."""
        return self.points[0]

    @property
    def last(self) -> TrackPoint:
        """Where it was seen last."""
        return self.points[-1]

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last sighting."""
        return self.last.pts_s - self.first.pts_s
