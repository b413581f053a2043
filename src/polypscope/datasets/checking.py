"""Reads a whole data set and says in words, file by file, what is wrong with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from polypscope.datasets.files import ClipFiles, FrameFiles
from polypscope.datasets.outcome import CheckReport, Problem
from polypscope.io.images import read_rgb
from polypscope.io.masks import read_mask
from polypscope.io.paths import STRAY_NAMES
from polypscope.io.sources import open_source
from polypscope.records.errors import PolypscopeError
from polypscope.runtime.jobs import run_jobs

if TYPE_CHECKING:
    from polypscope.datasets.dataset import Dataset

__all__ = ["check_files"]


@dataclass(frozen=True)
class _Finding:
    """What was learnt of one clip: for each frame the image's hash (None if broken), and whether a polyp is there."""

    problems: tuple[Problem, ...]
    hashes: tuple[tuple[str, str], ...]
    empty: tuple[str, ...]
    polyp_frames: int


def check_files(dataset: Dataset, root: Path, *, jobs: int = 1) -> CheckReport:
    """Check everything that `dataset` finds under `root`."""
    clips = dataset.files(root)
    parts = _portions(clips)
    work = run_jobs(
        partial(_check_clip, dataset, root),
        parts,
        names=[f"{part.case}/{part.clip}, from {part.frames[0].name}" for part in parts],
        jobs=jobs,
        label="checking",
        unit="parts",
    )
    findings = work.good
    problems = list(_strays(root))
    problems += [problem for finding in findings for problem in finding.problems]
    problems += [Problem("unreadable", failure.name, failure.sentence) for failure in work.failures]
    problems += _duplicates(findings)
    problems += dataset.further_problems(root, clips)
    empty = [name for finding in findings for name in finding.empty]
    notes = []
    if empty and dataset.empty_masks_are_normal:
        notes.append(f"{len(empty)} masks are empty (frames without polyp): {_some(empty)}")
    elif empty:
        problems += [
            Problem("all-black mask", name, "the mask is empty, but every frame shows a polyp here") for name in empty
        ]
    frames = sum(len(clip.frames) for clip in clips)
    notes += dataset.further_notes(clips)
    if dataset.card.frames is not None and frames != dataset.card.frames:
        notes.append(f"the published data set has {dataset.card.frames:,} frames, {frames:,} are here")
    return CheckReport(
        dataset=dataset.card.name,
        root=str(root),
        cases=len({(clip.split, clip.case) for clip in clips}),
        clips=len(clips),
        frames=frames,
        masks=sum(frame.mask is not None for clip in clips for frame in clip.frames),
        polyp_frames=sum(finding.polyp_frames for finding in findings),
        problems=tuple(sorted(problems, key=lambda problem: (problem.path, problem.kind))),
        notes=tuple(notes),
    )


def _portions(clips: list[ClipFiles], size: int = 64) -> list[ClipFiles]:
    """Clips cut into parts of similar work, so that several processes share one large folder of stills."""
    out = []
    for clip in clips:
        if clip.video is not None or len(clip.frames) <= size:
            out.append(clip)
            continue
        for start in range(0, len(clip.frames), size):
            part = clip.frames[start : start + size]
            orphans = clip.orphans if start == 0 else ()
            out.append(replace(clip, frames=part, orphans=orphans))
    return out


def _check_clip(dataset: Dataset, root: Path, clip: ClipFiles) -> _Finding:
    problems: list[Problem] = []
    hashes: list[tuple[str, str]] = []
    empty: list[str] = []
    polyp_frames = 0
    for orphan in clip.orphans:
        problems.append(
            Problem("missing image", _name(root, orphan), "the mask has no image; add it or remove the mask")
        )
    for index, (frame, shape, digest, fault) in enumerate(_images(root, clip)):
        name = _name(root, frame.image) if frame.image is not None else f"{_name(root, clip.video)}, frame {frame.name}"
        if fault is not None:
            problems.append(Problem("broken image", name, fault))
        if digest is not None:
            hashes.append((digest, name))
        if frame.mask is None:
            if not frame.negative and not clip.unlabelled:
                problems.append(Problem("missing mask", name, "the image has no mask; add it or remove the image"))
            continue
        mask_name = _name(root, frame.mask)
        try:
            mask = read_mask(frame.mask, dataset.threshold)
        except PolypscopeError as error:
            problems.append(Problem("broken mask", mask_name, _without(error, frame.mask)))
            continue
        if shape is not None and mask.shape != shape:
            text = (
                f"the image has {shape[1]}×{shape[0]} pixels, the mask {mask.shape[1]}×{mask.shape[0]}; export one anew"
            )
            problems.append(Problem("size mismatch", mask_name, text))
        if mask.area_px:
            polyp_frames += 1
        else:
            empty.append(mask_name)
        problems += _depth_problems(dataset, root, clip, index, shape)
    return _Finding(tuple(problems), tuple(hashes), tuple(empty), polyp_frames)


def _images(root: Path, clip: ClipFiles) -> Iterator[tuple[FrameFiles, tuple[int, int] | None, str | None, str | None]]:
    """Each frame with its shape, the hash of its pixels, and what is wrong with it."""
    if clip.video is None:
        for frame in clip.frames:
            assert frame.image is not None
            try:
                rgb = read_rgb(frame.image)
            except PolypscopeError as error:
                yield frame, None, None, _without(error, frame.image)
            else:
                yield frame, (rgb.shape[0], rgb.shape[1]), hashlib.sha1(rgb.tobytes()).hexdigest(), None
        return
    with open_source(clip.video) as source:
        found = {frame.index: frame.shape for frame in source}
    for index, frame in enumerate(clip.frames):
        fault = None if index in found else "the frame cannot be decoded; copy the video again"
        # A camera at rest repeats its picture: equal frames of a video are no fault.
        yield frame, found.get(index), None, fault


def _depth_problems(
    dataset: Dataset, root: Path, clip: ClipFiles, index: int, shape: tuple[int, int] | None
) -> list[Problem]:
    frame = clip.frames[index]
    if frame.depth is None:
        return []
    name = _name(root, frame.depth)
    try:
        depth = dataset.depth(clip, frame)
    except PolypscopeError as error:
        return [Problem("broken depth", name, _without(error, frame.depth))]
    if shape is not None and depth.shape != shape:
        return [Problem("size mismatch", name, f"the image has shape {shape}, the depth map {depth.shape}")]
    return []


def _strays(root: Path) -> Iterator[Problem]:
    for folder, names, files in os.walk(root):
        for name in sorted(files + [name for name in names if name in STRAY_NAMES]):
            path = Path(folder) / name
            if name in STRAY_NAMES or name.startswith("._"):
                yield Problem("stray file", _name(root, path), "the operating system left it behind; delete it")
            elif name.startswith(".") and ".part" in name:
                yield Problem("stray file", _name(root, path), "an interrupted run left it behind; delete it")


def _duplicates(findings: list[_Finding]) -> list[Problem]:
    first: dict[str, str] = {}
    problems = []
    for finding in findings:
        for digest, name in finding.hashes:
            original = first.setdefault(digest, name)
            if original != name:
                problems.append(Problem("duplicate frame", name, f"its pixels equal those of {original}; remove one"))
    return problems


def _name(root: Path, path: Path | None) -> str:
    return "" if path is None else path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _without(error: PolypscopeError, path: Path) -> str:
    """The sentence of an error without the path in front, which the report names itself."""
    return str(error).removeprefix(f"{path}: ")


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")
