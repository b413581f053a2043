"""What methods said, from files: CSVs, COCO results, mask folders or heat-map folders, checked against the truth.

`NAME=PATH` names a method, else its file or folder does. Every fault names the file and, in a CSV, the line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polypscope.evaluation.detection.tables import DetectionTable, TruthTable, detection_table
from polypscope.io.coco import read_coco_results
from polypscope.io.detection_truth import StudyTruth, frames_of_folder, in_order
from polypscope.io.detections_csv import DetectionKind, DetectionsFile, read_detections_csv
from polypscope.io.images import IMAGE_SUFFIXES
from polypscope.io.masks import read_probability
from polypscope.io.paths import list_files, list_folders
from polypscope.records import BinaryMask, Box, Detection, Prediction, ProbabilityMap
from polypscope.records.errors import InputError, MissingInput, UsageError

__all__ = ["MethodFiles", "Missing", "did_you_mean", "locate_in_map", "read_method", "split_name"]

Missing = Literal["refuse", "empty", "skip"]
MapPoint = Literal["centroid", "peak"]


@dataclass(frozen=True, eq=False)
class MethodFiles:
    """A method's table, and what had to be assumed about its files."""

    table: DetectionTable
    assumptions: tuple[str, ...] = ()


def split_name(text: str) -> tuple[str, Path]:
    """`NAME=PATH` or a path, whose stem is then the name.

    >>> split_name("CUMED=out/a.csv"), split_name("out/asu.csv")
    (('CUMED', PosixPath('out/a.csv')), ('asu', PosixPath('out/asu.csv')))
    """
    name, equals, rest = text.partition("=")
    if equals and name and rest and not Path(text).exists():
        return name, Path(rest)
    path = Path(text)
    return path.stem if path.suffix.lower() in (".csv", ".tsv", ".txt", ".json") else path.name, path


def read_method(
    text: str,
    truth: StudyTruth,
    *,
    missing: Missing = "refuse",
    first_frame: int = 0,
    map_threshold: float = 0.5,
    map_point: MapPoint = "centroid",
    duplicates: Literal["refuse", "keep"] = "refuse",
    threads: int = 2,
) -> MethodFiles:
    """Read one method in whichever form it comes.

    Parameters
    ----------
    text
        `PATH` or `NAME=PATH`: a CSV (with a column `video` if there are several), a folder of CSVs (one per video), a
        COCO results file, or a folder of masks or heat maps laid out as the truth's.
    truth
        The truth; names and frames must be those of the truth.
    missing
        What a folder without a file for some video means: "refuse" it, take the method as silent there ("empty"), or
        score the method on the other videos only ("skip").
    first_frame
        Number that the CSVs give to the first frame.
    map_threshold
        Heat maps: from this value on a pixel belongs to a detection.
    map_point
        Heat maps: a detection's point is the centroid of its region (the challenge's way) or its highest pixel.
    duplicates
        Whether a CSV row that repeats another is refused.
    threads
        Image files read at a time.
    """
    name, path = split_name(text)
    if not path.exists():
        raise MissingInput(f"{path}: expected the detections of a method, found nothing there; check the path.")
    if path.is_file():
        if path.suffix.lower() == ".json":
            return MethodFiles(_from_coco(name, path, truth))
        return _from_csvs(name, path, {None: path}, truth.table, missing, first_frame, duplicates)
    csvs = list_files(path, (".csv", ".tsv", ".txt"))
    if csvs:
        files: dict[str | None, Path] = {file.stem: file for file in csvs}
        return _from_csvs(name, path, files, truth.table, missing, first_frame, duplicates)
    return _from_maps(name, path, truth.table, missing, map_threshold, map_point, threads)


