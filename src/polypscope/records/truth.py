"""Truth and prediction for one frame: two types, so that an evaluator cannot be given them the wrong way round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.records.checks import finite, frozen_array, non_negative_int, positive, same_shape
from polypscope.records.detection import Box, Detection
from polypscope.records.errors import RecordError
from polypscope.records.maps import BinaryMask, DepthMap, ProbabilityMap

__all__ = ["GroundTruth", "Prediction", "TruePolyp"]


@dataclass(frozen=True, slots=True)
class TruePolyp:
    """What is known of one polyp: its id in the case and, where labelled, size, Paris class, segment and a box."""

    id: int
    size_mm: float | None = None
    paris: str | None = None
    segment: str | None = None
    box: Box | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", non_negative_int("TruePolyp.id", self.id))
        if self.id == 0:
            raise RecordError.of("TruePolyp.id", expected="1 or more (0 is background)", found="0")
        if self.size_mm is not None:
            object.__setattr__(self, "size_mm", positive("TruePolyp.size_mm", self.size_mm, hint="give millimetres"))


def _check_frame(kind: str, record: GroundTruth | Prediction) -> None:
    object.__setattr__(record, "index", non_negative_int(f"{kind}.index", record.index))
    object.__setattr__(record, "pts_s", finite(f"{kind}.pts_s", record.pts_s))
    if len(record.shape) != 2 or min(record.shape) < 1:
        raise RecordError.of(f"{kind}.shape", expected="(height, width) in pixels", found=repr(record.shape))


@dataclass(frozen=True, eq=False, slots=True)
class GroundTruth:
    """The truth of one frame.

    shape: (height, width). instances: uint16 (H, W) label map, 0 = background, label = `TruePolyp.id`; None when only
    boxes or presence are known. polyps: those visible in this frame. depth: where known.
    """

    index: int
    pts_s: float
    shape: tuple[int, int]
    polyps: tuple[TruePolyp, ...] = ()
    instances: NDArray[np.uint16] | None = None
    depth: DepthMap | None = None

    def __post_init__(self) -> None:
        _check_frame("GroundTruth", self)
        if self.instances is not None:
            labels = frozen_array(
                "GroundTruth.instances", self.instances, dtype=np.uint16, ndim=2, hint="label pixels with polyp ids"
            )
            same_shape("GroundTruth.instances", labels.shape, "the frame", self.shape)
            object.__setattr__(self, "instances", labels)
        if self.depth is not None:
            same_shape("GroundTruth.depth", self.depth.shape, "the frame", self.shape)
        ids = [p.id for p in self.polyps]
        if len(set(ids)) != len(ids):
            raise RecordError.of("GroundTruth.polyps", expected="each polyp once", found=f"ids {ids}")

    @property
    def has_polyp(self) -> bool:
        """Whether a polyp is visible in this frame."""
        return bool(self.polyps) or (self.instances is not None and bool(self.instances.any()))

    @property
    def mask(self) -> BinaryMask | None:
        """All polyps together, where pixels are labelled."""
        return None if self.instances is None else BinaryMask(self.instances > 0)


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """What a method said of one frame."""

    index: int
    pts_s: float
    shape: tuple[int, int]
    detections: tuple[Detection, ...] = ()
    probability: ProbabilityMap | None = None
    depth: DepthMap | None = None

    def __post_init__(self) -> None:
        _check_frame("Prediction", self)
        if self.probability is not None:
            same_shape("Prediction.probability", self.probability.shape, "the frame", self.shape)
        if self.depth is not None:
            same_shape("Prediction.depth", self.depth.shape, "the frame", self.shape)
