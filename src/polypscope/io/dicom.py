"""DICOM videos (endoscopic video with encapsulated MPEG-2, H.264 or HEVC) as a source of frames; needs pydicom.

Only the pictures and their rate are taken out. Names, numbers, dates and every other tag stay where they are: nothing
of them reaches the results. Text that is burned into the pictures is another matter, and is pointed out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polypscope.io.paths import require_file
from polypscope.io.sources import FrameSource
from polypscope.io.video import VideoSource
from polypscope.records import Frame
from polypscope.records.errors import DamagedInput, InputError, MissingExtra, PolypscopeError

__all__ = ["DicomSource"]

# Transfer syntaxes whose pixel data is one video stream, and the file ending that tells FFmpeg nothing wrong.
_VIDEO_SYNTAXES = {
    "1.2.840.10008.1.2.4.100": ".mpg",
    "1.2.840.10008.1.2.4.101": ".mpg",
    "1.2.840.10008.1.2.4.102": ".mp4",
    "1.2.840.10008.1.2.4.103": ".mp4",
    "1.2.840.10008.1.2.4.104": ".mp4",
    "1.2.840.10008.1.2.4.105": ".mp4",
    "1.2.840.10008.1.2.4.106": ".mp4",
    "1.2.840.10008.1.2.4.107": ".mp4",
    "1.2.840.10008.1.2.4.108": ".mp4",
}


class DicomSource(FrameSource):
    """The video inside a DICOM file."""

    def __init__(self, path: str | Path) -> None:
        self.path = require_file(path, "DICOM video")
        dataset = _read(self.path)
        syntax = str(getattr(getattr(dataset, "file_meta", None), "TransferSyntaxUID", ""))
        if syntax not in _VIDEO_SYNTAXES:
            raise InputError(
                f"{self.path}: expected a DICOM video (MPEG-2, H.264 or HEVC), found transfer syntax "
                f"{syntax or 'unknown'}; convert it to a video file first."
            )
        # The stream is copied out once: FFmpeg needs a file that it can go back in, not fragments.
        with tempfile.NamedTemporaryFile(suffix=_VIDEO_SYNTAXES[syntax], delete=False) as stream:
            self._temporary: Path | None = Path(stream.name)
            for fragment in _fragments(self.path, dataset):
                stream.write(fragment)
        try:
            self._video = VideoSource(self._temporary)
        except PolypscopeError as error:
            self.close()
            reason = str(error).replace(stream.name, "its stream")
            raise DamagedInput(f"{self.path}: expected a DICOM video, found: {reason}") from None
        from dataclasses import replace

        super().__init__(replace(self._video.info, name=self.path.name, kind="dicom"))
        burned = str(getattr(dataset, "BurnedInAnnotation", "")).upper()
        if burned != "NO":
            self.note(
                "the file does not rule out names or numbers burned into its pictures; look before you pass on pictures"
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks of the DICOM file and of the video inside."""
        return (*super().notes, *self._video.notes)

    @property
    def damaged(self) -> tuple[int, ...]:
        """Indices of frames that could not be decoded and were skipped."""
        return self._video.damaged

    def _frames(self) -> Iterator[Frame]:
        return iter(self._video)

    def close(self) -> None:
        """Let go of the copy of the stream."""
        if hasattr(self, "_video"):
            self._video.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None


def _read(path: Path) -> Any:
    try:
        import pydicom
        from pydicom.errors import InvalidDicomError
    except ImportError:
        raise MissingExtra.of("pydicom", extra="dicom", needed_for="reading DICOM") from None
    try:
        return pydicom.dcmread(path)
    except (InvalidDicomError, OSError, EOFError, ValueError, KeyError, AttributeError) as error:
        raise DamagedInput(f"{path}: expected a DICOM file, found: {str(error)[:120]}; export it anew.") from None


def _fragments(path: Path, dataset: Any) -> Iterator[bytes]:
    from pydicom.encaps import generate_fragments, parse_basic_offsets

    pixels = getattr(dataset, "PixelData", None)
    if not pixels:
        raise DamagedInput(f"{path}: expected a DICOM video, found no pixel data; export it anew.")
    from io import BytesIO

    buffer = BytesIO(pixels)
    try:
        parse_basic_offsets(buffer)
        yield from generate_fragments(buffer)
    except (ValueError, EOFError, OSError) as error:
        raise DamagedInput(
            f"{path}: expected a whole DICOM video, found: {str(error)[:120]}; export it anew."
        ) from None
