"""A folder of images as a source of frames, in natural order of their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polypscope.io.images import IMAGE_SUFFIXES, image_size, read_rgb
from polypscope.io.paths import list_files
from polypscope.io.sources import FrameSource, SourceInfo
from polypscope.records import Frame
from polypscope.records.errors import DamagedInput, InputError, UnsafeInput, UsageError

__all__ = ["ImageFolderSource"]


class ImageFolderSource(FrameSource):
    """Images of a folder; index = place in natural order, time stamp = index / fps.

    Parameters
    ----------
    folder
        Holds PNG, JPEG, TIFF or BMP files; other and hidden files are left aside.
    fps
        Frames per second that the images are taken to have.
    """

    def __init__(self, folder: str | Path, *, fps: float = 25.0) -> None:
        if not 0 < fps < float("inf"):
            raise UsageError(
                f"fps: expected a rate above 0 for the images of {folder}, found {fps}; give frames per second."
            )
        self.folder = Path(folder)
        self.paths = tuple(list_files(self.folder, IMAGE_SUFFIXES))
        if not self.paths:
            raise InputError(
                f"{folder}: expected a folder with PNG, JPEG, TIFF or BMP images, found none; check the path."
            )
        width, height = _first_size(self.paths)
        count = len(self.paths)
        super().__init__(SourceInfo(self.folder.name, "image folder", width, height, fps, count, count / fps))
        self.note(f"images have no time stamps: {fps:g} per second are assumed")

    def _frames(self) -> Iterator[Frame]:
        shape: tuple[int, int] | None = None
        for index, path in enumerate(self.paths):
            try:
                rgb = read_rgb(path)
            except UnsafeInput:
                raise
            except InputError as error:
                self._damaged.append(index)
                self.note(f"frame {index}: {error}")
                continue
            frame = Frame(index, index / self.info.fps if self.info.fps else 0.0, rgb)
            if shape is not None and frame.shape != shape:
                old, new = f"{shape[1]}×{shape[0]}", f"{frame.shape[1]}×{frame.shape[0]}"
                self.note(f"the picture size changes at frame {index} ({path.name}) from {old} to {new}")
            shape = frame.shape
            yield frame
        if shape is None:
            raise DamagedInput(f"{self.folder}: expected images, found none that can be decoded; copy them again.")


def _first_size(paths: tuple[Path, ...]) -> tuple[int, int]:
    for path in paths:
        try:
            return image_size(path)
        except InputError:
            continue
    return 0, 0