def _from_csvs(
    name: str,
    path: Path,
    files: Mapping[str | None, Path],
    truth: TruthTable,
    missing: Missing,
    first_frame: int,
    duplicates: Literal["refuse", "keep"],
) -> MethodFiles:
    took_part = np.ones(len(truth.videos), dtype=np.bool_)
    if None not in files:
        took_part = _present({str(k): v for k, v in files.items()}, path, truth, missing)
    columns: list[tuple[int, float, float, float]] = []
    boxes: list[tuple[float, float, float, float] | None] = []
    assumptions: list[str] = []
    for stem, file in files.items():
        if file.stat().st_size == 0:
            raise InputError(
                f"{file}, line 1: expected rows of frame, x, y and optionally confidence, found an empty file; if the "
                "method made no detection here write the header line 'frame,x,y,confidence' alone."
            )
        rows = read_detections_csv(file, first_frame=first_frame, duplicates=duplicates)
        assumptions += [f"{file.name}: {text}" for text in rows.assumptions]
        if rows.kind is DetectionKind.PRESENCE:
            raise InputError(
                f"{file}, line 1: expected the places of detections (frame, x, y), found presence only; "
                "give the coordinates, which this protocol checks against the polyp."
            )
        for video, part in _by_video(rows, stem, truth).items():
            frames = _frame_rows(rows, video, [row[0] for row in part], [row[1] for row in part], truth)
            for frame, (_, _, index) in zip(frames, part, strict=True):
                row = rows.rows[index]
                assert row.x is not None
                assert row.y is not None
                columns.append((frame, row.x, row.y, np.nan if row.score is None else row.score))
                boxes.append(None if row.box is None else (row.box.x, row.box.y, row.box.width, row.box.height))
    table = np.array(columns, dtype=np.float64).reshape(-1, 4)
    whole = [box for box in boxes if box is not None]
    result = DetectionTable.from_columns(
        truth,
        name,
        frame=table[:, 0].astype(np.int64),
        x=table[:, 1],
        y=table[:, 2],
        score=table[:, 3],
        boxes=np.array(whole) if whole and len(whole) == len(boxes) else None,
        took_part=took_part,
    )
    return MethodFiles(result, tuple(assumptions))


def _present(files: Mapping[str, Path], path: Path, truth: TruthTable, missing: Missing) -> NDArray[np.bool_]:
    """Which videos of the truth have a file; unknown names are refused, absent ones as `missing` says."""
    for stem, file in files.items():
        if stem not in truth.videos:
            raise InputError(
                f"{file}: expected the name of a video of the truth, found {stem!r}; "
                f"{did_you_mean(stem, truth.videos)}."
            )
    absent = [video for video in truth.videos if video not in files]
    if absent and missing == "refuse":
        raise InputError(
            f"{path}: expected one file per video, found none for {', '.join(absent[:6])}"
            f"{f' and {len(absent) - 6} more' if len(absent) > 6 else ''}; if the method was silent there give "
            "--missing empty, if it was never run there give --missing skip."
        )
    return np.array([video in files or missing == "empty" for video in truth.videos])


def _by_video(rows: DetectionsFile, stem: str | None, truth: TruthTable) -> dict[str, list[tuple[int | str, int, int]]]:
    """(frame as written, line, row number) of each video. Files of one video may omit its name."""
    out: dict[str, list[tuple[int | str, int, int]]] = {}
    if not rows.videos and stem is None and len(truth.videos) > 1 and rows.rows:
        raise InputError(
            f"{rows.path}, line {rows.rows[0].line}: expected a column 'video', since the truth has "
            f"{len(truth.videos)} videos, found none; add it, or give a folder with one CSV per video."
        )
    rows.check_videos(truth.videos)
    for number, row in enumerate(rows.rows):
        video = row.video or stem or truth.videos[0]
        if stem is not None and row.video is not None and row.video != stem:
            raise InputError(
                f"{rows.path}, line {row.line}: expected video {stem!r} as the file's name says, found {row.video!r}; "
                "move the row or rename the file."
            )
        out.setdefault(video, []).append((row.frame, row.line, number))
    return out


def _frame_rows(
    rows: DetectionsFile, video: str, frames: list[int | str], lines: list[int], truth: TruthTable
) -> list[int]:
    """Rows of the truth for frames given by number or by image name."""
    if all(isinstance(frame, int) for frame in frames):
        found = [int(row) for row in truth.locate(video, np.array(frames, dtype=np.int64))]
        names: list[str] = []
    else:
        inside = np.flatnonzero(truth.video == truth.videos.index(video))
        by_name = {truth.frame_names[r]: int(r) for r in inside}
        names = list(by_name)
        found = [by_name.get(str(f), by_name.get(Path(str(f)).stem, -1)) for f in frames]
    for frame, line, row in zip(frames, lines, found, strict=True):
        if row < 0:
            index = truth.index[truth.video == truth.videos.index(video)]
            wanted = "the name of an image of the truth" if names else f"a frame from {index.min()} to {index.max()}"
            hint = (
                did_you_mean(str(frame), names) if names else "correct it, or give --first-frame if it counts from one"
            )
            raise InputError(f"{rows.path}, line {line}: expected {wanted} in {video!r}, found {frame!r}; {hint}.")
    return found


