"""Folders of masks and of predicted maps, paired clip by clip and frame by frame, with everything odd said in words.

Truth may be laid out as SUN-SEG (`TestEasyDataset/Seen/GT/<clip>/*.png`), as one data set (`GT/<clip>/*.png`), as plain
clip folders, as one folder of stills (`masks/*.png`), or in our PolypSense3D layout (`<sequence>/masks/*.png`, whose
masks hold polyp ids). Predictions mirror it, with or without the level that the frames lie in. The published toolbox
stops, or scores NaN, at stray files, missing predictions and wrong paths; here each becomes a `Problem`.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.segmentation.clips import PairedClip
from polypscope.evaluation.segmentation.order import case_of, natural, sort_frames
from polypscope.evaluation.segmentation.spec import Spec
from polypscope.io.protocol_images import read_grey_as_opencv
from polypscope.records.errors import DamagedInput, InputError, MissingInput

__all__ = ["ATTRIBUTES", "FilePair", "Problem", "TruthClip", "find_truth", "methods_in", "pair", "read_attributes"]

ATTRIBUTES = ("SI", "IB", "HO", "GH", "FM", "SO", "LO", "OC", "OV", "SV")
"""SUN-SEG's visual attributes of a clip, in the paper's order."""

_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"})
_OUR_FILES = frozenset({"run.json", "attributes.csv"})
_TRUTH_NAMES = frozenset({"gt", "mask", "masks", "ground truth", "groundtruth", "ground_truth"})
_OTHER_NAMES = frozenset(
    {"frame", "frames", "image", "images", "original", "edge", "scribble", "polygon", "classification", "detection"}
)


@dataclass(frozen=True)
class Problem:
    """Something that was not as it should be: its kind (for counting), where, and one sentence."""

    kind: str
    where: str
    text: str


@dataclass(frozen=True)
class TruthClip:
    """Masks of one clip: frame name (without ending) -> file, in the protocol's order."""

    subset: str
    name: str
    files: dict[str, Path]
    folder: Path
    is_stills: bool = False
    attributes: tuple[str, ...] = ()
    holds_ids: bool = False

    @property
    def path(self) -> str:
        return "/".join(part for part in (self.subset, self.name) if part)


@dataclass(frozen=True)
class FilePair:
    """Truth and prediction of a frame as files. A prediction that is absent or broken is scored as an empty map."""

    name: str
    truth: Path
    prediction: Path | None
    holds_ids: bool = False

    def load(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[str, ...]]:
        truth = read_grey_as_opencv(self.truth)
        if self.holds_ids:
            truth = (truth > 0).astype(np.uint8) * np.uint8(255)
        if self.prediction is None:
            return truth, np.zeros_like(truth), ("missing prediction",)
        try:
            return truth, read_grey_as_opencv(self.prediction), ()
        except InputError as error:
            return truth, np.zeros_like(truth), (f"unreadable prediction: {error}",)


@dataclass
class Pairing:
    """The clips of one method, ready to score, and what was odd about them."""

    clips: list[PairedClip] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def find_truth(root: Path) -> tuple[list[TruthClip], list[Problem]]:
    """All clips of masks under `root`, in natural order."""
    root = Path(root)
    if not root.is_dir():
        raise MissingInput(f"truth {root}: expected a folder of masks, found nothing there; check the path.")
    problems: list[Problem] = []
    leaves: list[tuple[tuple[str, ...], Path, list[Path]]] = []
    for folder, files in _walk(root, problems):
        if files:
            leaves.append((folder.relative_to(root).parts, folder, files))
    marked = [leaf for leaf in leaves if _truth_level(leaf[0]) is not None]
    unmarked = [leaf for leaf in leaves if not any(part.lower() in _OTHER_NAMES for part in leaf[0])]
    clips = [_truth_clip(root, *leaf, problems) for leaf in marked or unmarked]
    if not clips:
        found = ", ".join(sorted(entry.name for entry in root.iterdir())[:6]) or "an empty folder"
        raise MissingInput(
            f"truth {root}: expected mask images (GT/<clip>/*.png, <clip>/*.png or masks/*.png), found {found}; "
            "give the folder that holds the masks."
        )
    return sorted(clips, key=lambda clip: (natural(clip.subset), natural(clip.name))), problems


