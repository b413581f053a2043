"""Where training pictures come from: folders of pairs, or any data set that `polypscope datasets list` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.datasets.dataset import Dataset
from polypscope.datasets.files import ClipFiles
from polypscope.datasets.registry import get_dataset
from polypscope.io.paths import list_files, list_folders, read_text, require_folder
from polypscope.records import Sample
from polypscope.records.errors import DamagedInput, MissingInput, PolypscopeError, UsageError
from polypscope.training.config import Source

Image = NDArray[np.uint8]
SUN_SEG = ("Frame", "GT")  # folders of a part of SUN-SEG, each with one folder per clip


@dataclass(frozen=True)
class Picture:
    """One labelled picture, decoded when asked: `rgb()` (H, W, 3) and `mask()` (H, W) of 0 and 255, both uint8.

    key: which picture this is, for the cache of decoded ones.
    """

    name: str
    key: str
    rgb: Callable[[], Image]
    mask: Callable[[], Image]


def list_pictures(source: Source, say: Callable[[str], None] = lambda text: None) -> list[Picture]:
    """All labelled pictures of a source, frames without polyp among them, in an order that never changes."""
    if source.adapter is None:
        return list_pairs(source.root, read_stems(source.exclude), read_stems(source.only))
    pictures = [picture for clip in _adapted(source, say) for picture in clip.pictures if picture is not None]
    if not pictures:
        raise MissingInput(
            f"Training data, {source.adapter} in {source.root}: expected labelled pictures, found none of the wanted "
            "names; check `exclude` and `only`."
        )
    return pictures


def list_clips(source: Source, say: Callable[[str], None] = lambda text: None) -> list[list[Picture]]:
    """Runs of consecutive labelled frames of a source; stills of an adapter are no clips and are left out."""
    if source.adapter is not None:
        return [run for clip in _adapted(source, say) if clip.is_video for run in _runs(clip.pictures)]
    if source.layout == "pairs":
        return [_clip(source.root / "images", source.root / "masks")]
    frames, truth = (source.root / name for name in SUN_SEG)
    return [_clip(folder, truth / folder.name) for folder in list_folders(frames)]


def list_pairs(root: Path, exclude: Sequence[str] = (), only: Sequence[str] = ()) -> list[Picture]:
    """Pictures of `root/images` whose masks of equal stem are in `root/masks`, sorted by name.

    Parameters
    ----------
    exclude, only : stems to leave out, or the only stems to take.
    """
    masks = {path.stem: path for path in (root / "masks").glob("*") if not path.name.startswith(".")}
    images = sorted(path for path in (root / "images").glob("*") if not path.name.startswith("."))
    if not images:
        raise MissingInput(f"Training data: expected pictures in {root / 'images'}, found none; check the path.")
    skip, keep = set(exclude), set(only)
    pictures = []
    for image in images:
        if image.stem in skip or (keep and image.stem not in keep):
            continue
        if image.stem not in masks:
            raise MissingInput(f"Training data: expected a mask for {image} in {root / 'masks'}, found none.")
        pictures.append(_pair(image, masks[image.stem]))
    return pictures


def read_stems(path: Path | None) -> list[str]:
    """Names without ending, one per line of a text file; none without a file."""
    if path is None:
        return []
    if not path.is_file():
        raise MissingInput(f"Training data: expected a text file with one name per line, found nothing at {path}.")
    return [Path(line.strip()).stem for line in read_text(path).split("\n") if line.strip()]


def read_rgb(path: Path) -> Image:
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise DamagedInput(f"Training data: expected a readable picture, found {path}; remove or replace it.")
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)


def read_mask(path: Path) -> Image:
    """Mask as 0 or 255, grey values above 128 being polyp."""
    picture = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    if picture is None:
        raise DamagedInput(f"Training data: expected a readable mask, found {path}; remove or replace it.")
    return np.where(picture > 128, 255, 0).astype(np.uint8)


def _pair(image: Path, mask: Path) -> Picture:
    return Picture(image.stem, f"{image}|{mask}", partial(read_rgb, image), partial(read_mask, mask))


def _clip(images: Path, masks: Path) -> list[Picture]:
    by_stem = {path.stem: path for path in list_files(masks)}
    frames = list_files(images)
    for path in frames:
        if path.stem not in by_stem:
            raise MissingInput(f"Training data: expected a mask for {path} in {masks}, found none.")
    return [_pair(path, by_stem[path.stem]) for path in frames]


@dataclass(frozen=True)
class _AdaptedClip:
    """The frames of an adapter's clip in order; None where a frame has no label or was not wanted."""

    pictures: tuple[Picture | None, ...]
    is_video: bool