def _from_coco(name: str, path: Path, truth: StudyTruth) -> DetectionTable:
    if truth.coco is None:
        raise UsageError(
            f"{path}: COCO results refer to image ids, but the truth is no COCO file; give the truth as COCO, or CSVs."
        )
    results = read_coco_results(path, truth.coco)
    by_image = results.by_image()
    predictions: dict[str, list[Prediction]] = {video: [] for video in truth.table.videos}
    for image in results.images:
        row = truth.image_rows[image.id]
        video = truth.table.videos[int(truth.table.video[row])]
        found = []
        for annotation in by_image[image.id]:
            mask = annotation.mask(image)
            box = annotation.box
            if box is not None:
                point = (box.x + box.width / 2, box.y + box.height / 2)
            elif mask is not None and mask.area_px:
                y, x = ndimage.center_of_mass(mask.values)
                point = (float(x), float(y))
            else:
                raise InputError(f"{path}: detection {annotation.id!r} has neither a box nor a mask; remove it.")
            score = annotation.score
            if score is not None and not 0 <= score <= 1:
                raise InputError(f"{path}: detection {annotation.id!r} has the score {score:g}; rescale to 0 … 1.")
            found.append(Detection(point, score=score, box=box, mask=mask))
        index = int(truth.table.index[row])
        predictions[video].append(Prediction(index, 0.0, (image.height, image.width), tuple(found)))
    return detection_table(truth.table, name, predictions)


def _from_maps(
    name: str, path: Path, truth: TruthTable, missing: Missing, threshold: float, point: MapPoint, threads: int
) -> MethodFiles:
    folders = {folder.name: folder for folder in list_folders(path) if list_files(folder, IMAGE_SUFFIXES)}
    if not folders:
        if not list_files(path, IMAGE_SUFFIXES):
            raise InputError(f"{path}: expected CSVs, masks or heat maps, found none; check the path.")
        if len(truth.videos) > 1:
            raise InputError(f"{path}: expected one folder of maps per video, found loose images; sort them by video.")
        folders = {truth.videos[0]: path}
    took_part = _present(folders, path, truth, missing)
    height, width = truth.height_px, truth.width_px

    def predictions(video: str, folder: Path) -> Iterator[Prediction]:
        rows = np.flatnonzero(truth.video == truth.videos.index(video))
        by_name = {truth.frame_names[r]: int(r) for r in rows}
        files = [file for _, file in frames_of_folder(folder)]
        unknown = [file for file in files if file.stem not in by_name]
        if unknown:
            raise InputError(
                f"{unknown[0]}: expected the name of a frame of the truth in {video!r}, found {unknown[0].stem!r}; "
                f"{did_you_mean(unknown[0].stem, list(by_name))}."
            )
        silent = len(rows) - len(files)
        if silent and missing == "refuse":
            raise InputError(
                f"{folder}: expected a map for each of {len(rows)} frames, found {len(files)}; add the others, or "
                "give --missing empty if the method was silent there."
            )

        def read(file: Path) -> Prediction:
            row = by_name[file.stem]
            probability = read_probability(file)
            if probability.shape != (height[row], width[row]):
                h, w = probability.shape
                raise InputError(
                    f"{file}: expected {width[row]}×{height[row]} pixels like its truth, found {w}×{h}; resize it."
                )
            found = locate_in_map(probability, threshold=threshold, point=point)
            return Prediction(int(truth.index[row]), 0.0, probability.shape, found, probability)

        yield from in_order(read, files, threads)

    by_video = {
        video: predictions(video, folders[video]) if video in folders else iter(())
        for video, took in zip(truth.videos, took_part, strict=True)
        if took
    }
    table = detection_table(truth, name, by_video)
    return MethodFiles(table, (f"{name}: each region ≥ {threshold:g} is a detection at its {point}",))


def locate_in_map(
    probability: ProbabilityMap, *, threshold: float = 0.5, point: MapPoint = "centroid"
) -> tuple[Detection, ...]:
    """Detections of a heat map: its 8-connected regions from `threshold` on, scored by their highest value.

    >>> values = np.zeros((5, 6), np.float32); values[1:3, 2:5] = 0.8
    >>> [(d.point_xy, round(d.score, 2)) for d in locate_in_map(ProbabilityMap(values))]
    [((3.0, 1.5), 0.8)]
    """
    values = probability.values
    labels, count = ndimage.label(values >= threshold, structure=np.ones((3, 3)))
    out = []
    for number, place in enumerate(ndimage.find_objects(labels, max_label=count), start=1):
        rows, columns = place
        region = labels[place] == number
        inside = np.where(region, values[place], -1.0)
        if point == "peak":
            y, x = (float(v) for v in np.unravel_index(int(np.argmax(inside)), inside.shape))
        else:
            y, x = (float(v.mean()) for v in np.nonzero(region))
        mask = np.zeros(values.shape, dtype=np.bool_)
        mask[place] = region
        box = Box(columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start)
        out.append(
            Detection((columns.start + x, rows.start + y), score=float(inside.max()), box=box, mask=BinaryMask(mask))
        )
    return tuple(out)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the nearest known name, or at what there is."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return (
        f"did you mean {close[0]!r}" if close else f"there are {', '.join(names[:4])}{', …' if len(names) > 4 else ''}"
    )
