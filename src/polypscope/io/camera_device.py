"""A camera or frame grabber as a source of frames, through FFmpeg's capture devices (v4l2 on Linux)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import av.error

from polypscope.io.sources import FrameSource, SourceInfo
from polypscope.io.video_pictures import RgbConverter
from polypscope.records import Frame
from polypscope.records.errors import InputError, MissingInput

__all__ = ["CameraSource"]

_CAPTURE = {"linux": "v4l2", "darwin": "avfoundation", "win32": "dshow"}
# A device that fails this often in a row has been unplugged.
_MAX_FAULTS = 25


class CameraSource(FrameSource):
    """Frames of a camera until it is closed; time stamps count from the first frame.

    Parameters
    ----------
    device
        Number of the camera, or its path or name for FFmpeg ("/dev/video0").
    fps, width, height
        What to ask the device for; its own choice when None.
    """

    def __init__(
        self, device: int | str = 0, *, fps: float | None = None, width: int | None = None, height: int | None = None
    ) -> None:
        name = _device_name(device)
        options = {} if fps is None else {"framerate": f"{fps:g}"}
        if width is not None and height is not None:
            options["video_size"] = f"{width}x{height}"
        try:
            self._container: Any = av.open(name, format=_CAPTURE.get(sys.platform, "v4l2"), options=options)
        except (av.error.FFmpegError, ValueError, OSError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise InputError(
                f"camera {device}: expected a camera that can be opened, found: {reason}; close what else uses "
                "it, check its permissions, or leave out size and rate."
            ) from None
        stream = self._container.streams.video[0]
        rate, codec = stream.average_rate, stream.codec_context
        codec.thread_type = "SLICE"  # several frames at once would only add delay
        super().__init__(
            SourceInfo(name, "camera", codec.width, codec.height, float(rate) if rate else None, codec=codec.name)
        )
        self._closed = False
        self._next_index = 0
        self._first_pts: int | None = None

    def close(self) -> None:
        """Let go of the device; a running iteration ends."""
        self._closed = True
        self._container.close()

    def _is_open(self) -> bool:
        return not self._closed

    def _frames(self) -> Iterator[Frame]:
        stream = self._container.streams.video[0]
        convert, faults = RgbConverter(), 0
        while self._is_open():
            try:
                for packet in self._container.demux(stream):
                    for picture in packet.decode():
                        faults = 0
                        yield self._frame(picture, stream, convert)
                        if not self._is_open():  # FFmpeg must not be asked again
                            return
                return
            except av.error.FFmpegError as error:
                faults += 1
                self._damaged.append(self._next_index)
                self._next_index += 1
                if faults >= _MAX_FAULTS:
                    raise InputError(
                        f"camera {self.info.name}: expected frames, found: {error.strerror}; check its cable."
                    ) from None

    def _frame(self, picture: Any, stream: Any, convert: RgbConverter) -> Frame:
        if self._first_pts is None:
            self._first_pts = picture.pts or 0
        pts_s = float(((picture.pts or 0) - self._first_pts) * stream.time_base)
        frame = Frame(self._next_index, pts_s, convert(picture))
        self._next_index += 1
        return frame


def _device_name(device: int | str) -> str:
    if isinstance(device, str) and not device.startswith("/dev/"):
        return device
    if sys.platform != "linux":
        return str(device)
    path = Path(f"/dev/video{device}" if isinstance(device, int) else device)
    if not path.exists():
        there = ", ".join(sorted(str(found) for found in Path("/dev").glob("video*")))
        raise MissingInput(
            f"camera {device}: expected a camera at {path}, found {f'only {there}' if there else 'no camera at all'}; "
            "connect one, or give a video file."
        )
    return str(path)