def _walk(root: Path, problems: list[Problem]) -> Iterable[tuple[Path, list[Path]]]:
    """Each folder with its images; what is neither image nor folder becomes a problem once per kind and folder."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        images = [Path(folder, name) for name in names if _is_image(name)]
        strays = sorted(name for name in names if not _is_image(name) and name not in _OUR_FILES)
        if strays and (images or not folders or any(name.startswith(".") for name in strays)):
            shown = ", ".join(strays[:3]) + (f" and {len(strays) - 3} more" if len(strays) > 3 else "")
            problems.append(Problem("stray file", folder, f"{folder}: left aside what is no image: {shown}."))
        yield Path(folder), images


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in _SUFFIXES and not name.startswith(".")


def _truth_level(parts: Sequence[str]) -> int | None:
    return next((i for i, part in enumerate(parts) if part.lower() in _TRUTH_NAMES), None)


def _truth_clip(
    root: Path, parts: tuple[str, ...], folder: Path, files: list[Path], problems: list[Problem]
) -> TruthClip:
    level = _truth_level(parts)
    names = [part for i, part in enumerate(parts) if i != level]
    # Masks that lie directly under GT (or under the root itself) are one set of stills, named after its data set.
    is_stills = level == len(parts) - 1 or not parts
    if is_stills and (folder.parent / "sequence.json").is_file():  # PolypSense3D: one sequence, one clip
        name = folder.parent.name
        return TruthClip("/".join(names[:-1]), name, _by_stem(files, problems), folder, holds_ids=True)
    name = names[-1] if names else root.name or "all"
    subset = "/".join(names if is_stills else names[:-1])
    return TruthClip(subset, name, _by_stem(files, problems), folder, is_stills)


def _by_stem(files: list[Path], problems: list[Problem]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted(files):
        if file.stem in found:
            text = f"{file}: has the same frame name as {found[file.stem].name}, which is used."
            problems.append(Problem("double frame", str(file), text))
        else:
            found[file.stem] = file
    return {stem: found[stem] for stem in sort_frames(found)}


def methods_in(root: Path, truth: Sequence[TruthClip]) -> dict[str, Path]:
    """Method name -> folder: `root` itself if it mirrors the truth, else those of its subfolders that do."""
    root = Path(root)
    if not root.is_dir():
        raise MissingInput(f"predictions {root}: expected a folder of predicted maps, found nothing; check the path.")
    if any(_prediction_folder(root, clip, truth) for clip in truth):
        return {root.name or "method": root}
    inside = {
        folder.name: folder
        for folder in sorted(root.iterdir())
        if folder.is_dir() and any(_prediction_folder(folder, clip, truth) for clip in truth)
    }
    if not inside:
        found = ", ".join(sorted(entry.name for entry in root.iterdir())[:6]) or "an empty folder"
        raise MissingInput(
            f"predictions {root}: expected folders as in the truth (such as {truth[0].path}) with maps named alike, "
            f"found {found}; give the folder of one method or one that holds several."
        )
    return inside


def _prediction_folder(root: Path, clip: TruthClip, truth: Sequence[TruthClip]) -> Path | None:
    """Where the predictions for a clip lie under the folder of a method, if anywhere."""
    subset = root / clip.subset
    # A tool that mirrors the whole data set keeps the level in which the frames lie.
    levels = ("", "GT", "Frame", "images", "rgb", "masks")
    places = [subset / level / clip.name for level in levels] + [subset / clip.name / level for level in levels]
    if clip.is_stills:
        places += [subset / level for level in levels]
    if sum(other.name == clip.name for other in truth) == 1:
        places += [root / level / clip.name for level in levels] + [root / clip.name / level for level in levels]
    if len(truth) == 1:
        places += [root / level for level in levels]
    return next((place for place in places if place.is_dir() and _has_images(place)), None)


def _has_images(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(_is_image(entry.name) for entry in entries)


def pair(root: Path, truth: Sequence[TruthClip], spec: Spec) -> Pairing:
    """Pair the truth with the predictions of one method under `root`."""
    result = Pairing()
    folders = {clip.path: _prediction_folder(root, clip, truth) for clip in truth}
    present = {clip.subset for clip in truth if folders[clip.path]}
    for subset in dict.fromkeys(clip.subset for clip in truth):
        if subset not in present:
            text = f"{root}: has no predictions for any clip of {subset or 'the truth'}; that part is not scored."
            result.problems.append(Problem("missing subset", subset, text))
    for clip in truth:
        if clip.subset in present:
            folder = folders[clip.path]
            files = _predictions(folder, result.problems) if folder else {}
            result.clips.append(_pair_clip(clip, files, folder, root, spec, result.problems))
    _extra_clips(root, folders, truth, result.problems)
    kept = []
    for paired in result.clips:
        try:
            paired.evaluated(spec)
        except InputError as error:
            result.problems.append(Problem("short clip", paired.name, str(error)))
        else:
            kept.append(paired)
    if not kept:
        raise InputError(f"{root}: expected clips to score, found only clips that are too short for {spec.name}.")
    result.clips = kept
    return result


def _predictions(folder: Path, problems: list[Problem]) -> dict[str, Path]:
    images, strays = [], []
    for entry in folder.iterdir():
        if entry.is_file() and entry.name not in _OUR_FILES:
            (images if _is_image(entry.name) else strays).append(entry)
    if strays:
        names = ", ".join(sorted(stray.name for stray in strays)[:3])
        problems.append(Problem("stray file", str(folder), f"{folder}: left aside what is no image: {names}."))
    return _by_stem(images, problems)


def _pair_clip(
    clip: TruthClip, files: dict[str, Path], folder: Path | None, root: Path, spec: Spec, problems: list[Problem]
) -> PairedClip:
    stems = list(clip.files)
    scored = stems[spec.drop_first : len(stems) - spec.drop_last]
    missing = [stem for stem in scored if stem not in files]
    extra = sorted(set(files) - set(stems), key=natural)
    if folder is None:
        text = f"{root}: has no folder for clip {clip.path}; its {len(scored)} frames are scored as empty maps."
        problems.append(Problem("missing clip", clip.path, text))
    elif missing:
        text = f"{folder}: lacks {_some(missing)} of {len(scored)} frames; they are scored as empty maps."
        problems.append(Problem("missing prediction", clip.path, text))
    if extra:
        text = f"{folder}: has {_some(extra)} that the truth has not; left aside."
        problems.append(Problem("extra prediction", clip.path, text))
    pairs = [FilePair(stem, file, files.get(stem), clip.holds_ids) for stem, file in clip.files.items()]
    single = clip.is_stills or spec.name == "stills"
    return PairedClip(clip.name, pairs, clip.subset, case_of(clip.name), clip.attributes, is_video=not single)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _extra_clips(
    root: Path, folders: dict[str, Path | None], truth: Sequence[TruthClip], problems: list[Problem]
) -> None:
    used = {folder for folder in folders.values() if folder}
    parents = {folder.parent for folder in used} - {root.parent}
    known = {clip.name for clip in truth}
    extra = sorted(
        entry.name
        for parent in parents
        for entry in parent.iterdir()
        if entry.is_dir() and entry.name not in known and not any(one.is_relative_to(entry) for one in used)
    )
    if extra:
        problems.append(Problem("extra clip", str(root), f"{root}: has clips that the truth has not: {_some(extra)}."))


def count_kinds(problems: Iterable[Problem]) -> dict[str, int]:
    """How often each kind of problem occurred."""
    return dict(Counter(problem.kind for problem in problems))


def read_attributes(path: Path) -> dict[str, tuple[str, ...]]:
    """Attributes by clip, from CSV (`clip` and one column of 0/1 per attribute, or `clip,attributes`) or JSON."""
    path = Path(path)
    if not path.is_file():
        raise MissingInput(f"attributes {path}: expected a CSV or JSON file, found nothing there; check the path.")
    try:
        if path.suffix.lower() == ".json":
            return {str(clip): tuple(names) for clip, names in json.loads(path.read_text("utf-8")).items()}
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream))
    except (ValueError, csv.Error, AttributeError, TypeError) as error:
        raise DamagedInput(f"attributes {path}: expected clips and their attributes, found {error}.") from None
    if rows and "clip" not in rows[0]:
        raise DamagedInput(f"attributes {path}: expected a column 'clip', found {', '.join(map(str, rows[0]))}.")
    found = {}
    for row in rows:
        listed = (row.get("attributes") or "").replace(";", " ").split()
        flags = [name for name in ATTRIBUTES if (row.get(name) or "").strip() in ("1", "true", "True", "yes", "x")]
        found[row["clip"]] = tuple(name for name in ATTRIBUTES if name in listed or name in flags)
    return found
