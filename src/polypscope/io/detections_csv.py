"""Detections as CSV, in the forms the MICCAI 2015 organisers and their successors use, and in our own.

Accepted are `frame,x,y[,confidence[,class]]`, `frame,x,y,width,height[,confidence]` and `frame,has_polyp[,confidence]`,
with a header or none, in any column order when there is a header, with spaces, with commas, semicolons, tabs or blanks
between. What had to be assumed is kept in `DetectionsFile.assumptions`, for the caller to show. Everything else is
refused with the file, the line and what to do. x is the column, y the row, both 0-based.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, NoReturn

from polypscope.io.paths import require_file, write_text
from polypscope.records import Box, Detection
from polypscope.records.errors import DamagedInput, InputError

__all__ = [
    "DetectionKind",
    "DetectionLayout",
    "DetectionRow",
    "DetectionsFile",
    "read_detections_csv",
    "write_detections_csv",
]


class DetectionLayout(StrEnum):
    """Column order of a file without header."""

    AUTO = "auto"
    FRAME_POINT = "frame,x,y,confidence,class"
    FRAME_BOX = "frame,x,y,width,height,confidence"
    FRAME_PRESENCE = "frame,has_polyp,confidence"
    POINT = "x,y,confidence"  # the n-th row belongs to the n-th frame; never guessed, because rows may be missing


class DetectionKind(StrEnum):
    """What one row says."""

    POINT = "point"
    BOX = "box"
    PRESENCE = "presence"


@dataclass(frozen=True)
class DetectionRow:
    """One line. `frame` is a number where all frames of the file are numbers, else the name of an image."""

    frame: int | str
    x: float | None = None
    y: float | None = None
    score: float | None = None
    box: Box | None = None
    label: str | None = None
    video: str | None = None
    pts_s: float | None = None
    present: bool | None = None
    line: int = 0

    def detection(self) -> Detection:
        """The row as a record."""
        if self.x is None or self.y is None:
            raise InputError(f"line {self.line}: expected a location, found presence only; use a file with x and y.")
        return Detection(point_xy=(self.x, self.y), score=self.score, box=self.box)


@dataclass(frozen=True)
class DetectionsFile:
    """A detection file as read; rows in the file's order."""

    path: Path
    kind: DetectionKind
    rows: tuple[DetectionRow, ...]
    assumptions: tuple[str, ...] = ()

    @property
    def has_scores(self) -> bool:
        """True when every row has a confidence (a curve needs them all)."""
        return bool(self.rows) and all(row.score is not None for row in self.rows)

    @property
    def videos(self) -> tuple[str, ...]:
        """Names in the video column, each once, in order of appearance; empty without such a column."""
        return tuple(dict.fromkeys(row.video for row in self.rows if row.video is not None))

    def by_frame(self, video: str | None = None) -> dict[int | str, list[DetectionRow]]:
        """Rows grouped by frame, of one video or of all rows when None."""
        grouped: dict[int | str, list[DetectionRow]] = {}
        for row in self.rows:
            if video is None or row.video is None or row.video == video:
                grouped.setdefault(row.frame, []).append(row)
        return grouped

    def check_frames(self, known: Collection[int | str], video: str | None = None) -> None:
        """Refuse a row whose frame is not one of `known`, naming file and line."""
        for frame, rows in self.by_frame(video).items():
            if frame in known:
                continue
            line = rows[0].line
            if isinstance(frame, int):
                numbers = sorted(value for value in known if isinstance(value, int))
                expected = f"a frame from {numbers[0]} to {numbers[-1]}" if numbers else "the name of an image"
                hint = "correct the frame, or say which number the first frame has"
            else:
                expected = "the name of an image of the ground truth"
                hint = _did_you_mean(frame, [str(value) for value in known], "check the name")
            where = "" if video is None else f" of video {video!r}"
            raise InputError(f"{self.path}, line {line}: expected {expected}{where}, found {frame!r}; {hint}.")

    def check_videos(self, known: Collection[str]) -> None:
        """Refuse a video name that is not one of `known`, naming file and line."""
        for row in self.rows:
            if row.video is not None and row.video not in known:
                hint = _did_you_mean(row.video, sorted(known), "check the name")
                raise InputError(
                    f"{self.path}, line {row.line}: expected a video of the ground truth, found {row.video!r}; {hint}."
                )


