"""SUN-SEG: 285 clips with a mask for each of 49,136 frames, and 728 clips without polyp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.dataset import Dataset
from polypscope.datasets.files import ClipFiles, FrameFiles, pair_by_stem
from polypscope.datasets.outcome import Problem
from polypscope.io.coco import read_coco
from polypscope.io.masks import MaskThreshold, read_mask
from polypscope.io.paths import list_folders, require_file
from polypscope.records import Box, GroundTruth
from polypscope.records.errors import DamagedInput, MissingInput, PolypscopeError, UsageError

__all__ = ["DATASET", "LABELS", "PUBLISHED", "SunSeg", "read_classification"]

LABELS = ("GT", "Edge", "Scribble", "Polygon")
_SPLITS = (
    "TrainDataset",
    "TestEasyDataset/Seen",
    "TestEasyDataset/Unseen",
    "TestEasyDataset",
    "TestHardDataset/Seen",
    "TestHardDataset/Unseen",
    "TestHardDataset",
)
_NEGATIVES = ("NegativeDataset/Frame", "SUN-Negative")
PUBLISHED = {
    "TrainDataset": (112, 19_544),
    "TestEasyDataset": (119, 17_070),
    "TestHardDataset": (54, 12_522),
    "Negative": (728, 109_554),
}
"""Clips and frames of each part, as released. (The paper's text speaks of 378 positive clips; its splits do not.)"""


class SunSeg(Dataset):
    """SUN-SEG by split; a case is a SUN case ("case12" of clip "case12_3"), which has one polyp.

    Cases of the splits "Seen" are also in training: that is what the name means.

    Parameters
    ----------
    label
        Which kind of label the masks of the records are: GT, Edge, Scribble or Polygon.
    """

    threshold = MaskThreshold.ABOVE_128
    fps = 30.0
    card = DatasetCard(
        name="sun-seg",
        title="SUN-SEG",
        kind="video clips",
        frames=49_136,
        licence="research use on request (frames: SUN database; labels: SUN-SEG)",
        citation="Ji et al., Video Polyp Segmentation: A Deep Learning Perspective, MIR 2022; "
        "Misawa et al., Development of a computer-aided detection system for colonoscopy (SUN), GIE 2021",
        obtain="frames on request at http://amed8k.sundatabase.org, labels at https://github.com/GewelsJI/VPS",
        layout="ROOT/TrainDataset, ROOT/TestEasyDataset/{Seen,Unseen}, ROOT/TestHardDataset/{Seen,Unseen}, each with "
        "Frame/CLIP/*.jpg, GT/CLIP/*.png and optionally Edge/, Scribble/, Polygon/, "
        "Classification/classification.txt, Detection/bbox_annotation.json; negatives: ROOT/NegativeDataset/Frame/CLIP",
        shipped_weights=False,
        remarks="30 frames per second; one polyp per case. The count of frames is that of the positive part.",
    )

    def __init__(self, label: str = "GT") -> None:
        if label not in LABELS:
            raise UsageError(f"label: expected one of {', '.join(LABELS)}, found {label!r}.")
        self.label = label

    def files(self, root: Path) -> list[ClipFiles]:
        clips: list[ClipFiles] = []
        for split in _SPLITS:
            if (root / split / "Frame").is_dir():
                clips += self._split(root / split, split)
        for name in _NEGATIVES:
            if (root / name).is_dir():
                clips += [_negative(folder) for folder in list_folders(root / name)]
        if not clips:
            raise MissingInput(
                f"{root}: expected TrainDataset/Frame, TestEasyDataset or TestHardDataset of SUN-SEG, found none; "
                "see `polypscope datasets info sun-seg`."
            )
        return clips

    def _split(self, folder: Path, split: str) -> list[ClipFiles]:
        classes = _classes(folder)
        clips = []
        for frames_folder in list_folders(folder / "Frame"):
            masks = folder / self.label / frames_folder.name
            frames, orphans = pair_by_stem(frames_folder, masks if masks.is_dir() else None)
            pathology = classes.get(frames[0].name)
            clips.append(
                ClipFiles(
                    frames_folder.name.rsplit("_", 1)[0],
                    frames_folder.name,
                    frames,
                    is_video=True,
                    orphans=orphans,
                    split=split,
                    metadata={"pathology": pathology} if pathology else {},
                    folder=folder,
                )
            )
        return clips

    def instances(self, clip: ClipFiles, frame: FrameFiles) -> np.ndarray[Any, np.dtype[np.uint16]]:
        # One polyp per case: a mask in two parts is one polyp behind a fold or an instrument.
        assert frame.mask is not None
        return read_mask(frame.mask, self.threshold).values.astype(np.uint16)

    def boxes(self, clip: ClipFiles, frame: FrameFiles) -> tuple[Box, ...]:
        if clip.folder is None or clip.split == "Negative":
            return ()
        path = clip.folder / "Detection" / "bbox_annotation.json"
        return _boxes(path).get((clip.clip, frame.name), ()) if path.is_file() else ()

    def truth(self, clip: ClipFiles, index: int) -> GroundTruth | None:
        """The truth of one frame, with the published box where there is one."""
        truth = super().truth(clip, index)
        boxes = self.boxes(clip, clip.frames[index])
        if truth is None or len(truth.polyps) != 1 or not boxes:
            return truth
        return replace(truth, polyps=(replace(truth.polyps[0], box=boxes[0]),))

    def further_problems(self, root: Path, clips: Sequence[ClipFiles]) -> Iterator[Problem]:
        """Missing labels of the other kinds, and label files that cannot be read."""
        folders = dict.fromkeys(clip.folder for clip in clips if clip.folder is not None and clip.split != "Negative")
        for folder in folders:
            for read, path in (
                (read_classification, folder / "Classification" / "classification.txt"),
                (_boxes, folder / "Detection" / "bbox_annotation.json"),
            ):
                try:
                    if path.is_file():
                        read(path)
                except PolypscopeError as error:
                    yield Problem("broken labels", path.relative_to(root).as_posix(), str(error))
        for clip in clips:
            for label in LABELS:
                if clip.folder is None or label == self.label or not (clip.folder / label).is_dir():
                    continue
                there = {path.stem for path in (clip.folder / label / clip.clip).glob("*.png")}
                for frame in clip.frames:
                    if frame.name not in there and clip.split != "Negative":
                        where = (clip.folder / label / clip.clip / f"{frame.name}.png").relative_to(root)
                        yield Problem("missing label", where.as_posix(), f"the frame has no {label} label")

    def further_notes(self, clips: Sequence[ClipFiles]) -> Iterator[str]:
        """How the parts compare with the published ones."""
        for part, (published_clips, published_frames) in PUBLISHED.items():
            members = [clip for clip in clips if clip.split.startswith(part)]
            frames = sum(len(clip.frames) for clip in members)
            if members and (len(members), frames) != (published_clips, published_frames):
                yield (
                    f"{part}: {len(members)} clips with {frames:,} frames are here, "
                    f"{published_clips} with {published_frames:,} were published"
                )


def _negative(folder: Path) -> ClipFiles:
    frames, _ = pair_by_stem(folder, None, negative=True)
    return ClipFiles(folder.name.rsplit("_", 1)[0], folder.name, frames, is_video=True, split="Negative", folder=folder)


def _classes(folder: Path) -> dict[str, str]:
    path = folder / "Classification" / "classification.txt"
    try:
        return read_classification(path) if path.is_file() else {}
    except DamagedInput:
        return {}  # the check reports it; frames and masks are sound without it


def read_classification(path: Path) -> dict[str, str]:
    """Pathology of each frame by its stem, from lines `name<TAB>class`; null bytes, which occur, are ignored."""
    text = require_file(path, "classification file").read_bytes().replace(b"\0", b"").decode("utf-8", "replace")
    classes = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, tab, pathology = line.strip().partition("\t")
        if not tab or not pathology.strip():
            raise DamagedInput(
                f"{path}, line {number}: expected 'name<TAB>class', found {line.strip()[:60]!r}; correct it."
            )
        classes[Path(name.strip()).stem] = pathology.strip()
    return classes


@cache
def _boxes(path: Path) -> dict[tuple[str, str], tuple[Box, ...]]:
    """Boxes by clip and frame name. One file holds a whole split, so it is read once."""
    coco = read_coco(path)
    grouped = coco.by_image()
    return {
        (str(image.extra.get("case_name", "")), _stem(image.file_name)): tuple(
            annotation.box for annotation in grouped[image.id] if annotation.box is not None
        )
        for image in coco.images
    }


def _stem(name: str) -> str:
    """File names stand with or without their ending in the published file."""
    return name.removesuffix(".jpg").removesuffix(".png")


DATASET = SunSeg()
