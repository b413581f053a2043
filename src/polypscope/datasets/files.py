"""Which files make up a data set, before anything is decoded: the common ground of records, check and conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from polypscope.io.images import IMAGE_SUFFIXES
from polypscope.io.paths import list_files
from polypscope.records.errors import DamagedInput, MissingInput

__all__ = ["ClipFiles", "FrameFiles", "existing", "pair_by_stem"]


@dataclass(frozen=True)
class FrameFiles:
    """One frame. mask is None when there is none; `negative` says that this means "no polyp" and not "unknown".

    depth: a 16-bit depth map, where there is one. pts_s: where the data set states it.
    """

    name: str
    image: Path | None
    mask: Path | None = None
    depth: Path | None = None
    negative: bool = False
    pts_s: float | None = None


@dataclass(frozen=True)
class ClipFiles:
    """The files of one clip or one set of stills; `case` is what must not be divided between training and testing.

    orphans: masks without an image. video: a video file that holds the frames, instead of image files.
    unlabelled: no masks are meant to be there, so none is missing.
    """

    case: str
    clip: str
    frames: tuple[FrameFiles, ...]
    is_video: bool
    orphans: tuple[Path, ...] = ()
    video: Path | None = None
    split: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    unlabelled: bool = False
    folder: Path | None = None


def existing(root: Path, names: Sequence[str]) -> Path | None:
    """The first of several possible folders in `root` that is there."""
    return next((root / name for name in names if (root / name).is_dir()), None)


def pair_by_stem(
    images: Path, masks: Path | None, *, mask_stem: Callable[[str], str] = lambda stem: stem, negative: bool = False
) -> tuple[tuple[FrameFiles, ...], tuple[Path, ...]]:
    """Frames of a folder of images in natural order, each with the mask of the same stem, and the masks left over.

    Parameters
    ----------
    images, masks
        Folders; masks None for frames without any.
    mask_stem
        Turns the stem of a mask file into that of its image, where they differ.
    negative
        Frames without mask have no polyp.
    """
    by_stem: dict[str, Path] = {}
    for path in [] if masks is None else list_files(masks, IMAGE_SUFFIXES):
        stem = mask_stem(path.stem)
        if stem in by_stem:
            raise DamagedInput(
                f"{masks}: expected one mask for {stem!r}, found {by_stem[stem].name} and {path.name}; remove one."
            )
        by_stem[stem] = path
    frames = []
    for image in list_files(images, IMAGE_SUFFIXES):
        mask = by_stem.pop(image.stem, None)
        frames.append(FrameFiles(image.stem, image, mask, negative=negative and mask is None))
    if not frames:
        raise MissingInput(f"{images}: expected images, found none; check the path.")
    return tuple(frames), tuple(by_stem.values())