_ALIASES: dict[str, tuple[str, ...]] = {
    "video": ("video", "videoname", "videoid", "sequence", "clip", "case"),
    "frame": ("frame", "frameindex", "frameid", "framenumber", "framenr", "frameno", "index", "image", "imageid",
              "imagename", "img", "file", "filename", "name"),
    "pts_s": ("ptss", "pts", "times", "time", "seconds", "timestamp"),
    "x": ("x", "cx", "xc", "centerx", "centrex", "pointx", "col", "column", "xcenter"),
    "y": ("y", "cy", "yc", "centery", "centrey", "pointy", "row", "ycenter"),
    "score": ("score", "confidence", "conf", "probability", "prob", "p"),
    "label": ("label", "class", "category", "classname", "classid"),
    "has_polyp": ("haspolyp", "polyp", "present", "presence", "ispolyp", "detected"),
    "box_x": ("boxx", "xmin", "left", "x1", "xtl", "bboxx", "minx"),
    "box_y": ("boxy", "ymin", "top", "y1", "ytl", "bboxy", "miny"),
    "box_width": ("boxwidth", "width", "w", "bboxwidth"),
    "box_height": ("boxheight", "height", "h", "bboxheight"),
    "box_x2": ("xmax", "right", "x2", "xbr", "maxx"),
    "box_y2": ("ymax", "bottom", "y2", "ybr", "maxy"),
}  # fmt: skip
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}
_HEADERLESS = {
    DetectionLayout.FRAME_POINT: ("frame", "x", "y", "score", "label"),
    DetectionLayout.FRAME_BOX: ("frame", "box_x", "box_y", "box_width", "box_height", "score"),
    DetectionLayout.FRAME_PRESENCE: ("frame", "has_polyp", "score"),
    DetectionLayout.POINT: ("x", "y", "score"),
}
_TRUE, _FALSE = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")
_EXPECTED = "columns frame, x, y and optionally confidence (or frame, has_polyp)"
_DECIMAL_COMMA = re.compile(r"^[+-]?\d+,\d+$")


def read_detections_csv(
    path: str | Path,
    *,
    layout: DetectionLayout | str = DetectionLayout.AUTO,
    first_frame: int = 0,
    duplicates: Literal["refuse", "keep"] = "refuse",
) -> DetectionsFile:
    """Read a detection file.

    Parameters
    ----------
    path
        The CSV file.
    layout
        Column order of a file without header; guessed, and the guess stated, when "auto".
    first_frame
        Number that the file gives to the first frame (0, or 1 for tools that count from one); it is subtracted.
    duplicates
        What to do with a row that repeats an earlier one in all columns.
    """
    path = require_file(path, "CSV file of detections")
    assumptions: list[str] = []
    lines = _split(path, _decode(path), assumptions)
    if not lines:
        raise InputError(
            f"{path}, line 1: expected {_EXPECTED}, found only blank lines; "
            "for a method without any detection write the header line 'frame,x,y,confidence' alone."
        )
    columns = _header(path, *lines[0])
    if columns is None:
        columns = _guess(path, lines, DetectionLayout(layout), assumptions)
    else:
        del lines[0]
        if not lines:
            assumptions.append("there is no row below the header: taken as no detection at all")
    columns = _resolve_box(path, columns, assumptions)
    rows = [_row(path, line, fields, columns, position) for position, (line, fields) in enumerate(lines)]
    rows = _number_frames(path, rows, first_frame)
    if duplicates == "refuse":
        _refuse_duplicates(path, rows)
    kind = (
        DetectionKind.PRESENCE
        if "has_polyp" in columns
        else DetectionKind.BOX
        if "box_x" in columns
        else DetectionKind.POINT
    )
    return DetectionsFile(path, kind, tuple(rows), tuple(assumptions))


