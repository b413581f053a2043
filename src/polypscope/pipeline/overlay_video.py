"""The overlay as H.264, drawn and encoded in a thread of its own, in parts that are joined without encoding again.

A part reaches from one checkpoint of the run to the next, so an interrupted run loses no part that was finished, and
a resumed one ends with the same video as an unbroken one. Time stamps are those of the source.
"""

from __future__ import annotations

import queue
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope import DISCLAIMER
from polypscope.io.paths import atomic_path
from polypscope.pipeline.engine import Stopwatch, Told
from polypscope.pipeline.findings import Working
from polypscope.pipeline.overlay import draw
from polypscope.records.errors import OutputError
from polypscope.runtime.priority import stand_back

__all__ = ["OverlayWriter", "join_parts"]

_TIME_BASE = Fraction(1, 90_000)
_COMMENT = f"Polypscope overlay. {DISCLAIMER}"
_CLOSE, _STOP = "close", "stop"


class OverlayWriter:
    """Takes frames with what was told of them; `close_part` waits until everything given so far is in a whole file."""

    def __init__(self, folder: Path, working: Working, fps: float, first_part: int = 0) -> None:
        self.parts = first_part
        self.watch = Stopwatch()
        self._folder = folder
        self._working = working
        self._fps = Fraction(fps).limit_denominator(1001) if fps > 0 else Fraction(25)
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=6)  # bounded: a slow encoder slows the run, not the memory
        self._closed = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="overlay", daemon=True)
        self._thread.start()

    def add(self, rgb: NDArray[np.uint8], told: Told) -> None:
        """Give the next frame."""
        self._check()
        self._queue.put((rgb, told))

    def close_part(self) -> None:
        """Finish the file of this part; the next frame begins another."""
        self._closed.clear()
        self._queue.put(_CLOSE)
        self._closed.wait()
        self._check()

    def stop(self) -> None:
        """End the thread; an unfinished part is left behind under its temporary name."""
        self._queue.put(_STOP)
        self._thread.join()

    def _check(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise OutputError(
                f"{self._folder}: expected to write the overlay video, found: {error}; make room and run again "
                "with --resume, or leave it out with --no-overlay."
            ) from error

    def _work(self) -> None:
        stand_back()
        part: _Part | None = None
        failed = False
        while (item := self._queue.get()) is not _STOP:
            try:
                if item is _CLOSE:
                    if part is not None and not failed:
                        part.close()
                        self.parts += 1
                    part, failed = None, False
                    continue
                if failed:
                    continue  # keep taking frames, so that nobody waits for a full queue; `add` will raise
                if part is None:
                    part = _Part(self._folder / f"{self.parts:06d}.mp4", self._working.frame_shape, self._fps)
                rgb, told = item
                with self.watch("draw"):
                    picture = draw(rgb, told, self._working)
                with self.watch("encode"):
                    part.add(picture, told.findings.pts_s)
            except Exception as error:
                self._error, failed = error, True
            finally:
                if item is _CLOSE:
                    self._closed.set()
        if part is not None:
            part.abandon()


class _Part:
    def __init__(self, path: Path, shape: tuple[int, int], fps: Fraction) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.part")
        # Chroma has half the resolution, so odd sides get one more pixel, a copy of their neighbour.
        self._even = (shape[0] + shape[0] % 2, shape[1] + shape[1] % 2)
        self._container = av.open(str(self._temporary), "w", format="mp4")
        self._container.metadata["comment"] = _COMMENT
        stream = self._container.add_stream(
            "libx264", rate=fps, options={"preset": "ultrafast", "crf": "20", "tune": "zerolatency"}
        )
        stream.height, stream.width = self._even
        stream.pix_fmt = "yuv420p"
        stream.time_base = _TIME_BASE
        # Players guess the colour matrix from the height unless they are told.
        self._matrix = "ITU709" if shape[0] >= 720 else "ITU601"
        stream.codec_context.colorspace = 1 if shape[0] >= 720 else 6
        stream.codec_context.color_range = 1
        stream.codec_context.thread_count = 2
        self._stream: Any = stream
        self._last = -1

    def add(self, rgb: NDArray[np.uint8], pts_s: float) -> None:
        height, width = rgb.shape[:2]
        if (height, width) != self._even:
            rgb = np.asarray(
                cv2.copyMakeBorder(
                    rgb, 0, self._even[0] - height, 0, self._even[1] - width, borderType=cv2.BORDER_REPLICATE
                )
            )
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")
        frame = frame.reformat(format="yuv420p", dst_colorspace=self._matrix, dst_color_range="MPEG")
        # Time must rise in a file; damaged recordings sometimes repeat it.
        frame.pts = self._last = max(round(pts_s / _TIME_BASE), self._last + 1)
        frame.time_base = _TIME_BASE
        self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        self._temporary.replace(self._path)

    def abandon(self) -> None:
        self._container.close()
        self._temporary.unlink(missing_ok=True)


def join_parts(parts: list[Path], path: Path) -> None:
    """Put parts together into one file: packets are copied, not encoded again."""
    with atomic_path(path) as temporary, av.open(str(temporary), "w", format="mp4") as out:
        out.metadata["comment"] = _COMMENT
        stream: Any = None
        last = -1
        for part in parts:
            with av.open(str(part)) as source:
                given = source.streams.video[0]
                if stream is None:
                    stream = out.add_stream_from_template(given)
                    stream.time_base = _TIME_BASE
                for packet in source.demux(given):
                    if packet.dts is None:
                        continue
                    # An mp4 of one part may start its clock anew; the packets carry the true time as their offset.
                    packet.pts = last = max(int(packet.pts * packet.time_base / _TIME_BASE), last + 1)
                    packet.dts = packet.pts
                    packet.time_base = _TIME_BASE
                    packet.stream = stream
                    out.mux(packet)
