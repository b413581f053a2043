"""Where frames come from: a video file, a folder of images and a camera are one kind of thing, a `FrameSource`.

with open_source("recording.mp4") as source:
    for frame in source:          # Frame(index, pts_s, rgb), one at a time
        ...
    print(source.damaged, source.notes)
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

from polypscope.records import Frame
from polypscope.records.errors import MissingInput

__all__ = ["FrameSource", "SourceInfo", "open_source"]


@dataclass(frozen=True)
class SourceInfo:
    """What is known of a source before it is read; None where it is not known.

    fps: mean rate; the time stamps of the frames are what counts. frame_count and duration_s: as the file claims,
    which a damaged file may not keep. width and height: after rotation. time_base: the step of the time stamps, in s.
    """

    name: str
    kind: str
    width: int
    height: int
    fps: float | None = None
    frame_count: int | None = None
    duration_s: float | None = None
    codec: str | None = None
    pixel_format: str | None = None
    interlaced: bool | None = None
    rotation_deg: int = 0
    pixel_aspect: float = 1.0
    has_audio: bool = False
    time_base: Fraction | None = None


class FrameSource(ABC):
    """Frames in order, each with its index and time stamp. Iterating again starts again (a camera goes on).

    `notes` and `damaged` grow while frames are read, and are complete at the end.
    """

    def __init__(self, info: SourceInfo) -> None:
        self.info = info
        self._notes: list[str] = []
        self._damaged: list[int] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user: what was skipped, assumed or found odd, in words."""
        summary = (self._damage_note(),) if self._damaged else ()
        return (*self._notes, *summary)

    @property
    def damaged(self) -> tuple[int, ...]:
        """Indices of frames that could not be decoded and were skipped."""
        return tuple(self._damaged)

    def note(self, text: str) -> None:
        """Add a remark, once."""
        if text not in self._notes:
            self._notes.append(text)

    def __iter__(self) -> Iterator[Frame]:
        self._damaged.clear()
        return self._frames()

    @abstractmethod
    def _frames(self) -> Iterator[Frame]: ...

    def close(self) -> None:
        """Let go of files and devices; reading stops."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _damage_note(self) -> str:
        count = len(self._damaged)
        listed = _ranges(self._damaged)
        return f"{count} damaged frame{'' if count == 1 else 's'} skipped: {listed}"


def open_source(what: str | Path, *, deinterlace: bool = False, image_fps: float = 25.0) -> FrameSource:
    """Open a video file, a folder of images, or a camera.

    Parameters
    ----------
    what
        Path of a video file or of a folder of images (read in natural order), or a camera: "camera:0", "/dev/video0".
    deinterlace
        Turn interlaced pictures into progressive ones, one for one; video files only.
    image_fps
        Rate that gives the images of a folder their time stamps.
    """
    from polypscope.io.camera_device import CameraSource
    from polypscope.io.image_folder import ImageFolderSource
    from polypscope.io.video import VideoSource

    text = str(what)
    camera = re.fullmatch(r"camera:(\d+)|(/dev/video\d+)", text)
    if camera:
        return CameraSource(int(camera[1]) if camera[1] else camera[2])
    path = Path(what)
    if path.is_dir():
        return ImageFolderSource(path, fps=image_fps)
    if not path.exists():
        raise MissingInput(
            f"{text}: expected a video file, a folder of images or a camera such as camera:0, found nothing there; "
            "check the path."
        )
    return VideoSource(path, deinterlace=deinterlace)


def _ranges(indices: list[int], most: int = 12) -> str:
    """Indices as words: 3, 7–9, 12.

    >>> _ranges([3, 7, 8, 9, 12])
    '3, 7–9, 12'
    """
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    words = [str(first) if first == last else f"{first}–{last}" for first, last in runs[:most]]
    return ", ".join(words) + (" …" if len(runs) > most else "")