def _adapted(source: Source, say: Callable[[str], None]) -> list[_AdaptedClip]:
    assert source.adapter is not None
    try:
        dataset = get_dataset(source.adapter)
    except UsageError as error:
        raise UsageError(f"Training data, {error}") from None
    name = dataset.card.name
    files = dataset.files(require_folder(source.root, f"folder of {dataset.card.title}"))
    chosen = _chosen(_chosen(files, "split", source), "case", source)
    labelled = [[frame.mask is not None or frame.negative for frame in clip.frames] for clip in chosen]
    unlabelled = sum(len(flags) - sum(flags) for flags in labelled)
    if not any(any(flags) for flags in labelled):
        raise MissingInput(
            f"Training data, {name} in {source.root}: expected frames with masks, found {unlabelled} frames without "
            "any; a segmenter learns from masks only."
        )
    if unlabelled:
        say(f"{name} in {source.root}: {unlabelled} frames without a label are left out")
    skip, keep = set(read_stems(source.exclude)), set(read_stems(source.only))
    clips = []
    for clip, flags in zip(chosen, labelled, strict=True):
        samples = dataset.clip_record(clip).samples
        taken = [
            flag and frame.name not in skip and (not keep or frame.name in keep)
            for frame, flag in zip(clip.frames, flags, strict=True)
        ]
        pictures = [
            _sample(dataset, source.root, clip, sample) if take else None
            for sample, take in zip(samples, taken, strict=True)
        ]
        clips.append(_AdaptedClip(tuple(pictures), clip.is_video))
    return clips


def _sample(dataset: Dataset, root: Path, clip: ClipFiles, sample: Sample) -> Picture:
    key = f"{dataset.card.name}|{root}|{clip.split}|{clip.case}|{clip.clip}|{sample.name}"
    return Picture(sample.name, key, partial(_sample_rgb, sample), partial(_sample_mask, sample, key))


def _sample_rgb(sample: Sample) -> Image:
    return sample.frame().rgb


def _sample_mask(sample: Sample, key: str) -> Image:
    truth = sample.truth()
    if truth is None or truth.instances is None:
        raise PolypscopeError(f"Training data, {key}: expected a mask, found none; run `polypscope datasets check`.")
    return np.where(truth.instances > 0, 255, 0).astype(np.uint8)


def _runs(pictures: Sequence[Picture | None]) -> Iterator[list[Picture]]:
    run: list[Picture] = []
    for picture in (*pictures, None):
        if picture is not None:
            run.append(picture)
        elif run:
            yield run
            run = []


def _chosen(clips: list[ClipFiles], part: Literal["split", "case"], source: Source) -> list[ClipFiles]:
    """The clips whose split or case has a wanted name; every wanted name must be there, lest a slip goes unseen."""
    wanted = source.splits if part == "split" else source.cases
    names = list(dict.fromkeys(getattr(clip, part) for clip in clips))
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            have = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            raise MissingInput(
                f"Training data, {source.adapter} in {source.root}: expected a {part} {pattern!r}, "
                f"found {have or 'none with a name'}; correct `{part}s`."
            )
    return [c for c in clips if not wanted or any(fnmatchcase(getattr(c, part), pattern) for pattern in wanted)]