def write_detections_csv(path: str | Path, rows: Iterable[DetectionRow]) -> Path:
    """Write rows in our own form (header; only the columns that are used), atomically.

    What `read_detections_csv` reads back is equal but for the line numbers.
    """
    rows = list(rows)
    presence = any(row.present is not None for row in rows)
    columns = ["frame", "has_polyp"] if presence else ["frame", "x", "y"]
    if any(row.video is not None for row in rows):
        columns.insert(0, "video")
    optional = {"pts_s": "pts_s", "score": "score", "box_x": "box", "label": "label"}
    for column, attribute in optional.items():
        if any(getattr(row, attribute) is not None for row in rows):
            columns += ["box_x", "box_y", "box_width", "box_height"] if column == "box_x" else [column]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row, column) for column in columns] for row in rows)
    return write_text(path, buffer.getvalue())


def _cell(row: DetectionRow, column: str) -> str:
    value: object
    if column.startswith("box_"):
        value = None if row.box is None else getattr(row.box, column.removeprefix("box_"))
    elif column == "has_polyp":
        value = int(bool(row.present))
    else:
        value = getattr(row, column)
    return "" if value is None else str(value)


def _decode(path: Path) -> str:
    raw = path.read_bytes()
    if b"\0" in raw[:4096] and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DamagedInput(f"{path}, line 1: expected a text file of detections, found binary data; give a CSV file.")
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DamagedInput(f"{path}, line {line}: expected UTF-8 text, found other bytes; save it as UTF-8.") from None


def _split(path: Path, text: str, assumptions: list[str]) -> list[tuple[int, list[str]]]:
    """Lines that are neither blank nor comments, with their numbers, as stripped fields."""
    numbered = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip(" \t,;") and not line.lstrip().startswith("#")
    ]
    if not numbered:
        return []
    first = numbered[0][1]
    separator = max(",;\t", key=lambda mark: first.count(mark) if mark != "," or ";" not in first else 0)
    if separator not in first:
        if len(first.split()) < 2:
            raise InputError(
                f"{path}, line {numbered[0][0]}: expected {_EXPECTED}, found one column; separate by commas."
            )
        assumptions.append("columns are separated by blanks")
        return [(number, line.split()) for number, line in numbered]
    if separator != ",":
        assumptions.append(f"columns are separated by {'semicolons' if separator == ';' else 'tabs'}")
    out = []
    for number, line in numbered:
        try:
            fields = [field.strip() for field in next(csv.reader([line], delimiter=separator, strict=True))]
        except csv.Error as error:
            raise DamagedInput(f"{path}, line {number}: expected comma-separated values, found: {error}.") from None
        out.append((number, fields))
    if separator == ";" and any(_DECIMAL_COMMA.match(field) for _, fields in out for field in fields):
        assumptions.append("a comma inside a number is a decimal comma")
        out = [(n, [f.replace(",", ".") if _DECIMAL_COMMA.match(f) else f for f in fields]) for n, fields in out]
    return out


def _header(path: Path, line: int, fields: list[str]) -> tuple[str, ...] | None:
    names = [re.sub(r"[^a-z0-9]", "", field.lower()) for field in fields]
    known = [_CANONICAL.get(name, "") for name in names]
    # A header has no number in it; a first row of data has at least one.
    if any(_is_number(field) for field in fields):
        return None
    if "has_polyp" in known and "x" not in known:
        wanted: tuple[str, ...] = ("frame", "has_polyp")
    elif "box_x" in known or "box_width" in known:
        wanted = ("frame",)
    else:
        wanted = ("frame", "x", "y")
    missing = [name for name in wanted if name not in known]
    if missing:
        _refuse(
            path, line, _EXPECTED, f"{', '.join(fields)} (no {' and no '.join(missing)})", "rename or add the columns"
        )
    twice = sorted({name for name in known if name and known.count(name) > 1})
    if twice:
        _refuse(path, line, "each column once", f"{', '.join(fields)} ({twice[0]} twice)", "rename or remove one")
    return tuple(known)


