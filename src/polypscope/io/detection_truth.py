"""The truth of a detection study from files: mask folders or a COCO file, and a table of attributes.

A folder of masks is a set of stills; a folder of folders is a set of videos, one folder each. Masks may lie in a folder
`masks` or `GT` of their own beside the frames. The index of a frame is the number at the end of its file name when
every name of the folder has one, else its place in natural order. Seconds come from `timestamps.csv` beside a video's
masks (columns frame, pts_s), from `pts_s` in a COCO file, or from a frame rate that the user states; they are never
guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.morphology import normalise_paris
from polypscope.evaluation.detection.tables import TruthTable, truth_table
from polypscope.io.coco import CocoFile, CocoId, CocoImage, read_coco
from polypscope.io.images import IMAGE_SUFFIXES
from polypscope.io.masks import MaskThreshold, connected_instances, read_instances, read_mask
from polypscope.io.paths import list_files, list_folders, natural_key, require_folder
from polypscope.io.tables import read_table
from polypscope.records import BinaryMask, GroundTruth, TruePolyp
from polypscope.records.errors import DamagedInput, InputError, RecordError

__all__ = ["StudyTruth", "frame_index", "frames_of_folder", "in_order", "read_truth", "with_attributes"]

Kind = Literal["auto", "videos", "stills"]
STILLS = "stills"
_MASK_FOLDERS = ("masks", "mask", "gt", "groundtruth", "ground truth", "ground_truth")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class StudyTruth:
    """The table of the truth, what had to be assumed, and the COCO file it came from, with the row of each image id."""

    table: TruthTable
    assumptions: tuple[str, ...] = ()
    coco: CocoFile | None = None
    image_rows: Mapping[CocoId, int] = field(default_factory=dict)


def read_truth(
    path: str | Path,
    *,
    kind: Kind = "auto",
    instances: Literal["components", "ids"] = "components",
    rate_hz: float | None = None,
    threads: int = 2,
) -> StudyTruth:
    """Read mask folders or a COCO file.

    Parameters
    ----------
    path
        Folder of masks (stills), folder of such folders (videos), or a COCO JSON file.
    kind
        Whether frames are neighbours in time; by default folders of folders are videos, all else is stills.
    instances
        "components": masks are black and white (≥ 128), and each 8-connected part is a polyp.
        "ids": grey values are polyp ids that follow a polyp through its video.
    rate_hz
        Frames per second, for masks without time stamps.
    threads
        Files read at a time.
    """
    path = Path(path)
    if path.suffix.lower() == ".json":
        return _from_coco(path, kind, rate_hz)
    require_folder(path, "folder of masks or COCO file")
    path = masks_in(path)
    inner = {folder.name: masks_in(folder) for folder in list_folders(path)}
    folders = {name: folder for name, folder in inner.items() if list_files(folder, IMAGE_SUFFIXES)}
    direct = list_files(path, IMAGE_SUFFIXES)
    if bool(folders) == bool(direct):
        raise InputError(
            f"{path}: expected mask images (stills) or one folder of masks per video, found "
            f"{'both' if direct else 'neither'}; {'move the loose images' if direct else 'check the path'}."
        )
    is_video = kind == "videos" or (kind == "auto" and bool(folders))
    sources = folders or {path.name if is_video else STILLS: path}
    timed = is_video and (rate_hz is not None or all((f / "timestamps.csv").is_file() for f in sources.values()))
    assumptions = []
    names: list[str] = []

    def records(folder: Path, offset: int) -> Iterator[GroundTruth]:
        frames = frames_of_folder(folder)
        names.extend(file.stem for _, file in frames)
        times = _times(folder, [index for index, _ in frames], rate_hz) if timed else None

        def read(item: tuple[int, tuple[int, Path]]) -> GroundTruth:
            place, (index, file) = item
            if instances == "ids":
                labels = read_instances(file)
            else:
                labels = _components(read_mask(file, MaskThreshold.AT_LEAST_128))
            pts_s = float(offset + index) if times is None else times[place]
            found = np.unique(labels[labels > 0]) if instances == "ids" else range(1, int(labels.max()) + 1)
            polyps = tuple(TruePolyp(int(i)) for i in found)
            return GroundTruth(offset + index, pts_s, (labels.shape[0], labels.shape[1]), polyps, labels)

        yield from in_order(read, list(enumerate(frames)), threads)

    if is_video:
        videos = {name: records(folder, 0) for name, folder in sources.items()}
    else:  # stills in several folders are one set; their numbers must not collide
        videos = {STILLS: _chain_stills(records, list(sources.values()))}
    table = truth_table(
        videos, kind="videos" if is_video else "stills", identities=instances == "ids" and is_video, timed=timed
    )
    if is_video and not timed:
        assumptions.append("no time stamps and no --rate-hz: results are in frames only")
    return StudyTruth(replace(table, frame_names=tuple(names)), tuple(assumptions))


def _components(mask: BinaryMask) -> NDArray[np.uint16]:
    """8-connected components as a label map; only the rows with a polyp are searched, since most have none."""
    labels = np.zeros(mask.shape, dtype=np.uint16)
    rows = np.flatnonzero(mask.values.any(axis=1))
    if rows.size:
        used = slice(int(rows[0]), int(rows[-1]) + 1)
        labels[used] = connected_instances(BinaryMask(mask.values[used]))
    return labels


def masks_in(folder: Path) -> Path:
    """The folder of masks inside a video's or a data set's folder (masks, GT, …), or the folder itself."""
    named = {inner.name.lower(): inner for inner in list_folders(folder)}
    return next((named[name] for name in _MASK_FOLDERS if name in named), folder)


def _chain_stills(
    records: Callable[[Path, int], Iterator[GroundTruth]], folders: Sequence[Path]
) -> Iterator[GroundTruth]:
    offset = 0
    for folder in folders:
        last = -1
        for record in records(folder, offset):
            last = record.index
            yield record
        offset = last + 1


def in_order(function: Callable[[T], R], items: Sequence[T], threads: int, chunk: int = 64) -> Iterator[R]:
    """Apply `function` with a few threads, keep the order, and hold at most `chunk` results in memory."""
    if threads <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(items), chunk):
            yield from pool.map(function, items[start : start + chunk])


def frames_of_folder(folder: Path) -> list[tuple[int, Path]]:
    """(index, file) of the images of a folder, in order of index."""
    files = list_files(folder, IMAGE_SUFFIXES)
    numbers = [frame_index(file.stem) for file in files]
    if all(n is not None for n in numbers) and len(set(numbers)) == len(numbers):
        return sorted((n, file) for n, file in zip(numbers, files, strict=True) if n is not None)
    return list(enumerate(files))


def frame_index(stem: str) -> int | None:
    """The number at the end of a file's stem.

    >>> frame_index("video03_000127"), frame_index("12"), frame_index("polyp")
    (127, 12, None)
    """
    match = re.search(r"(\d{1,15})$", stem)
    return int(match[1]) if match else None


def _times(folder: Path, indices: Sequence[int], rate_hz: float | None) -> list[float]:
    if rate_hz is not None:
        return [index / rate_hz for index in indices]
    table = read_table(folder / "timestamps.csv", columns=("frame", "pts_s"))
    times = {int(frame): float(pts_s) for frame, pts_s in table.select("frame", "pts_s").iter_rows()}
    missing = [index for index in indices if index not in times]
    if missing:
        raise DamagedInput(
            f"{folder / 'timestamps.csv'}: expected a time stamp for every frame, found none for frame {missing[0]}"
            f" and {len(missing) - 1} others; add them or give --rate-hz."
        )
    return [times[index] for index in indices]


def _from_coco(path: Path, kind: Kind, rate_hz: float | None) -> StudyTruth:
    coco = read_coco(path)
    groups: dict[str, list[CocoImage]] = {}
    for image in coco.images:
        groups.setdefault(_video_of(image), []).append(image)
    is_video = kind == "videos" or (kind == "auto" and set(groups) != {""})
    if not is_video:
        groups = {STILLS: list(coco.images)}
    stamped = all("pts_s" in image.extra for image in coco.images)
    timed = is_video and (stamped or rate_hz is not None)
    by_image = coco.by_image()
    names: list[str] = []
    ids: list[CocoId] = []

    def records(images: list[CocoImage]) -> Iterator[GroundTruth]:
        numbered = _numbered(images)
        for index, image in numbered:
            names.append(Path(image.file_name).stem)
            ids.append(image.id)
            shape = (image.height, image.width)
            pts_s = float(image.extra["pts_s"]) if stamped else index / rate_hz if rate_hz else float(index)
            labels = np.zeros(shape, dtype=np.uint16)
            polyps, painted = [], False
            for number, annotation in enumerate(by_image[image.id], start=1):
                mask = annotation.mask(image)
                if mask is not None:
                    labels[mask.values] = number
                    painted = True
                elif annotation.box is None:
                    raise DamagedInput(
                        f"{path}: annotation {annotation.id!r} has neither a mask nor a box; remove it or add one."
                    )
                polyps.append(TruePolyp(number, box=annotation.box))
            if polyps and painted and any(annotation.segmentation is None for annotation in by_image[image.id]):
                raise DamagedInput(
                    f"{path}: image {image.file_name!r} mixes polyps with masks and polyps with boxes only; "
                    "give all of an image the same."
                )
            yield GroundTruth(index, pts_s, shape, tuple(polyps), labels if painted else None)

    table = truth_table(
        {name or STILLS: records(images) for name, images in groups.items()},
        kind="videos" if is_video else "stills",
        identities=False,
        timed=timed,
    )
    assumptions = ["each image's folder is its video"] if is_video and set(groups) != {""} else []
    if is_video and not timed:
        assumptions.append("no 'pts_s' in the images and no --rate-hz: results are in frames only")
    rows = {image_id: row for row, image_id in enumerate(ids)}
    return StudyTruth(replace(table, frame_names=tuple(names)), tuple(assumptions), coco, rows)


def _video_of(image: CocoImage) -> str:
    video = image.extra.get("video")
    return str(video) if video is not None else Path(image.file_name).parent.name


def _numbered(images: Sequence[CocoImage]) -> list[tuple[int, CocoImage]]:
    ordered = sorted(images, key=lambda image: natural_key(image.file_name))
    numbers = [
        int(image.extra["frame"]) if "frame" in image.extra else frame_index(Path(image.file_name).stem)
        for image in ordered
    ]
    if all(n is not None for n in numbers) and len(set(numbers)) == len(numbers):
        pairs = [(n, image) for n, image in zip(numbers, ordered, strict=True) if n is not None]
        return sorted(pairs, key=lambda pair: pair[0])
    return list(enumerate(ordered))


def with_attributes(truth: TruthTable, path: str | Path) -> TruthTable:
    """Add Paris classes and patients from a table with columns video (or frame, for stills), paris and/or patient.

    One row per video, or per image for stills. Spelling of Paris classes is made uniform.
    """
    table = read_table(path)
    key = "frame" if truth.kind == "stills" else "video"
    if key not in table.columns:
        raise InputError(
            f"{path}: expected a column {key!r} beside paris or patient, found {', '.join(table.columns)}; add it."
        )
    names = truth.frame_names if key == "frame" else truth.videos
    known = {name: number for number, name in enumerate(names)}
    paris: dict[int, str] = {}
    patients = list(truth.patients)
    for line, row in enumerate(table.iter_rows(named=True), start=2):
        name = str(row[key])
        number = known.get(name, known.get(Path(name).stem, -1))
        if number < 0:
            raise InputError(f"{path}, line {line}: expected a {key} of the truth, found {name!r}; check the name.")
        if row.get("paris"):
            try:
                paris[number] = normalise_paris(str(row["paris"]))
            except RecordError as error:
                raise InputError(f"{path}, line {line}: {error}") from None
        if row.get("patient") and key == "video":
            patients[number] = str(row["patient"])
    place = truth.polyp_frame if key == "frame" else truth.video[truth.polyp_frame]
    merged = tuple(paris.get(int(where), old) for where, old in zip(place, truth.paris, strict=True))
    return replace(truth, paris=merged, patients=tuple(patients))
