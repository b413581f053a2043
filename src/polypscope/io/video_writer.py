"""Write frames as H.264, with their own time stamps, to a file that appears only when it is whole."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
import av.error
import numpy as np

from polypscope.io.paths import atomic_path
from polypscope.records import Frame
from polypscope.records.errors import OutputError, UsageError

__all__ = ["VideoWriter"]

_CONTAINERS = frozenset({".mp4", ".mkv", ".mov"})
_DEFAULT_TIME_BASE = Fraction(1, 90000)
_BT709 = 1


class VideoWriter:
    """Writes frames as they come; leaving the block well renames the file, leaving it by an error discards it.

        with open_source("in.mp4") as source, VideoWriter("out.mp4", time_base=source.info.time_base) as writer:
            for frame in source:
                writer.write(frame)

    A picture with an odd width or height gets its last column or row once more, because H.264 in the form that every
    player reads stores colour for 2×2 pixels.

    Parameters
    ----------
    path
        Ends in .mp4, .mkv or .mov.
    fps
        Nominal rate that is written into the header; time stamps come from the frames.
    time_base
        Step of the stored time stamps in s; that of the source keeps its stamps exactly. 1/90000 s when None.
    crf
        Quality from 0 (lossless colour planes) to 51; 18 is hard to tell from the source.
    preset
        x264's trade of time against size.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        fps: float = 25.0,
        time_base: Fraction | None = None,
        crf: int = 18,
        preset: str = "veryfast",
    ) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() not in _CONTAINERS:
            raise UsageError(f"{path}: expected a video name ending in .mp4, .mkv or .mov, found {self.path.suffix!r}.")
        self._fps = Fraction(fps if 0 < fps < 1000 else 25.0).limit_denominator(1001)
        self._time_base = _fine_enough(time_base)
        self._options = {"crf": str(crf), "preset": preset}
        self._stack = ExitStack()
        self._container: Any = None
        self._stream: Any = None
        self._shape: tuple[int, int] | None = None
        self._last_pts: int | None = None
        self._temporary: Path | None = None
        self.frames_written = 0

    def __enter__(self) -> Self:
        self._temporary = self._stack.enter_context(atomic_path(self.path))
        return self

    def write(self, frame: Frame) -> None:
        """Append one frame; its time stamp must be later than the one before."""
        if self._temporary is None:
            raise UsageError(f"{self.path}: expected an open writer, found a closed one; use it in a 'with' block.")
        pts = round(Fraction(frame.pts_s) / self._time_base)
        if self._last_pts is not None and pts <= self._last_pts:
            # Files with repeated stamps exist; the smallest step keeps the order and loses no frame.
            pts = self._last_pts + 1
        if self._shape is None:
            self._start(frame.shape)
        elif frame.shape != self._shape:
            raise OutputError(
                f"{self.path}: expected frames of {self._shape[1]}×{self._shape[0]}, found {frame.shape[1]}×"
                f"{frame.shape[0]} at frame {frame.index}; resize the frames first."
            )
        height, width = frame.shape
        rgb = frame.rgb
        if height % 2 or width % 2:
            rgb = np.pad(rgb, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        picture = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(
            format="yuv420p", dst_colorspace=_BT709, dst_color_range=1
        )
        picture.pts, picture.time_base = pts, self._time_base
        self._encode(picture)
        self._last_pts = pts
        self.frames_written += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:  # renames the file, or removes it when an error passes through here
            try:
                if error is None:
                    if self._shape is None:
                        raise OutputError(f"{self.path}: expected at least one frame to write, found none.")
                    self._encode(None)
            finally:
                if self._container is not None:
                    self._close()
            if error is not None:
                raise error

    def _close(self) -> None:
        try:
            self._container.close()
        except av.error.FFmpegError as failure:
            raise OutputError(f"{self.path}: expected to finish the file, found: {failure.strerror}.") from None

    def _start(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        try:
            # The index in front lets a page play the file while it loads; Matroska has no such option.
            options = {} if self.path.suffix.lower() == ".mkv" else {"movflags": "+faststart"}
            self._container = av.open(f"file:{self._temporary}", "w", options=options)
            stream = self._container.add_stream("libx264", rate=self._fps, options=self._options)
        except (av.error.FFmpegError, ValueError) as error:
            raise OutputError(f"{self.path}: expected to write H.264, found: {error}.") from None
        stream.width, stream.height = shape[1] + shape[1] % 2, shape[0] + shape[0] % 2
        stream.pix_fmt = "yuv420p"
        stream.time_base = stream.codec_context.time_base = self._time_base
        codec = stream.codec_context
        codec.colorspace = codec.color_primaries = codec.color_trc = _BT709
        codec.color_range = 1
        self._stream = stream

    def _encode(self, picture: av.VideoFrame | None) -> None:
        try:
            self._container.mux(self._stream.encode(picture))
        except av.error.FFmpegError as error:
            raise OutputError(
                f"{self.path}: expected to write a frame, found: {error.strerror}; check the free space."
            ) from None


def _fine_enough(time_base: Fraction | None) -> Fraction:
    """The source's step, divided until it is fine enough for two frames never to share one."""
    if time_base is None or time_base <= 0:
        return _DEFAULT_TIME_BASE
    step = time_base
    while step > Fraction(1, 10000):
        step /= 2
    return step
