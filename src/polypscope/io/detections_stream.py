"""Detections written to CSV while they are made: every frame is on disk before the next one is looked at."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from polypscope.records import Detection
from polypscope.records.errors import OutputError

__all__ = ["DetectionsStream"]


class DetectionsStream:
    """Context manager around a CSV of frame, x, y and score (and video, when there are several) that grows.

    The header is written at once, so that a method without any detection leaves a file that says so, and a run that is
    stopped leaves whole lines of all frames before.
    """

    def __init__(self, path: str | Path, *, videos: bool = False) -> None:
        self.path = Path(path)
        self._videos = videos

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise OutputError(
                f"{self.path}: expected a file to write, found: {error.strerror}; choose another."
            ) from None
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow([*(["video"] if self._videos else []), "frame", "x", "y", "score"])
        self._file.flush()
        return self

    def write(self, video: str, frame: int | str, detections: Iterable[Detection]) -> None:
        """Append the detections of one frame."""
        for found in detections:
            x, y = found.point_xy
            score = "" if found.score is None else f"{found.score:.4f}"
            self._writer.writerow([*([video] if self._videos else []), frame, f"{x:.1f}", f"{y:.1f}", score])
        self._file.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
