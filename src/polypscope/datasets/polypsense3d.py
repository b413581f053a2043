"""PolypSense3D in our own layout (docs/reference/polypsense3d-layout.md): frames with masks, depth, poses and sizes.

The paper publishes no folder layout; the simulator writes this one, and real recordings can be brought into it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polypscope.datasets.card import DatasetCard
from polypscope.datasets.dataset import ASSUMED_FPS, Dataset
from polypscope.datasets.files import ClipFiles, FrameFiles
from polypscope.datasets.outcome import Problem
from polypscope.io.camera_file import read_camera
from polypscope.io.depth import DEPTH_UNIT_MM, read_depth
from polypscope.io.images import IMAGE_SUFFIXES
from polypscope.io.masks import MaskThreshold, read_instances, read_mask
from polypscope.io.paths import list_files, list_folders, require_file
from polypscope.io.tables import read_table
from polypscope.records import BinaryMask, Camera, DepthKind, DepthMap, TruePolyp
from polypscope.records.errors import DamagedInput, MissingInput, PolypscopeError, RecordError

__all__ = ["DATASET", "LAYOUT_VERSION", "Poses", "read_field_of_view", "read_poses", "read_sequence"]

LAYOUT_VERSION = 1
_POSE_COLUMNS = ("r00", "r01", "r02", "tx", "r10", "r11", "r12", "ty", "r20", "r21", "r22", "tz")


@dataclass(frozen=True)
class Poses:
    """Camera to world for each frame: X_world = rotation · X_camera + translation_mm."""

    pts_s: NDArray[np.float64]
    rotation: NDArray[np.float64]
    translation_mm: NDArray[np.float64]


class PolypSense3D(Dataset):
    """A case for each subject (one colon), a clip for each sequence; instances are the polyp ids of the masks."""

    threshold = MaskThreshold.ABOVE_0
    empty_masks_are_normal = True
    card = DatasetCard(
        name="polypsense3d",
        title="PolypSense3D layout",
        kind="sequences with depth and sizes",
        frames=None,
        licence="simulated data: yours",
        citation="PolypSense3D: depth-aware polyp size",
        obtain="`polypscope simulate OUT` writes it",
        layout="ROOT/SEQUENCE/{sequence.json,camera.json,poses.csv,rgb/,depth/,masks/}",
        shipped_weights=True,
        remarks="Sizes in mm of simulated data are those of the simulator. Split by subject.",
    )

    def files(self, root: Path) -> list[ClipFiles]:
        folders = [folder for folder in list_folders(root) if (folder / "sequence.json").is_file()]
        if not folders and (root / "sequence.json").is_file():
            folders = [root]
        if not folders:
            raise MissingInput(
                f"{root}: expected sequences with a sequence.json (PolypSense3D layout), found none; "
                "make some with `polypscope simulate`."
            )
        return [_sequence_files(folder) for folder in folders]

    def camera(self, clip: ClipFiles) -> Camera | None:
        assert clip.folder is not None
        path = clip.folder / "camera.json"
        return read_camera(path) if path.is_file() else None

    def polyps(self, clips: Sequence[ClipFiles]) -> tuple[TruePolyp, ...]:
        """Known polyps of a single sequence; ids of different sequences would collide."""
        if len(clips) != 1 or clips[0].folder is None:
            return ()
        return _polyps(clips[0].folder)

    def instances(self, clip: ClipFiles, frame: FrameFiles) -> np.ndarray[Any, np.dtype[np.uint16]]:
        assert frame.mask is not None
        return read_instances(frame.mask)

    def depth(self, clip: ClipFiles, frame: FrameFiles) -> DepthMap:
        assert frame.depth is not None
        assert clip.folder is not None
        unit = read_sequence(clip.folder).get("depth_unit_mm") or DEPTH_UNIT_MM
        return read_depth(frame.depth, unit_mm=float(unit), kind=DepthKind.Z_MM)

    def further_problems(self, root: Path, clips: Sequence[ClipFiles]) -> Iterator[Problem]:
        """Sequences that do not hold what their sequence.json states."""
        for clip in clips:
            assert clip.folder is not None
            name = clip.folder.relative_to(root).as_posix()
            stated = read_sequence(clip.folder).get("frames")
            if stated is not None and stated != len(clip.frames):
                yield Problem(
                    "missing frames", name, f"sequence.json states {stated} frames, {len(clip.frames)} are here"
                )
            try:
                self.camera(clip)
                poses = read_poses(clip.folder)
                if poses is not None and len(poses.pts_s) != len(clip.frames):
                    text = f"poses.csv has {len(poses.pts_s)} rows for {len(clip.frames)} frames"
                    yield Problem("missing poses", f"{name}/poses.csv", text)
            except PolypscopeError as error:
                yield Problem("broken file", name, str(error))


@cache
def read_sequence(folder: Path) -> Mapping[str, Any]:
    """`sequence.json` of a sequence, checked for format and version."""
    path = require_file(folder / "sequence.json", "sequence.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise DamagedInput(f"{path}: expected JSON, found text that is not; simulate the sequence again.") from None
    if not isinstance(content, dict) or content.get("format") != "polypsense3d":
        raise DamagedInput(f'{path}: expected "format": "polypsense3d", found another file; check the folder.')
    if content.get("layout_version") != LAYOUT_VERSION:
        found = content.get("layout_version")
        raise DamagedInput(f"{path}: expected layout version {LAYOUT_VERSION}, found {found!r}; update Polypscope.")
    return content


def read_poses(folder: Path) -> Poses | None:
    """Poses of a sequence, or None where it has none."""
    path = folder / "poses.csv"
    if not path.is_file():
        return None
    table = read_table(path, columns=("index", "pts_s", *_POSE_COLUMNS))
    try:
        matrix = table.select(_POSE_COLUMNS).to_numpy().astype(np.float64).reshape(-1, 3, 4)
        pts_s = table["pts_s"].to_numpy().astype(np.float64)
    except (ValueError, TypeError):
        raise DamagedInput(f"{path}: expected numbers, found other text; simulate the sequence again.") from None
    return Poses(pts_s, matrix[:, :, :3], matrix[:, :, 3])


def read_field_of_view(folder: Path) -> BinaryMask | None:
    """Where the round or octagonal picture of the scope is, or None where it fills the frame."""
    path = folder / "fov.png"
    return read_mask(path) if path.is_file() else None


@cache
def _polyps(folder: Path) -> tuple[TruePolyp, ...]:
    listed = read_sequence(folder).get("polyps") or []
    try:
        return tuple(
            TruePolyp(entry["id"], entry.get("size_mm"), entry.get("paris"), entry.get("segment")) for entry in listed
        )
    except (KeyError, TypeError, AttributeError, RecordError) as error:
        raise DamagedInput(
            f"{folder / 'sequence.json'}: expected polyps with an id and a size, found: {error}."
        ) from None


def _sequence_files(folder: Path) -> ClipFiles:
    sequence = read_sequence(folder)
    rate = sequence.get("rate_hz") or ASSUMED_FPS
    masks, depths = _by_stem(folder / "masks"), _by_stem(folder / "depth")
    images = list_files(folder / "rgb", IMAGE_SUFFIXES)
    if not images:
        raise MissingInput(f"{folder / 'rgb'}: expected frames, found none; simulate the sequence again.")
    frames = tuple(
        FrameFiles(path.stem, path, masks.pop(path.stem, None), depths.get(path.stem), pts_s=index / rate)
        for index, path in enumerate(images)
    )
    metadata = {key: str(sequence[key]) for key in ("source", "style", "motion", "segment") if sequence.get(key)}
    return ClipFiles(
        str(sequence.get("subject") or folder.name),
        folder.name,
        frames,
        is_video=True,
        orphans=tuple(masks.values()),
        metadata=metadata,
        unlabelled=not (folder / "masks").is_dir(),
        folder=folder,
    )


def _by_stem(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in list_files(folder, IMAGE_SUFFIXES)} if folder.is_dir() else {}


DATASET = PolypSense3D()
