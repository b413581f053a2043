"""What flows through the house: frozen records checked at birth, and the error tree (numpy and stdlib only)."""

from polypscope.records.camera import Camera, Lens
from polypscope.records.case import Case, Clip, Sample
from polypscope.records.detection import Box, Detection, Track, TrackPoint
from polypscope.records.errors import (
    DamagedInput,
    InputError,
    MissingExtra,
    MissingInput,
    ModelError,
    OutputError,
    PolypscopeError,
    RecordError,
    UnsafeInput,
    UsageError,
)
from polypscope.records.frame import Frame
from polypscope.records.known_depth import KnownDepth
from polypscope.records.maps import BinaryMask, DepthKind, DepthMap, ProbabilityMap
from polypscope.records.size import SizeEstimate
from polypscope.records.truth import GroundTruth, Prediction, TruePolyp

__all__ = [
    "BinaryMask",
    "Box",
    "Camera",
    "Case",
    "Clip",
    "DamagedInput",
    "DepthKind",
    "DepthMap",
    "Detection",
    "Frame",
    "GroundTruth",
    "InputError",
    "KnownDepth",
    "Lens",
    "MissingExtra",
    "MissingInput",
    "ModelError",
    "OutputError",
    "PolypscopeError",
    "Prediction",
    "ProbabilityMap",
    "RecordError",
    "Sample",
    "SizeEstimate",
    "Track",
    "TrackPoint",
    "TruePolyp",
    "UnsafeInput",
    "UsageError",
]
