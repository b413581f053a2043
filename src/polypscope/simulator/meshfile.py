"""Surfaces and centrelines from files: legacy VTK polydata, Wavefront OBJ, STL; JSON or CSV points.

Readers are strict and say in one sentence what is wrong; nothing is guessed about units.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import DamagedInput, MissingInput, UsageError

__all__ = ["read_centreline", "read_mesh"]

Array = NDArray[np.float64]
_LARGEST_BYTES = 1 << 30


def read_mesh(path: Path) -> tuple[Array, NDArray[np.int32]]:
    """Vertices [V, 3] and triangles [F, 3] of a .vtk, .obj or .stl file, in the file's own units."""
    readers = {".vtk": _read_vtk, ".obj": _read_obj, ".stl": _read_stl}
    _must_exist(path, "mesh")
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"--mesh: expected a .vtk, .obj or .stl file, found {path.name}; convert it first.")
    try:
        vertices, faces = reader(path)
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise DamagedInput(
            f"{path}: expected triangles as {path.suffix.lower()[1:].upper()}, found something else ({error}); "
            "export it again."
        ) from None
    if not len(faces) or not np.isfinite(vertices).all() or faces.min() < 0 or faces.max() >= len(vertices):
        raise DamagedInput(
            f"{path}: expected triangles that refer to finite vertices, found {len(faces)} triangles over "
            f"{len(vertices)} vertices that do not fit; export it again."
        )
    return vertices, faces.astype(np.int32)


def read_centreline(path: Path) -> Array:
    """Points [n, 3] from JSON ({"points": [[x, y, z], ...]} or the bare list) or from CSV with three columns."""
    _must_exist(path, "centerline")
    try:
        text = path.read_text(encoding="utf-8")
        if text.lstrip()[:1] in "{[":
            data = json.loads(text)
            points = np.asarray(data["points"] if isinstance(data, dict) else data, np.float64)
        else:
            rows = [line.replace(";", ",").split(",") for line in text.splitlines() if line.strip()]
            if rows and not _is_number(rows[0][0]):
                rows = rows[1:]
            points = np.asarray(rows, np.float64)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise DamagedInput(
            f"{path}: expected points as JSON or CSV with x, y, z, found {error!r}; check the file."
        ) from None
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < 10 or not np.isfinite(points).all():
        raise DamagedInput(
            f"{path}: expected at least 10 finite points with x, y, z, found shape {points.shape}; check it."
        )
    moved = np.concatenate([[True], np.linalg.norm(np.diff(points, axis=0), axis=1) > 0])
    return points[moved]


def _must_exist(path: Path, option: str) -> None:
    if not path.is_file():
        raise MissingInput(f"--{option}: expected a file, found nothing at {path}; check the path.")
    if path.stat().st_size > _LARGEST_BYTES:
        raise UsageError(f"--{option}: expected a file below 1 GB, found {path}; thin the surface out first.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_vtk(path: Path) -> tuple[Array, NDArray[np.int64]]:
    words = path.read_text(encoding="ascii").split()
    upper = [w.upper() for w in words[:40]]
    if "ASCII" not in upper or "POLYDATA" not in upper:
        raise ValueError("it is not legacy ASCII polydata")
    at = words.index("POINTS")
    count = int(words[at + 1])
    vertices = np.array(words[at + 3 : at + 3 + 3 * count], np.float64).reshape(count, 3)
    at = words.index("POLYGONS")
    count = int(words[at + 1])
    rows = np.array(words[at + 3 : at + 3 + 4 * count], np.int64).reshape(count, 4)
    if np.any(rows[:, 0] != 3):
        raise ValueError("some polygons are not triangles")
    return vertices, rows[:, 1:]


def _read_obj(path: Path) -> tuple[Array, NDArray[np.int64]]:
    vertices, faces = [], []
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            parts = line.split()
            if parts[:1] == ["v"]:
                vertices.append([float(v) for v in parts[1:4]])
            elif parts[:1] == ["f"]:
                if len(parts) != 4:
                    raise ValueError("some faces are not triangles")
                index = [int(p.split("/")[0]) for p in parts[1:]]
                faces.append([i - 1 if i > 0 else len(vertices) + i for i in index])
    return np.array(vertices, np.float64).reshape(-1, 3), np.array(faces, np.int64).reshape(-1, 3)


def _read_stl(path: Path) -> tuple[Array, NDArray[np.int64]]:
    data = path.read_bytes()
    count = struct.unpack_from("<I", data, 80)[0] if len(data) >= 84 else -1
    if len(data) == 84 + 50 * count:
        record = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("extra", "<u2")])
        corners = np.frombuffer(data, record, count, 84)["corners"].reshape(-1, 3).astype(np.float64)
    else:
        words = data.decode("ascii").split()
        at = [i for i, w in enumerate(words) if w == "vertex"]
        corners = np.array([words[i + 1 : i + 4] for i in at], np.float64).reshape(-1, 3)
    # STL repeats every corner: equal positions are one vertex again.
    vertices, index = np.unique(np.round(corners, 5), axis=0, return_inverse=True)
    return vertices, index.reshape(-1, 3)
