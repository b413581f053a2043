"""Forceps annotations from JSON, CSV or a simulation, checked entry by entry, so that a mistake is named by its row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polypscope.io.tables import read_table
from polypscope.records.errors import DamagedInput

__all__ = ["ForcepsEntry", "read_annotations"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ForcepsEntry:
    """One annotator's marks on one polyp: jaws beside it (proximal) or a graduated shaft on it (extension).

    frame: index of the marked frame in its video, where the annotator gave it.
    """

    polyp: str
    annotator: str
    kind: Literal["proximal", "extension"]
    tips: Array
    axis: Array
    minor_px: float | None
    mask: str | None
    marks: Array
    positions_mm: Array | None
    frame: int | None = None


def read_annotations(path: Path) -> list[ForcepsEntry]:
    """Read a JSON list of entries (or an object with "annotations") or a CSV table."""
    if path.suffix.lower() == ".json":
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            raise DamagedInput(f"{path}: expected JSON, found text that is not; export the annotations anew.") from None
        if isinstance(content, dict):
            content = content.get("annotations")
        if not isinstance(content, list) or not all(isinstance(e, dict) for e in content):
            raise DamagedInput(f"{path}: expected a list of annotations, found something else; see the documentation.")
        rows: list[Mapping[str, Any]] = content
    else:
        table = read_table(path, columns=("kind",))
        if {"index", "point", "x_px", "y_px"} <= set(table.columns):
            rows = _simulated(list(table.iter_rows(named=True)))
        else:
            rows = list(read_table(path, columns=("polyp", "kind")).iter_rows(named=True))
    if not rows:
        raise DamagedInput(f"{path}: expected at least one annotation, found none.")
    return [_entry(path, number, row) for number, row in enumerate(rows, start=1)]


def _simulated(points: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Entries from a simulator's `forceps.csv`: one for each frame, polyps named by it; hidden points are left out."""
    frames: dict[int, list[dict[str, Any]]] = {}
    for point in points:
        if point.get("visible", 1):
            frames.setdefault(int(point["index"]), []).append(point)
    rows: list[Mapping[str, Any]] = []
    for index, found in frames.items():
        at = {str(p["point"]): (p["x_px"], p["y_px"]) for p in found}
        row: dict[str, Any] = {"polyp": f"frame {index}", "annotator": "simulator", "frame": index}
        if {"tip_a", "tip_b"} <= set(at):
            (x1, y1), (x2, y2) = at["tip_a"], at["tip_b"]
            rows.append(
                {**row, "kind": "proximal", "x1": x1, "y1": y1, "x2": x2, "y2": y2, "mask": f"masks/{index:06d}.png"}
            )
        elif "tip" in at:
            numbers = sorted(int(k[4:]) for k in at if k.startswith("mark"))
            marks = [list(at["tip"]), *(list(at[f"mark{n}"]) for n in numbers)]
            rows.append(
                {**row, "kind": "extension", "marks": marks, "positions_mm": [0.0, *(5.0 * n for n in numbers)]}
            )
    return rows


def _entry(path: Path, number: int, row: Mapping[str, Any]) -> ForcepsEntry:
    where = f"{path}, entry {number}"
    kind = str(row.get("kind") or "").strip()
    if kind not in ("proximal", "extension"):
        raise DamagedInput(f"{where}: expected kind proximal or extension, found {kind!r}.")
    tips, axis, marks = np.zeros((0, 2)), np.zeros(0), np.zeros((0, 2))
    positions = None
    mask = str(row["mask"]) if row.get("mask") else None
    minor = None if row.get("minor_px") in (None, "") else _number(where, row, "minor_px")
    if kind == "proximal":
        tips = np.array([[_number(where, row, k) for k in pair] for pair in (("x1", "y1"), ("x2", "y2"))])
        if mask is None:
            if row.get("major_px") not in (None, ""):
                axis = np.array(_number(where, row, "major_px"))
            else:
                axis = np.array([[_number(where, row, k) for k in pair] for pair in (("ax", "ay"), ("bx", "by"))])
    else:
        marks = _points(where, row.get("marks"))
        if row.get("positions_mm") not in (None, ""):
            positions = np.array(_numbers(where, "positions_mm", row["positions_mm"]))
    return ForcepsEntry(
        str(row.get("polyp")),
        str(row.get("annotator") or "one"),
        kind,
        tips,
        axis,
        minor,
        mask,
        marks,
        positions,  # type: ignore[arg-type]
        _frame(where, row.get("frame")),
    )


def _frame(where: str, value: Any) -> int | None:
    if value in (None, ""):
        return None
    try:
        if int(value) == float(value) >= 0:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise DamagedInput(f"{where}: expected a whole number from 0 on as frame, found {value!r:.60}.")


def _number(where: str, row: Mapping[str, Any], key: str) -> float:
    try:
        return float(row[key])
    except (KeyError, TypeError, ValueError):
        raise DamagedInput(f"{where}: expected a number as {key}, found {row.get(key)!r}.") from None


def _numbers(where: str, key: str, value: Any) -> list[float]:
    parts = value.replace(",", " ").split() if isinstance(value, str) else value
    try:
        return [float(v) for v in parts]
    except (TypeError, ValueError):
        raise DamagedInput(f"{where}: expected numbers as {key}, found {value!r:.60}.") from None


def _points(where: str, value: Any) -> Array:
    pairs = [p for p in value.split(";") if p.strip()] if isinstance(value, str) else value
    try:
        points = [_numbers(where, "marks", pair) for pair in pairs]
        return np.array(points, dtype=np.float64).reshape(len(points), 2)
    except (TypeError, ValueError):
        raise DamagedInput(f'{where}: expected marks as "x y; x y; ...", found {value!r:.60}.') from None
