"""Results on disk while a run goes on: a journal of findings, checkpoints, pictures of best frames, overlay parts.

    OUT/.partial/settings.json      what the run depends on: a resumed run must be the same run
    OUT/.partial/journal.jsonl      one line for each frame, written as soon as it is known
    OUT/.partial/checkpoint.npz     memory of segmenter and picture reader, with the journal's length at that moment
    OUT/.partial/frames/            pictures of the best frames so far
    OUT/.partial/overlay/           finished parts of the overlay video, one from each checkpoint to the next

Killed at any moment, a run goes on from its last checkpoint: the journal is cut back to it and replayed, the eye gets
its memory back, and the same frames lead to the same results. Only a complete checkpoint has the final name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polypscope.io.paths import atomic_path, write_text
from polypscope.pipeline.findings import Findings
from polypscope.records.errors import OutputError, UsageError

__all__ = ["Checkpoint", "Partial"]


class Checkpoint:
    """Where a run stood: frames in the journal, its bytes, the last frame's index, finished overlay parts, memory."""

    def __init__(self, frames: int, offset: int, next_index: int, parts: int, memory: dict[str, NDArray[Any]]) -> None:
        self.frames = frames
        self.offset = offset
        self.next_index = next_index
        self.parts = parts
        self.memory = memory


class Partial:
    """The folder of a run that is not finished. Use as a context manager: it closes the journal."""

    def __init__(self, out: Path, settings: dict[str, Any], *, resume: bool) -> None:
        self.folder = out / ".partial"
        self.frames = self.folder / "frames"
        self.overlay = self.folder / "overlay"
        self.checkpoint: Checkpoint | None = None
        self._settings = json.loads(json.dumps(settings, sort_keys=True))
        self._count = 0
        if resume and (self.folder / "settings.json").is_file():
            self._check_same()
            self.checkpoint = self._read_checkpoint()
        if self.checkpoint is None:
            self._begin()
        self._journal = self._open()

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._journal.close()

    def _begin(self) -> None:
        try:
            if self.folder.exists():
                shutil.rmtree(self.folder)
            self.frames.mkdir(parents=True)
            self.overlay.mkdir()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OutputError(
                f"{self.folder.parent}: expected a folder to write in, found: {reason}; choose another with --out."
            ) from None
        write_text(self.folder / "settings.json", json.dumps(self._settings, indent=2, sort_keys=True) + "\n")

    def _check_same(self) -> None:
        try:
            before = json.loads((self.folder / "settings.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        different = sorted(k for k in {*before, *self._settings} if before.get(k) != self._settings.get(k))
        if different:
            key = different[0]
            raise UsageError(
                f"--resume: expected the settings of the interrupted run, found another {', '.join(different)} "
                f"(before: {before.get(key)!r}, now: {self._settings.get(key)!r}); give the same ones, "
                "or --overwrite to start anew."
            )

    def _read_checkpoint(self) -> Checkpoint | None:
        path = self.folder / "checkpoint.npz"
        try:
            with np.load(path, allow_pickle=False) as data:
                arrays = {key: data[key] for key in data.files}
            frames, offset, next_index, parts = (int(v) for v in arrays.pop("position"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None  # a damaged checkpoint costs time, not correctness: the run starts anew
        if not (self.folder / "journal.jsonl").is_file() or (self.folder / "journal.jsonl").stat().st_size < offset:
            return None
        return Checkpoint(frames, offset, next_index, parts, arrays)

    def _open(self):  # type: ignore[no-untyped-def]
        path = self.folder / "journal.jsonl"
        if self.checkpoint is None:
            return path.open("wb", buffering=0)
        with path.open("r+b") as stream:
            stream.truncate(self.checkpoint.offset)
        for part in self.overlay.iterdir():
            if not part.stem.isdigit() or int(part.stem) >= self.checkpoint.parts:
                part.unlink()
        self._count = self.checkpoint.frames
        return path.open("ab", buffering=0)

    @property
    def count(self) -> int:
        """Frames in the journal."""
        return self._count

    def append(self, findings: Findings) -> None:
        """Write one frame's findings."""
        line = (findings.to_line() + "\n").encode("ascii")
        try:
            written = self._journal.write(line)
            while written < len(line):  # a nearly full disk takes a part and then says so
                written += self._journal.write(line[written:])
        except OSError as error:
            raise _full(self.folder, error) from error
        self._count += 1

    def replay(self, shape: tuple[int, int]) -> Iterator[Findings]:
        """Findings of the journal in order; a torn last line is left out."""
        with (self.folder / "journal.jsonl").open("r", encoding="ascii") as stream:
            for line in stream:
                if not line.endswith("\n"):
                    return
                yield Findings.from_line(line, shape)

    def keep_frame(self, index: int, jpeg: bytes) -> None:
        """Keep the picture of a best frame."""
        path = self.frames / f"{index:08d}.jpg"
        with atomic_path(path) as temporary:
            temporary.write_bytes(jpeg)

    def frame(self, index: int) -> bytes | None:
        """The picture of a best frame, None if it was never kept."""
        try:
            return (self.frames / f"{index:08d}.jpg").read_bytes()
        except OSError:
            return None

    def save(self, next_index: int, parts: int, memory: dict[str, NDArray[Any]], best: set[int]) -> None:
        """Write a checkpoint, then delete pictures that no longer are among the best."""
        try:
            os.fsync(self._journal.fileno())
            offset = os.fstat(self._journal.fileno()).st_size
        except OSError as error:
            raise _full(self.folder, error) from error
        position = np.array([self._count, offset, next_index, parts], np.int64)
        with atomic_path(self.folder / "checkpoint.npz") as temporary, temporary.open("wb") as stream:
            np.savez(stream, position=position, **memory)
        # Only now: until the checkpoint is written, a resumed run may still need them.
        for path in self.frames.glob("*.jpg"):
            if path.stem.isdigit() and int(path.stem) not in best:
                path.unlink(missing_ok=True)


def _full(folder: Path, error: OSError) -> OutputError:
    reason = (error.strerror or str(error)).lower()
    return OutputError(
        f"{folder}: expected to write results, found: {reason}; make room and run again with --resume, "
        "results so far are kept."
    )
