"""Known depths of single points, such as forceps contacts, from a table."""

from __future__ import annotations

from pathlib import Path

from polypscope.io.tables import read_table
from polypscope.records.errors import DamagedInput, RecordError
from polypscope.records.known_depth import KnownDepth

__all__ = ["COLUMNS", "SHAFT", "read_known_depths"]

COLUMNS = ("frame", "x_px", "y_px", "depth_mm")
SHAFT = ("shaft_x", "shaft_y", "shaft_z")


def read_known_depths(path: str | Path) -> list[KnownDepth]:
    """Read a table with the columns frame, x_px, y_px and depth_mm, as `polypscope measure forceps` writes it.

    Where an instrument touches the point, shaft_x, shaft_y and shaft_z may say how it lies.
    """
    found = []
    for number, row in enumerate(read_table(path, columns=COLUMNS).iter_rows(named=True), start=1):
        try:
            frame = int(row["frame"])
            if frame != float(row["frame"]):
                raise ValueError
            x_px, y_px, depth_mm = (float(row[name]) for name in COLUMNS[1:])
            told = [row[name] for name in SHAFT if row.get(name) not in (None, "")]
            shaft = tuple(float(value) for value in told) or None
            if len(told) not in (0, len(SHAFT)):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            shown = ", ".join(f"{name} {row[name]!r}" for name in COLUMNS)
            raise DamagedInput(
                f"{path}, row {number}: expected a whole number as frame and numbers in the other columns, found "
                f"{shown:.120}."
            ) from None
        try:
            found.append(KnownDepth(frame, x_px, y_px, depth_mm, shaft))  # type: ignore[arg-type]
        except RecordError as error:
            raise DamagedInput(f"{path}, row {number}: {error}") from None
    if not found:
        raise DamagedInput(f"{path}: expected at least one known depth, found none.")
    return found
