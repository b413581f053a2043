"""Writes any data set in a common layout, so that other tools, and every command here, can read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from polypscope.datasets.dataset import Dataset
from polypscope.datasets.files import ClipFiles
from polypscope.datasets.outcome import Conversion
from polypscope.io.coco import CocoAnnotation, CocoFile, CocoImage, write_coco
from polypscope.io.images import IMAGE_SUFFIXES, image_size, write_image
from polypscope.io.masks import write_mask
from polypscope.io.paths import safe_join, write_bytes
from polypscope.io.rle import RunLengths
from polypscope.io.tables import write_table
from polypscope.records import BinaryMask, Box, Frame, GroundTruth
from polypscope.records.errors import PolypscopeError

__all__ = ["Layout", "convert_dataset"]

Layout = Literal["folder", "sun-seg"]


def convert_dataset(
    dataset: Dataset, root: Path, out: Path, *, layout: Layout = "folder", step: Callable[[], None] = lambda: None
) -> Conversion:
    """Write frames and masks of `dataset` under `out`, with `annotations.json` (COCO) and `manifest.csv`.

    Image files are copied byte for byte, frames of videos become PNG. A frame that cannot be read is left out, by name.
    """
    done = Conversion(out)
    images: list[CocoImage] = []
    annotations: list[CocoAnnotation] = []
    rows: list[dict[str, str | int | float | bool]] = []
    for clip in dataset.files(root):
        record = dataset.clip_record(clip)
        for index, sample in enumerate(record.samples):
            step()
            image_name, mask_name = _names(clip, index, layout)
            try:
                shape, pts_s = _write_image(out, image_name, clip, index, sample.frame, dataset)
                truth = sample.truth()
            except PolypscopeError as error:
                done.skipped.append(str(error))
                continue
            done.frames += 1
            image = CocoImage(len(images) + 1, image_name, shape[1], shape[0])
            images.append(image)
            if truth is not None and truth.instances is not None:
                write_mask(safe_join(out, mask_name), BinaryMask(truth.instances > 0))
                done.masks += 1
            annotations += _annotations(truth, image, len(annotations) + 1)
            rows.append(
                {
                    "split": clip.split,
                    "case": clip.case,
                    "clip": clip.clip,
                    "frame": index,
                    "pts_s": pts_s,
                    "image": image_name,
                    "mask": mask_name if truth is not None and truth.instances is not None else "",
                    "polyps": -1 if truth is None else len(truth.polyps),
                }
            )
    info = {"description": f"{dataset.card.title}, converted by Polypscope", "licence": dataset.card.licence}
    write_coco(out / "annotations.json", CocoFile(tuple(images), tuple(annotations), info=info))
    write_table(out / "manifest.csv", pl.DataFrame(rows))
    return done


def _names(clip: ClipFiles, index: int, layout: Layout) -> tuple[str, str]:
    frame = clip.frames[index]
    suffix = frame.image.suffix.lower() if frame.image is not None else ".png"
    name = frame.name if frame.image is not None else f"{int(frame.name):06d}"
    if layout == "sun-seg":
        split = clip.split or "TestDataset"
        return f"{split}/Frame/{clip.clip}/{name}{suffix}", f"{split}/GT/{clip.clip}/{name}.png"
    case = "_".join(part for part in (clip.split.replace("/", "_"), clip.case) if part)
    return f"images/{case}/{clip.clip}/{name}{suffix}", f"masks/{case}/{clip.clip}/{name}.png"


def _write_image(
    out: Path, name: str, clip: ClipFiles, index: int, read: Callable[[], Frame], dataset: Dataset
) -> tuple[tuple[int, int], float]:
    """Copy or encode one frame; returns its shape and time stamp."""
    source = clip.frames[index].image
    if source is not None and source.suffix.lower() in IMAGE_SUFFIXES:
        width, height = image_size(source)
        write_bytes(safe_join(out, name), source.read_bytes())
        return (height, width), dataset.pts_s(clip.frames[index], index)
    frame = read()
    write_image(safe_join(out, name), frame.rgb)
    return frame.shape, frame.pts_s


def _annotations(truth: GroundTruth | None, image: CocoImage, first_id: int) -> list[CocoAnnotation]:
    if truth is None:
        return []
    out = []
    for polyp in truth.polyps:
        box, code, area = polyp.box, None, None
        if truth.instances is not None:
            region = truth.instances == polyp.id
            code, area = RunLengths.from_mask(region), float(region.sum())
            rows, columns = np.flatnonzero(region.any(axis=1)), np.flatnonzero(region.any(axis=0))
            if rows.size:
                box = Box(
                    float(columns[0]),
                    float(rows[0]),
                    float(columns[-1] - columns[0] + 1),
                    float(rows[-1] - rows[0] + 1),
                )
        out.append(CocoAnnotation(first_id + len(out), image.id, 1, box, code, area_px=area))
    return out