def _guess(
    path: Path, lines: Sequence[tuple[int, list[str]]], layout: DetectionLayout, assumptions: list[str]
) -> tuple[str, ...]:
    count = len(lines[0][1])
    column = list(zip(*(fields for _, fields in lines if len(fields) == count), strict=True))
    if layout is DetectionLayout.AUTO:
        binary = count in (2, 3) and all(value.lower() in _TRUE + _FALSE for value in column[1])
        if binary and (count == 2 or all(_in_unit(value) for value in column[2])):
            layout = DetectionLayout.FRAME_PRESENCE
        elif count in (3, 4) or (count == 5 and all(_in_unit(value) for value in column[3])):
            layout = DetectionLayout.FRAME_POINT
        elif count in (5, 6):
            layout = DetectionLayout.FRAME_BOX
        else:
            _refuse(
                path, lines[0][0], _EXPECTED, f"{count} columns without a header", "add a header line that names them"
            )
        if layout is DetectionLayout.FRAME_POINT and count == 3 and _looks_like_point_only(column):
            _refuse(
                path,
                lines[0][0],
                "a frame in the first column",
                f"{', '.join(lines[0][1])}, which looks like x, y, confidence",
                "add the frame, or read it with the layout 'x,y,confidence' if row n is frame n",
            )
    names = _HEADERLESS[layout]
    if count > len(names):
        _refuse(path, lines[0][0], f"at most {len(names)} columns ({layout})", str(count), "choose another layout")
    assumptions.append(f"no header: columns are {', '.join(names[:count])}")
    if layout is DetectionLayout.POINT:
        assumptions.append("row n belongs to frame n")
    return names[:count]


def _looks_like_point_only(column: Sequence[tuple[str, ...]]) -> bool:
    fractional = any(_is_number(value) and not float(value).is_integer() for value in column[0])
    scores = all(_in_unit(value) for value in column[2]) and any(not float(v).is_integer() for v in column[2])
    return fractional or scores


def _resolve_box(path: Path, columns: tuple[str, ...], assumptions: list[str]) -> tuple[str, ...]:
    present = set(columns)
    if "box_width" in present and "box_x" not in present and {"x", "y", "box_height"} <= present:
        assumptions.append("x, y with width, height: taken as the upper left corner of a box")
        renamed = {"x": "box_x", "y": "box_y"}
        columns = tuple(renamed.get(name, name) for name in columns)
        present = set(columns)
    corner = {"box_x", "box_y"} <= present
    extent = {"box_width", "box_height"} <= present or {"box_x2", "box_y2"} <= present
    if ({"box_x", "box_y", "box_x2", "box_y2", "box_width", "box_height"} & present) and not (corner and extent):
        _refuse(
            path,
            1,
            "a box as xmin, ymin with width, height or xmax, ymax",
            ", ".join(sorted(present - {""})),
            "add columns",
        )
    return columns


def _row(path: Path, line: int, fields: list[str], columns: tuple[str, ...], position: int) -> DetectionRow:
    while len(fields) > len(columns) and not fields[-1]:
        fields = fields[:-1]  # a comma at the end of the line
    required = max((i for i, name in enumerate(columns) if name in ("frame", "x", "y", "has_polyp")), default=0) + 1
    if not required <= len(fields) <= len(columns):
        _refuse(path, line, f"{len(columns)} columns", str(len(fields)), "correct the line")
    cell = {name: value for name, value in zip(columns, fields, strict=False) if name}
    frame = cell.get("frame", str(position))
    if not frame:
        _refuse(path, line, "a frame number or image name", "an empty field", "fill it in")
    score = _optional(path, line, "confidence", cell.get("score", ""))
    if score is not None and not 0.0 <= score <= 1.0:
        _refuse(path, line, "a confidence from 0 to 1", cell["score"], "rescale it")
    common = {
        "frame": frame,
        "score": score,
        "video": cell.get("video") or None,
        "label": cell.get("label") or None,
        "pts_s": _optional(path, line, "time stamp", cell.get("pts_s", "")),
        "line": line,
    }
    if "has_polyp" in columns and "x" not in columns:
        word = cell["has_polyp"].lower()
        if word not in _TRUE + _FALSE:
            _refuse(path, line, "has_polyp as 0 or 1", repr(cell["has_polyp"]), "correct it")
        return DetectionRow(**common, present=word in _TRUE)  # type: ignore[arg-type]
    box = _box(path, line, cell) if "box_x" in columns else None
    if "x" in columns:
        x, y = (_coordinate(path, line, name, cell[name]) for name in ("x", "y"))
    elif box is not None:
        x, y = box.x + box.width / 2, box.y + box.height / 2
    else:
        _refuse(path, line, "a box or a point", "neither", "fill it in, or leave the line out")
    return DetectionRow(**common, x=x, y=y, box=box)  # type: ignore[arg-type]


