"""Video files as frames: streamed through FFmpeg (PyAV), one frame at a time, with exact indices and time stamps.

The file is read from beginning to end and never sought by frame number, because such seeks are wrong on files with
variable rate. Decoding uses all cores until the first fault; then it starts again on one core and goes on from the
frame after the last one given. With several cores at work the decoder repairs damaged pictures worse and loses whole
ones at the end of a damaged file; on one core each fault belongs to one packet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error

from polypscope.io.limits import check_pixels, max_pixels
from polypscope.io.paths import require_file
from polypscope.io.sources import FrameSource, SourceInfo
from polypscope.io.video_pictures import Deinterlacer, RgbConverter, orientation
from polypscope.io.video_timing import BestEffortClock, LossCounter
from polypscope.records import Frame
from polypscope.records.errors import DamagedInput, InputError, UsageError

__all__ = ["VIDEO_SUFFIXES", "VideoSource", "count_frames"]

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts", ".wmv", ".flv", ".vob"}
    | {".mxf", ".dv", ".3gp", ".ogv"}
)

# FFmpeg draws any text as a "video" of terminal characters; nobody means that.
_TEXT_CODECS = frozenset({"ansi", "bintext", "xbin", "idf"})
# A file whose reading fails this often in a row has nothing more to give.
_MAX_READ_FAULTS = 64
# A header may claim a little more than the frames fill; beyond this, frames are taken as missing.
_TRUNCATION_TOLERANCE_S = 0.5
# How many packets are tried to see a first picture when a file is opened.
_PEEK_PACKETS = 300


class _Fault(Exception):
    """Inside only: the pass on all cores met a fault."""


@dataclass(frozen=True)
class _Item:
    """A decoded picture with its place, or a lost one (picture is None)."""

    index: int
    pts_s: float = 0.0
    picture: av.VideoFrame | None = None


class VideoSource(FrameSource):
    """A video file.

    Parameters
    ----------
    path
        Any file that FFmpeg decodes; audio and further streams are left aside.
    deinterlace
        Turn interlaced pictures into progressive ones, one for one, time stamps kept.
    """

    def __init__(self, path: str | Path, *, deinterlace: bool = False) -> None:
        self.path = require_file(path, "video file")
        self._deinterlace = deinterlace
        self._closed = False
        with self._open() as container:
            super().__init__(_describe(self.path, container, _video_stream(self.path, container)))
            self._note_oddities(container)

    def close(self) -> None:
        """End a running iteration, which then closes the file; closing it here would pull it from under FFmpeg."""
        self._closed = True

    def _open(self) -> Any:
        try:
            # "file:" keeps a colon in a name from being taken for a protocol; the white list keeps a hostile play list
            # from reaching the network.
            return av.open(
                f"file:{self.path.absolute()}", options={"protocol_whitelist": "file"}, metadata_errors="replace"
            )
        except (av.error.FFmpegError, ValueError) as error:
            raise DamagedInput(_cannot_open(self.path, error)) from None

    def _frames(self) -> Iterator[Frame]:
        if self._closed:
            raise UsageError(f"{self.path}: expected an open source, found a closed one; open it again.")
        convert = RgbConverter()
        shape: tuple[int, int] | None = None
        items = self._items()
        for item in _deinterlaced(items) if self._deinterlace else items:
            if item.picture is None:
                self._damaged.append(item.index)
                continue
            check_pixels(item.picture.width, item.picture.height, f"{self.path}, frame {item.index}")
            frame = Frame(item.index, item.pts_s, convert(item.picture))
            if shape is not None and frame.shape != shape:
                old, new = f"{shape[1]}×{shape[0]}", f"{frame.shape[1]}×{frame.shape[0]}"
                self.note(f"the picture size changes at frame {item.index} from {old} to {new}")
            shape = frame.shape
            yield frame
        if shape is None and not self._closed:
            raise DamagedInput(
                f"{self.path}: expected a video, found no frame that can be decoded; copy the recording again."
            )

    def _items(self) -> Iterator[_Item]:
        """Pictures and losses in order: on all cores while the file is sound, then on one."""
        given = 0
        try:
            for item in self._decode(careful=False):
                yield item
                given = item.index + 1
        except _Fault:
            self.note("frames behind a damaged one may show traces of it until the next key frame")
            yield from (item for item in self._decode(careful=True) if item.index >= given)

    def _decode(self, *, careful: bool) -> Iterator[_Item]:
        with self._open() as container:
            yield from self._decode_opened(container, careful)

    def _decode_opened(self, container: Any, careful: bool) -> Iterator[_Item]:
        stream = _video_stream(self.path, container)
        stream.codec_context.thread_type = "SLICE" if careful else "AUTO"
        stream.codec_context.options = {"max_pixels": str(max_pixels())}
        losses = LossCounter()
        stamps, index = _Stamps(self, stream, losses), 0
        end = _End()
        for packet in _packets(container, stream, losses, end):
            if self._closed:
                return
            pictures = _pictures_of(stream, packet, losses)
            for picture in pictures:
                if picture.is_corrupt:
                    losses.disturbed()
                if losses.trouble and not careful:
                    raise _Fault
                for _ in range(losses.received(picture.pts)):
                    yield _Item(index)
                    index += 1
                yield _Item(index) if picture.is_corrupt else _Item(index, stamps.next_s(picture, index), picture)
                index += 1
            if losses.trouble and not careful:
                raise _Fault
        if losses.short and not careful:
            raise _Fault
        for _ in range(losses.finished()):
            yield _Item(index)
            index += 1
        self._note_end(stream, end)

    def _note_oddities(self, container: Any) -> None:
        info = self.info
        if info.interlaced and not self._deinterlace:
            self.note("the pictures are interlaced; ask for de-interlacing if comb lines disturb")
        if abs(info.pixel_aspect - 1) > 1e-3:
            self.note(f"the pixels are not square (width : height = {info.pixel_aspect:.4g}); they are given as stored")
        if len(_video_streams(container)) > 1:
            self.note(f"the file holds {len(_video_streams(container))} video streams; the first is read")

    def _note_end(self, stream: Any, end: _End) -> None:
        """Say it when the file holds less than its header promises."""
        if end.unreadable:
            self.note("a part of the file could not be read")
        if stream.frames > end.packets > 0:
            self.note(
                f"the file ends early: its header states {stream.frames} frames, {end.packets} were found; "
                "it may be truncated"
            )
            return
        stated_s = self.info.duration_s
        # Some containers count their duration from zero, others from the first frame: the longer one decides.
        ends_s = float(max(end.end, end.end - (stream.start_time or 0)) * stream.time_base)
        if stated_s is None or self.info.has_audio or end.packets == 0:
            return
        if ends_s < stated_s - _TRUNCATION_TOLERANCE_S:
            self.note(
                f"the file ends early: its header states {stated_s:.2f} s, its frames end at {ends_s:.2f} s; "
                "it may be truncated"
            )


@dataclass
class _End:
    """What was seen of a file when its end was reached."""

    packets: int = 0
    end: int = 0
    unreadable: bool = False


class _Stamps:
    """Time stamps in seconds, by FFmpeg's rule; by the mean rate, and said so, where the file has none."""

    def __init__(self, source: VideoSource, stream: Any, losses: LossCounter) -> None:
        self._source, self._losses, self._clock = source, losses, BestEffortClock()
        self._time_base: Fraction = stream.time_base
        self._fps = source.info.fps or 25.0

    def next_s(self, picture: av.VideoFrame, index: int) -> float:
        stamp = self._clock.stamp(picture.pts, picture.dts, sound=not self._losses.trouble)
        if stamp is None:
            self._source.note(f"the file has no time stamps; they follow from its rate of {self._fps:g} per second")
            return index / self._fps
        return float(stamp * self._time_base)


