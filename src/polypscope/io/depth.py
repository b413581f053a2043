"""Depth maps in and out: 16-bit grey PNG or TIFF, whole multiples of a stated unit, 0 where there is no value.

What we write carries unit and kind inside the PNG (text chunks `depth_unit_mm` and `depth_kind`), so that it cannot be
read with a wrong scale. Maps of others carry nothing: their unit must be given. Networks often leave NumPy arrays
behind, which are read as they are: millimetres, unless a unit is given.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polypscope.io.image_headers import png_text
from polypscope.io.images import decode_image, write_image
from polypscope.io.limits import check_pixels
from polypscope.io.paths import require_file
from polypscope.records import DepthKind, DepthMap
from polypscope.records.errors import DamagedInput, OutputError, UsageError

__all__ = ["DEPTH_UNIT_MM", "read_depth", "write_depth"]

DEPTH_UNIT_MM = 0.01
"""Our default unit: 0.01 mm, so 16 bits reach 655.35 mm."""

_UNIT_KEY, _KIND_KEY = "depth_unit_mm", "depth_kind"


def read_depth(
    path: str | Path,
    *,
    unit_mm: float | None = None,
    kind: DepthKind | None = None,
    max_pixels: int | None = None,
) -> DepthMap:
    """Read a depth map.

    Parameters
    ----------
    path
        A 16-bit grey PNG or TIFF, or a NumPy array (.npy) of rows and columns.
    unit_mm
        Millimetres per unit of the stored numbers; taken from the file when None and stated there, 1 for arrays.
        For DepthKind.RELATIVE it is a factor without unit.
    kind
        What the values mean; taken from the file when None and stated there, else along the optical axis.
    max_pixels
        Larger images are refused.
    """
    path = require_file(path, "depth map")
    if path.suffix.lower() == ".npy":
        factor = _unit(path, None, 1.0 if unit_mm is None else unit_mm)
        return DepthMap(_array(path, max_pixels) * np.float32(factor), kind or DepthKind.Z_MM)
    data = path.read_bytes()
    stated = png_text(data)
    unit_mm = _unit(path, stated.get(_UNIT_KEY), unit_mm)
    kind = _kind(path, stated.get(_KIND_KEY), kind)
    raw = decode_image(data, path, max_pixels=max_pixels)
    if raw.dtype != np.uint16 or raw.ndim != 2:
        found = f"{raw.dtype.itemsize * 8}-bit {'grey' if raw.ndim == 2 else 'colour'}"
        raise DamagedInput(f"{path}: expected a 16-bit grey depth map, found {found}; export depth with 16 bits.")
    values = raw.astype(np.float32) * np.float32(unit_mm)
    values[raw == 0] = np.nan
    return DepthMap(values, kind)


def _array(path: Path, max_pixels: int | None) -> NDArray[np.float32]:
    """The numbers in a .npy file, NaN for what is no distance."""
    try:
        stored = np.lib.format.open_memmap(path, mode="r")  # refuses Python objects and headers that claim too much
    except (ValueError, EOFError, OSError):
        raise DamagedInput(f"{path}: expected a NumPy array, found something else; save it with np.save.") from None
    if stored.ndim != 2 or stored.dtype.kind not in "fiu":
        raise DamagedInput(
            f"{path}: expected numbers in rows and columns, found {stored.dtype} of shape {stored.shape}; "
            "save one depth map per file."
        )
    check_pixels(stored.shape[1], stored.shape[0], str(path), max_pixels)
    with np.errstate(over="ignore"):
        values = np.array(stored, np.float32)
    values[~(np.isfinite(values) & (values > 0))] = np.nan
    return values


def write_depth(path: str | Path, depth: DepthMap, *, unit_mm: float = DEPTH_UNIT_MM) -> Path:
    """Write a depth map as 16-bit PNG with unit and kind inside, rounded to the unit; no value becomes 0."""
    if Path(path).suffix.lower() != ".png":
        raise OutputError(f"{path}: expected a name ending in .png, which keeps the unit; found another ending.")
    if not (math.isfinite(unit_mm) and unit_mm > 0):
        raise UsageError(f"unit_mm: expected a number above 0, found {unit_mm}.")
    with np.errstate(invalid="ignore"):
        # A depth below half a unit would round to 0, which means "no value".
        counts = np.maximum(np.rint(depth.values.astype(np.float64) / unit_mm), 1.0)
    largest = float(np.nanmax(counts, initial=0.0))
    if largest > 65535:
        raise OutputError(
            f"{path}: expected depths up to {65535 * unit_mm:g} mm at {unit_mm:g} mm per unit, "
            f"found {largest * unit_mm:g} mm; use a coarser unit."
        )
    raw = np.nan_to_num(counts, nan=0.0).astype(np.uint16)
    return write_image(path, raw, text={_UNIT_KEY: repr(float(unit_mm)), _KIND_KEY: depth.kind.value})


def _unit(path: Path, stated: str | None, given: float | None) -> float:
    if given is not None and not (math.isfinite(given) and given > 0):
        raise UsageError(f"unit_mm: expected a number above 0, found {given}.")
    if stated is None:
        if given is None:
            raise UsageError(
                f"{path}: expected a unit, found none in the file; give it (unit_mm or --depth-unit, millimetres per "
                "stored step)."
            )
        return given
    try:
        inside = float(stated)
    except ValueError:
        inside = math.nan
    if not (math.isfinite(inside) and inside > 0):
        raise DamagedInput(f"{path}: expected a number above 0 as {_UNIT_KEY}, found {stated!r:.40}; write it anew.")
    if given is not None and not math.isclose(given, inside, rel_tol=1e-9):
        raise UsageError(f"{path}: expected unit_mm {inside:g} as stated in the file, found {given:g}; leave it out.")
    return inside


def _kind(path: Path, stated: str | None, given: DepthKind | None) -> DepthKind:
    if stated is None:
        return given or DepthKind.Z_MM
    try:
        inside = DepthKind(stated)
    except ValueError:
        raise DamagedInput(f"{path}: expected a known {_KIND_KEY}, found {stated!r:.40}; write it anew.") from None
    if given is not None and given is not inside:
        raise UsageError(
            f"{path}: expected kind {inside.value} as stated in the file, found {given.value}; leave it out."
        )
    return inside
