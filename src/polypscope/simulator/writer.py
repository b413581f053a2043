"""Simulated sequences on disk, in the PolypSense3D layout (docs/reference/polypsense3d-layout.md).

A sequence is written into a hidden folder and renamed when it is whole, so an interrupted run leaves only whole
sequences behind; running again with the same arguments writes what is missing.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from polypscope.io.depth import DEPTH_UNIT_MM
from polypscope.io.image_headers import insert_png_text
from polypscope.records.errors import OutputError, UsageError
from polypscope.simulator.sequence import Settings, SimulatedSequence

__all__ = ["begin_dataset", "finish_dataset", "is_written", "sequence_name", "write_sequence"]

_DEPTH_TEXT = {"depth_unit_mm": f"{DEPTH_UNIT_MM!r}", "depth_kind": "z_mm"}
_PNG = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
_PNG_DEPTH = [cv2.IMWRITE_PNG_COMPRESSION, 1]
_POSE_HEADER = "index,pts_s,r00,r01,r02,tx,r10,r11,r12,ty,r20,r21,r22,tz"
_FORCEPS_COLUMNS = (
    "index",
    "kind",
    "point",
    "x_px",
    "y_px",
    "x_seen_px",
    "y_seen_px",
    "x_mm",
    "y_mm",
    "z_mm",
    "visible",
)


def sequence_name(index: int) -> str:
    return f"seq{index:05d}"


def is_written(root: Path, index: int) -> bool:
    """Whether this sequence is whole on disk."""
    return (root / sequence_name(index) / "sequence.json").is_file()


def begin_dataset(root: Path, seed: int, settings: Settings) -> None:
    """Make the folder, or check that what is there was made with the same settings (so that a run can go on)."""
    recipe = {"seed": seed, **asdict(settings)}
    recipe = json.loads(json.dumps(recipe))
    marker = root / "dataset.json"
    if marker.is_file():
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
        except ValueError:
            found = {}
        if found.get("recipe") != recipe:
            old = found.get("recipe") or {}
            differing = sorted(k for k in {*recipe, *old} if recipe.get(k) != old.get(k))
            raise UsageError(
                f"{root}: expected an empty folder or a simulation with the same arguments to go on with, found one "
                f"that differs in {', '.join(differing) or 'format'}; choose another folder or the same arguments."
            )
        return
    if root.is_dir() and any(p for p in root.iterdir() if p.name not in ("run.json", ".run.json.part")):
        raise UsageError(
            f"{root}: expected an empty or new folder, found other files in it; choose another folder, because a "
            "simulation never overwrites what it did not write."
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {root} ({error.strerror}); choose another place.") from None
    _write_json(marker, {"format": "polypsense3d", "layout_version": 1, "recipe": recipe, "sequences": []})


def finish_dataset(root: Path) -> list[str]:
    """List the whole sequences in `dataset.json`; returns their names."""
    marker = root / "dataset.json"
    names = sorted(p.parent.name for p in root.glob("*/sequence.json") if not p.parent.name.startswith("."))
    data = json.loads(marker.read_text(encoding="utf-8"))
    _write_json(marker, {**data, "sequences": names})
    return names


def write_sequence(sequence: SimulatedSequence, root: Path) -> dict[str, Any]:
    """Render and write one sequence; returns what `sequence.json` says."""
    name = sequence_name(sequence.index)
    final, folder = root / name, root / f".{name}.part"
    try:
        if folder.exists():
            shutil.rmtree(folder)
        if final.exists():  # without sequence.json: the rest of an interrupted run
            shutil.rmtree(final)
        return _write(sequence, name, folder, final)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise OutputError(
            f"cannot write {name} to {root} ({(error.strerror or str(error)).lower()}); free some space or choose "
            "another folder, then run the same command again: the sequences that are whole are kept."
        ) from None


def _write(sequence: SimulatedSequence, name: str, folder: Path, final: Path) -> dict[str, Any]:
    for part in ("rgb", "depth", "masks"):
        (folder / part).mkdir(parents=True)
    (folder / "camera.json").write_text(sequence.camera.to_json(), encoding="utf-8")
    _put(folder / "fov.png", sequence.fov.astype(np.uint8) * 255, _PNG)
    poses, seen = [_POSE_HEADER], dict.fromkeys((p.id for p in sequence.polyps), 0)
    points: list[dict[str, Any]] = []
    for item in sequence:
        stem = f"{item.frame.index:06d}"
        if item.jpeg is not None:
            (folder / "rgb" / f"{stem}.jpg").write_bytes(item.jpeg)
        else:
            _put(folder / "rgb" / f"{stem}.png", item.frame.rgb[..., ::-1], _PNG)
        assert item.truth.depth is not None
        assert item.truth.instances is not None
        _put(folder / "depth" / f"{stem}.png", depth_to_units(item.truth.depth.values), _PNG_DEPTH, _DEPTH_TEXT)
        _put(folder / "masks" / f"{stem}.png", item.truth.instances.astype(np.uint8), _PNG)
        if item.instrument is not None:
            (folder / "instruments").mkdir(exist_ok=True)
            _put(folder / "instruments" / f"{stem}.png", item.instrument.astype(np.uint8) * 255, _PNG)
        poses.append(
            f"{item.frame.index},{item.frame.pts_s:.6f}," + ",".join(f"{v:.9g}" for v in item.pose[:3].ravel())
        )
        points += [{"index": item.frame.index, **point} for point in item.points]
        for polyp in item.truth.polyps:
            seen[polyp.id] += 1
    (folder / "poses.csv").write_text("\n".join(poses) + "\n", encoding="utf-8")
    if points:
        text = io.StringIO()
        table = csv.DictWriter(text, _FORCEPS_COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(points)
        (folder / "forceps.csv").write_text(text.getvalue(), encoding="utf-8")
    facts = {"name": name, **sequence.describe()}
    for polyp in facts["polyps"]:
        polyp["visible_frames"] = seen[polyp["id"]]
    _write_json(folder / "sequence.json", facts)
    folder.rename(final)
    return facts


def depth_to_units(depth_mm: np.ndarray) -> np.ndarray:
    """uint16 in 0.01 mm; 0 where there is no value, the largest number where it is farther than 655.35 mm.

    >>> depth_to_units(np.array([[12.345, np.nan, 900.0]], np.float32)).tolist()
    [[1235, 0, 65535]]
    """
    units = np.rint(np.nan_to_num(depth_mm.astype(np.float64), nan=0.0) / DEPTH_UNIT_MM)
    return np.minimum(units, 65535).astype(np.uint16)


def _put(path: Path, pixels: np.ndarray, options: list[int], text: dict[str, str] | None = None) -> None:
    # Encoding first and writing bytes gives an OSError with its reason, which cv2.imwrite would swallow.
    data = cv2.imencode(".png", pixels, options)[1].tobytes()
    path.write_bytes(data if text is None else insert_png_text(data, text))


def _write_json(path: Path, data: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    part.replace(path)