def count_frames(path: str | Path) -> int:
    """Number of frames in a video file, counted without decoding."""
    source = VideoSource(path)
    with source._open() as container:
        stream = _video_stream(source.path, container)
        packets = _packets(container, stream, LossCounter(), _End())
        return sum(packet is not None and not packet.is_discard for packet in packets)


def _packets(container: Any, stream: Any, losses: LossCounter, end: _End) -> Iterator[Any]:
    """Packets of the stream, then None to empty the decoder; a place that cannot be read is passed over."""
    faults = 0
    while faults < _MAX_READ_FAULTS:
        try:
            for packet in container.demux(stream):
                if packet.size == 0:
                    continue
                faults = 0
                end.packets += 1
                if packet.pts is not None:
                    end.end = max(end.end, packet.pts + (packet.duration or 0))
                yield packet
            break
        except av.error.FFmpegError:
            faults += 1
            end.unreadable = True
            losses.disturbed()
    yield None


def _pictures_of(stream: Any, packet: Any, losses: LossCounter) -> list[Any]:
    """Pictures that come out of the decoder when this packet goes in; a refused packet is counted."""
    if packet is not None and not packet.is_discard:
        losses.sent(packet.pts)
        if packet.is_corrupt:
            losses.disturbed()
    try:
        pictures: list[Any] = stream.codec_context.decode(packet)
        return pictures
    except EOFError:
        return []
    except (av.error.FFmpegError, MemoryError):
        if packet is None:
            losses.disturbed()
        else:
            losses.failed(packet.pts)
        return []


