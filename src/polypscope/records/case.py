"""A clip is frames in order; a case is what one patient, centre or sequence contributes: the unit of every split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from polypscope.records.camera import Camera
from polypscope.records.errors import RecordError
from polypscope.records.frame import Frame
from polypscope.records.truth import GroundTruth, TruePolyp

__all__ = ["Case", "Clip", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One frame of a data set that is read when asked for: nothing is decoded until `frame()` or `truth()`."""

    name: str
    frame: Callable[[], Frame]
    truth: Callable[[], GroundTruth | None]

    def __post_init__(self) -> None:
        if not self.name:
            raise RecordError.of("Sample.name", expected="a name", found="an empty string")


@dataclass(frozen=True, eq=False, slots=True)
class Clip:
    """Frames in order. `is_video` says whether neighbours in the list are neighbours in time."""

    name: str
    samples: Sequence[Sample]
    is_video: bool = True
    camera: Camera | None = None
    attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise RecordError.of("Clip.name", expected="a name", found="an empty string")

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """All clips of one patient, centre or sequence: never divided between training and testing."""

    name: str
    clips: tuple[Clip, ...]
    polyps: tuple[TruePolyp, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise RecordError.of("Case.name", expected="a name", found="an empty string")
        names = [clip.name for clip in self.clips]
        if len(set(names)) != len(names):
            raise RecordError.of("Case.clips", expected="different clip names", found=repr(names)[:80])
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))
