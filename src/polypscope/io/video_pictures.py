"""From a decoded picture to RGB as a viewer would see it: colours, bit depth, orientation, de-interlacing."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import av.filter
import numpy as np
from numpy.typing import NDArray

__all__ = ["Deinterlacer", "RgbConverter", "orientation"]

_STEP = Fraction(1, 25)


def orientation(picture: av.VideoFrame) -> tuple[int, bool]:
    """(quarter turns counter-clockwise, then whether to mirror left-right) that show a picture upright.

    From the display matrix, which phones and some recorders write; FFmpeg's own tools apply it too.
    """
    side_data: Any
    for side_data in picture.side_data:
        if side_data.type.name == "DISPLAYMATRIX":
            a, b, _, c, d = np.frombuffer(bytes(side_data), dtype=np.int32)[:5].tolist()
            return _from_matrix(a, b, c, d)
    return 0, False


def _from_matrix(a: int, b: int, c: int, d: int) -> tuple[int, bool]:
    # x' = a x + c y, y' = b x + d y with y down; a negative determinant is a mirror image, undone first.
    mirrored = a * d - b * c < 0
    if mirrored:
        a, b = -a, -b
    if abs(a) >= abs(b):
        return (0 if a > 0 else 2), mirrored
    return (1 if b < 0 else 3), mirrored


class RgbConverter:
    """Converts pictures to uint8 RGB (H, W, 3), with the colour matrix and range that the picture states."""

    def __init__(self) -> None:
        self._reformatter = av.video.reformatter.VideoReformatter()
        self._rotation: int | None = None
        self._orientation = (0, False)

    def __call__(self, picture: av.VideoFrame) -> NDArray[np.uint8]:
        full_range = picture.color_range == 2
        rgb = self._reformatter.reformat(
            picture,
            format="rgb24",
            interpolation="BICUBIC",  # as FFmpeg itself; matters for 10-bit and interlaced pictures
            src_color_range=2 if full_range else None,
            dst_color_range=2 if full_range else None,
        ).to_ndarray()
        # Looking at its side data ties a picture into a reference cycle, which keeps its memory until the next garbage
        # collection (hundreds of MB at 1080p). The rotation is free to read: only when it changes is more looked at.
        if picture.rotation != self._rotation:
            self._rotation, self._orientation = picture.rotation, orientation(picture)
        turns, mirrored = self._orientation
        if mirrored:
            rgb = rgb[:, ::-1]
        if turns:
            rgb = np.rot90(rgb, turns)
        out: NDArray[np.uint8] = np.ascontiguousarray(rgb)
        return out


class Deinterlacer:
    """FFmpeg's bwdif filter, one progressive picture for each interlaced one, in order.

    Pictures are numbered on their way through it, because their own stamps may be missing; the caller keeps those.
    """

    def __init__(self) -> None:
        self._pushed = 0
        self._graph: Any = None
        self._layout: tuple[object, ...] = ()

    def push(self, picture: av.VideoFrame) -> Iterator[av.VideoFrame]:
        """Give one picture; get those that are ready, in order (it lags one behind)."""
        layout = (picture.width, picture.height, picture.format.name)
        if layout != self._layout:
            yield from self.flush()
            self._build(picture)
            self._layout = layout
        picture.pts, picture.time_base = self._pushed, _STEP
        self._pushed += 1
        self._graph.push(picture)
        yield from self._pull()

    def flush(self) -> Iterator[av.VideoFrame]:
        """Get the pictures that are still inside."""
        if self._graph is not None:
            self._graph.push(None)
            yield from self._pull()
            self._graph, self._layout = None, ()

    def _build(self, picture: av.VideoFrame) -> None:
        graph = av.filter.Graph()
        source = graph.add_buffer(width=picture.width, height=picture.height, format=picture.format, time_base=_STEP)
        deinterlace = graph.add("bwdif", "mode=send_frame:parity=auto:deint=all")
        sink = graph.add("buffersink")
        source.link_to(deinterlace)
        deinterlace.link_to(sink)
        graph.configure()
        self._graph = graph

    def _pull(self) -> Iterator[av.VideoFrame]:
        while True:
            try:
                yield self._graph.pull()
            except (BlockingIOError, EOFError):
                return