def _box(path: Path, line: int, cell: dict[str, str]) -> Box | None:
    if not any(value for name, value in cell.items() if name.startswith("box_")):
        return None
    x, y = (_coordinate(path, line, name, cell.get(name, "")) for name in ("box_x", "box_y"))
    if "box_x2" in cell:
        x2, y2 = (_coordinate(path, line, name, cell.get(name, "")) for name in ("box_x2", "box_y2"))
        width, height = x2 - x, y2 - y
    else:
        width, height = (_coordinate(path, line, name, cell.get(name, "")) for name in ("box_width", "box_height"))
    if width <= 0 or height <= 0:
        _refuse(
            path, line, "a box wider and higher than 0", f"{width:g}×{height:g}", "correct it, or leave the line out"
        )
    return Box(x, y, width, height)


def _number_frames(path: Path, rows: list[DetectionRow], first_frame: int) -> list[DetectionRow]:
    """Frames as numbers where all of them are numbers ('12' and pandas' '12.0'), else as names."""
    names = [str(row.frame) for row in rows]
    if not all(_is_number(name) for name in names):
        return rows
    out = []
    for row, name in zip(rows, names, strict=True):
        value = float(name)
        if not math.isfinite(value) or not value.is_integer():
            _refuse(path, row.line, "a whole frame number", name, "correct it")
        index = int(value) - first_frame
        if index < 0:
            _refuse(path, row.line, f"a frame number of {first_frame} or more", name, "correct it")
        out.append(_with_frame(row, index))
    return out


def _with_frame(row: DetectionRow, frame: int) -> DetectionRow:
    return DetectionRow(
        frame, row.x, row.y, row.score, row.box, row.label, row.video, row.pts_s, row.present, row.line
    )  # fmt: skip


def _refuse_duplicates(path: Path, rows: list[DetectionRow]) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for row in rows:
        key = (
            (row.video, row.frame)
            if row.present is not None
            else (row.video, row.frame, row.x, row.y, row.score, row.box, row.label)
        )
        first = seen.setdefault(key, row.line)
        if first != row.line:
            what = "each frame once" if row.present is not None else "each detection once"
            _refuse(path, row.line, what, f"a repetition of line {first}", "remove one of the two lines")


def _coordinate(path: Path, line: int, name: str, text: str) -> float:
    if not _is_number(text) or not math.isfinite(float(text)):
        found = repr(text) if text else "an empty field"
        _refuse(path, line, f"a number for {name}", found, "correct it, or leave the line out if there is no detection")
    value = float(text)
    if value < 0:
        _refuse(path, line, f"{name} of 0 or more", text, "correct it, or leave the line out if there is no detection")
    return value


def _optional(path: Path, line: int, name: str, text: str) -> float | None:
    if not text:
        return None
    if not _is_number(text) or not math.isfinite(float(text)):
        _refuse(path, line, f"a number as {name}", repr(text), "correct it or leave it empty")
    return float(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _in_unit(text: str) -> bool:
    return _is_number(text) and 0.0 <= float(text) <= 1.0


def _did_you_mean(word: str, known: Sequence[str], otherwise: str) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}"
    return f"there is {', '.join(known[:5])}{' …' if len(known) > 5 else ''}" if known else otherwise


def _refuse(path: Path, line: int, expected: str, found: str, hint: str) -> NoReturn:
    raise InputError(f"{path}, line {line}: expected {expected}, found {found}; {hint}.")
