"""Tables of known depths: what is read, and every way in which a row can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from polypscope.io.known_depths import read_known_depths
from polypscope.records import KnownDepth
from polypscope.records.errors import DamagedInput, InputError

HEAD = "frame,x_px,y_px,depth_mm"


def _table(path: Path, *rows: str, head: str = HEAD) -> Path:
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def test_points_with_and_without_an_instrument(tmp_path: Path) -> None:
    plain = read_known_depths(_table(tmp_path / "a.csv", "7,10.5,20,31.25", "8.0,1,2,3"))
    assert plain == [KnownDepth(7, 10.5, 20.0, 31.25), KnownDepth(8, 1.0, 2.0, 3.0)]
    touched = _table(tmp_path / "b.csv", "7,1,2,3,0.6,0,-0.8", "9,1,2,3,,,", head=HEAD + ",shaft_x,shaft_y,shaft_z")
    assert [point.shaft for point in read_known_depths(touched)] == [(0.6, 0.0, -0.8), None]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("x,1,2,3", "row 2: expected a whole number as frame"),
        ("1.5,1,2,3", "row 2: expected a whole number as frame"),
        ("inf,1,2,3", "row 2: expected a whole number as frame"),
        ("-1,1,2,3", "row 2: KnownDepth.frame: expected a whole number from 0 on"),
        ("1,,2,3", "row 2: expected a whole number as frame and numbers"),
        ("1,1,2,0", "row 2: KnownDepth.depth_mm: expected a number above 0"),
        ("1,1,nan,3", "row 2: KnownDepth.y_px: expected a finite number"),
        ("1,1,2,3,1,,", "row 2: expected a whole number as frame and numbers"),
        ("1,1,2,3,1,1,1", "row 2: KnownDepth.shaft: expected a unit vector"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: str, words: str) -> None:
    columns = ",shaft_x,shaft_y,shaft_z"
    row += "," * (6 - row.count(","))
    with pytest.raises(DamagedInput, match=words):
        read_known_depths(_table(tmp_path / "a.csv", "1,1,2,3,,,", row, head=HEAD + columns))


def test_a_table_without_rows_or_columns(tmp_path: Path) -> None:
    with pytest.raises(DamagedInput, match="at least one known depth"):
        read_known_depths(_table(tmp_path / "a.csv"))
    with pytest.raises(InputError, match="expected a column 'depth_mm'"):
        read_known_depths(_table(tmp_path / "a.csv", "1,2,3", head="frame,x_px,y_px"))