def _deinterlaced(items: Iterator[_Item]) -> Iterator[_Item]:
    deinterlacer = Deinterlacer()
    inside: deque[_Item] = deque()
    for item in items:
        if item.picture is None:
            yield item
            continue
        inside.append(item)
        for picture in deinterlacer.push(item.picture):
            yield replace(inside.popleft(), picture=picture)
    for picture in deinterlacer.flush():
        yield replace(inside.popleft(), picture=picture)


def _video_streams(container: Any) -> list[Any]:
    """Video streams that are moving pictures: cover art of audio files is left out."""
    return [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]


def _video_stream(path: Path, container: Any) -> Any:
    streams = _video_streams(container)
    if not streams:
        kinds = sorted({stream.type for stream in container.streams})
        found = f"only {' and '.join(kinds)}" if kinds else "no stream at all"
        raise InputError(f"{path}: expected a video, found {found}; give a file with pictures.")
    stream = streams[0]
    codec = stream.codec_context
    if codec is None or codec.codec is None:
        raise InputError(f"{path}: expected a video, found a stream that FFmpeg cannot decode; convert it first.")
    if codec.name in _TEXT_CODECS:
        raise InputError(f"{path}: expected a video, found text; give a video file.")
    check_pixels(codec.width, codec.height, str(path))
    return stream


def _describe(path: Path, container: Any, stream: Any) -> SourceInfo:
    codec = stream.codec_context
    picture = _first_picture(container, stream)
    width, height = (picture.width, picture.height) if picture is not None else (codec.width, codec.height)
    turns = orientation(picture)[0] if picture is not None else 0
    if turns % 2:
        width, height = height, width
    duration_s = None
    if stream.duration is not None:
        duration_s = float(stream.duration * stream.time_base)
    elif container.duration is not None:
        duration_s = container.duration / av.time_base
    rate = stream.average_rate or stream.guessed_rate
    aspect = stream.sample_aspect_ratio
    return SourceInfo(
        name=path.name,
        kind="video",
        width=width,
        height=height,
        fps=float(rate) if rate else None,
        frame_count=stream.frames or None,
        duration_s=duration_s,
        codec=codec.name,
        pixel_format=picture.format.name if picture is not None else codec.pix_fmt,
        interlaced=picture.interlaced_frame if picture is not None else None,
        rotation_deg=turns * 90,
        pixel_aspect=float(aspect) if aspect else 1.0,
        has_audio=bool(container.streams.audio),
        time_base=stream.time_base,
    )


def _first_picture(container: Any, stream: Any) -> av.VideoFrame | None:
    losses = LossCounter()
    stream.codec_context.thread_type = "SLICE"
    stream.codec_context.options = {"max_pixels": str(max_pixels())}
    for count, packet in enumerate(_packets(container, stream, losses, _End())):
        pictures = _pictures_of(stream, packet, losses)
        if pictures or count >= _PEEK_PACKETS:
            return pictures[0] if pictures else None
    return None


def _cannot_open(path: Path, error: Exception) -> str:
    with path.open("rb") as stream:
        start = stream.read(4096)
    if start[4:8] == b"ftyp":
        return (
            f"{path}: expected a video, found an MP4 or MOV whose index is missing or damaged, as when a recording was "
            "cut off; copy it again, or rebuild the index with a repair tool."
        )
    if start and start.isascii() and b"\0" not in start:
        return f"{path}: expected a video, found text; give a video file."
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    return f"{path}: expected a video that FFmpeg can read, found none ({reason}); copy or convert it again."
