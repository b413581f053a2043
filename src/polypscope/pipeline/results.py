"""Results under their final names, made from the journal alone: one row per polyp, one per frame, masks, pictures.

polyps.csv, polyps.json   one row for each polyp
frames.parquet            one row for each analysed frame
detections.csv            one row for each polyp shown in a frame, as `polypscope evaluate detection` reads it
masks.json                COCO run-length masks of every shown polyp at frame size, with its number as `track_id`
thumbnails/               pictures of the best frames with the outline drawn in
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from polypscope import DISCLAIMER
from polypscope.io.detections_csv import DetectionRow, write_detections_csv
from polypscope.io.paths import atomic_path, write_bytes, write_text
from polypscope.pipeline.best import Kept
from polypscope.pipeline.engine import Memory, Settings, Told
from polypscope.pipeline.findings import Findings, Found, Working, rounded
from polypscope.pipeline.follow import Tracked
from polypscope.pipeline.locate import outline
from polypscope.pipeline.overlay import colour_of
from polypscope.pipeline.store import Partial
from polypscope.records import SizeEstimate

__all__ = ["BestFrame", "PolypResult", "Results", "write_results"]


@dataclass(frozen=True)
class BestFrame:
    """A frame that shows a polyp well; outlines are polygons of (x, y) in the pixels of `jpeg`."""

    index: int
    pts_s: float
    score: float
    truncated: bool
    distance_mm: float | None
    size: SizeEstimate | None
    jpeg: bytes = field(repr=False)
    picture_shape: tuple[int, int] = (0, 0)
    outlines: tuple[tuple[tuple[float, float], ...], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class PolypResult:
    """One polyp of a video. seen: stretches (start_s, end_s) in which it was detected without a longer gap."""

    id: int
    first_index: int
    first_s: float
    last_index: int
    last_s: float
    alarm_index: int
    alarm_s: float
    frames: int
    confidence: float
    size: SizeEstimate | None
    measured_frames: int
    reason: str
    seen: tuple[tuple[float, float], ...]
    best: tuple[BestFrame, ...]

    def row(self) -> dict[str, Any]:
        """The row of polyps.csv."""
        size = self.size
        interval = None if size is None else size.interval_mm
        return {
            "polyp": self.id,
            "first_s": rounded(self.first_s, 3),
            "last_s": rounded(self.last_s, 3),
            "first_frame": self.first_index,
            "last_frame": self.last_index,
            "alarm_s": rounded(self.alarm_s, 3),
            "alarm_frame": self.alarm_index,
            "frames_seen": self.frames,
            "best_frame": self.best[0].index if self.best else None,
            "best_s": rounded(self.best[0].pts_s, 3) if self.best else None,
            "confidence": self.confidence,
            "long_mm": None if size is None else rounded(size.long_mm, 2),
            "short_mm": None if size is None else rounded(size.short_mm, 2),
            "low_mm": None if interval is None else rounded(interval[0], 2),
            # Of a polyp that no frame shows whole, only a lower bound is known, and so no class.
            "high_mm": None if interval is None or size.partial else rounded(interval[1], 2),
            "level": None if size is None else size.level,
            "bin_mm": None if size is None or size.partial else size.bin,
            "method": None if size is None else size.method,
            "frames_measured": self.measured_frames,
            "flags": " ".join(size.flags) if size is not None else "",
            "not_measured_because": self.reason,
        }


@dataclass(frozen=True)
class Results:
    """All that a report shows of one video."""

    source: str
    shape: tuple[int, int]
    fps: float
    frames: int
    duration_s: float
    polyps: tuple[PolypResult, ...]
    flag_spans: dict[str, tuple[tuple[float, float], ...]]
    cuts_s: tuple[float, ...]
    flag_counts: dict[str, int]


def write_results(
    partial: Partial, out: Path, name: str, fps: float, working: Working, settings: Settings, memory: Memory
) -> Results:
    """Write everything that the journal of a finished run holds, and return what the report needs."""
    out.mkdir(parents=True, exist_ok=True)
    table = _FrameTable()
    gap_s = max(0.5, 3 * settings.every / fps)
    seen: dict[int, _Spans] = {}
    flags: dict[str, _Spans] = {}
    cuts = []
    detections: list[DetectionRow] = []
    step_s = settings.every / fps
    replayed = Memory(working, settings)
    with atomic_path(out / "masks.json") as temporary, _MaskFile(temporary, name, working) as masks:
        for findings in partial.replay(working.shape):
            told = replayed.take(findings)
            table.add(told)
            masks.add(told)
            for polyp in told.shown:
                if polyp.found is not None:
                    detections.append(_detection(findings, polyp.id, polyp.found, working))
                    seen.setdefault(polyp.id, _Spans(gap_s)).add(findings.pts_s, findings.pts_s)
            for flag in findings.flags:
                flags.setdefault(flag, _Spans(2.5 * step_s)).add(findings.pts_s, findings.pts_s + step_s)
            if findings.cut:
                cuts.append(findings.pts_s)
    table.write(out / "frames.parquet")
    write_detections_csv(out / "detections.csv", detections)
    polyps = tuple(_polyp(track, memory, partial, working, seen) for track in memory.tracks())
    _write_polyps(out, name, polyps)
    _write_thumbnails(out / "thumbnails", polyps)
    last = memory.last
    return Results(
        name,
        working.frame_shape,
        fps,
        memory.frames,
        0.0 if last is None else last.pts_s + step_s,
        polyps,
        {flag: tuple(spans.spans) for flag, spans in sorted(flags.items())},
        tuple(cuts),
        {flag: spans.count for flag, spans in sorted(flags.items())},
    )


def _detection(findings: Findings, polyp: int, found: Found, working: Working) -> DetectionRow:
    x, y = (rounded(v, 1) for v in working.to_frame(*found.detection.point_xy))
    return DetectionRow(findings.index, x, y, found.score, label=str(polyp), pts_s=findings.pts_s)


class _Spans:
    """Joins moments into stretches; a gap of more than `gap_s` begins a new one."""

    def __init__(self, gap_s: float) -> None:
        self.spans: list[tuple[float, float]] = []
        self.count = 0
        self._gap_s = gap_s

    def add(self, start: float, end: float) -> None:
        self.count += 1
        if self.spans and start - self.spans[-1][1] <= self._gap_s:
            self.spans[-1] = (self.spans[-1][0], max(end, self.spans[-1][1]))
        else:
            self.spans.append((start, end))


class _FrameTable:
    """Columns of frames.parquet, gathered frame by frame."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {
            name: []
            for name in (
                "frame",
                "pts_s",
                "flags",
                "cut",
                "sharpness",
                "candidates",
                "best_score",
                "polyps",
                "detected",
            )
        }

    def add(self, told: Told) -> None:
        findings, columns = told.findings, self._columns
        columns["frame"].append(findings.index)
        columns["pts_s"].append(findings.pts_s)
        columns["flags"].append(list(findings.flags))
        columns["cut"].append(findings.cut)
        columns["sharpness"].append(findings.sharpness)
        columns["candidates"].append(len(findings.found))
        columns["best_score"].append(findings.found[0].score if findings.found else None)
        columns["polyps"].append([polyp.id for polyp in told.shown])
        columns["detected"].append([polyp.id for polyp in told.shown if polyp.found is not None])

    def write(self, path: Path) -> None:
        import polars as pl

        schema = {
            "frame": pl.Int64,
            "pts_s": pl.Float64,
            "flags": pl.List(pl.String),
            "cut": pl.Boolean,
            "sharpness": pl.Float64,
            "candidates": pl.Int32,
            "best_score": pl.Float64,
            "polyps": pl.List(pl.Int32),
            "detected": pl.List(pl.Int32),
        }
        with atomic_path(path) as temporary:
            pl.DataFrame(self._columns, schema=schema).write_parquet(temporary)


class _MaskFile:
    """masks.json, written as it grows: a long video's masks never are in memory together."""

    def __init__(self, path: Path, name: str, working: Working) -> None:
        self._stream = path.open("w", encoding="utf-8")
        self._working = working
        self._images: list[str] = []
        self._next = 1
        info = {"description": f"Polypscope masks of {name}. {DISCLAIMER}"}
        categories = [{"id": 1, "name": "polyp"}]
        self._stream.write(f'{{"info": {json.dumps(info)},\n"categories": {json.dumps(categories)},\n"annotations": [')

    def __enter__(self) -> _MaskFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            images = ",\n".join(self._images)
            self._stream.write(f'\n],\n"images": [\n{images}\n]}}\n')
        self._stream.close()

    def add(self, told: Told) -> None:
        height, width = self._working.frame_shape
        index = told.findings.index
        detected = [polyp for polyp in told.shown if polyp.found is not None]
        for polyp in detected:
            found = polyp.found
            assert found is not None
            code = self._working.mask_to_frame(found.mask, found.box)
            box = self._working.box_to_frame(found.box)
            entry = {
                "id": self._next,
                "image_id": index,
                "category_id": 1,
                "track_id": polyp.id,
                "score": found.score,
                "area": code.area_px,
                "bbox": [rounded(v, 2) for v in (box.x, box.y, box.width, box.height)],
                "iscrowd": 0,
                "segmentation": {"size": [height, width], "counts": code.to_string()},
            }
            self._stream.write((",\n" if self._next > 1 else "\n") + json.dumps(entry))
            self._next += 1
        if detected:
            image = {"id": index, "width": width, "height": height, "file_name": f"frame_{index:08d}"}
            image["pts_s"] = told.findings.pts_s
            self._images.append(json.dumps(image))


def _polyp(track: Tracked, memory: Memory, partial: Partial, working: Working, seen: dict[int, _Spans]) -> PolypResult:
    assert track.id is not None
    size = memory.sizes.final(track.id)
    scores = sorted(track.scores, reverse=True)
    upper = scores[: max(1, len(scores) // 2)]
    best = [_best(kept, partial, working) for kept in memory.best.of(track.id)]
    spans = tuple(seen[track.id].spans) if track.id in seen else ()
    return PolypResult(
        id=track.id,
        first_index=track.indices[0],
        first_s=track.first_s,
        last_index=track.indices[-1],
        last_s=spans[-1][1] if spans else track.first_s,
        alarm_index=track.alarm_index or 0,
        alarm_s=track.alarm_s or 0.0,
        frames=len(track.indices),
        confidence=rounded(float(np.mean(upper)), 3),
        size=size,
        measured_frames=memory.sizes.count(track.id),
        reason="" if size is not None else (memory.sizes.reason(track.id) or "no frame could be measured"),
        seen=spans,
        best=tuple(frame for frame in best if frame is not None),
    )


def _best(kept: Kept, partial: Partial, working: Working) -> BestFrame | None:
    jpeg = partial.frame(kept.index)
    if jpeg is None:
        return None
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    height, width = picture.shape[:2]
    sx, sy = width / working.shape[1], height / working.shape[0]
    outlines = []
    for contour in outline(kept.found.mask):
        points = (contour + 0.5) * (sx, sy)
        outlines.append(tuple((rounded(x, 1), rounded(y, 1)) for x, y in points))
    return BestFrame(
        kept.index,
        kept.pts_s,
        kept.found.score,
        kept.found.truncated,
        kept.found.distance_mm,
        kept.found.size,
        jpeg,
        (height, width),
        tuple(outlines),
    )


def _write_polyps(out: Path, name: str, polyps: tuple[PolypResult, ...]) -> None:
    import polars as pl

    from polypscope.io.tables import write_table

    rows = [polyp.row() for polyp in polyps]
    text = (str, ("bin_mm", "method", "flags", "not_measured_because"))
    whole = ("polyp", "first_frame", "last_frame", "alarm_frame", "frames_seen", "best_frame", "frames_measured")
    names = list(_EMPTY.row())
    schema = {name: pl.String if name in text[1] else pl.Int64 if name in whole else pl.Float64 for name in names}
    write_table(out / "polyps.csv", pl.DataFrame(rows, schema=schema))
    data = {
        "source": name,
        "disclaimer": DISCLAIMER,
        "polyps": [
            {
                **polyp.row(),
                "flags": [] if polyp.size is None else list(polyp.size.flags),
                "seen_s": [[rounded(a, 3), rounded(b, 3)] for a, b in polyp.seen],
                "best_frames": [
                    {"frame": f.index, "pts_s": f.pts_s, "score": f.score, "picture": _thumbnail(polyp.id, rank)}
                    for rank, f in enumerate(polyp.best)
                ],
            }
            for polyp in polyps
        ],
    }
    write_text(out / "polyps.json", json.dumps(data, indent=1) + "\n")


_EMPTY = PolypResult(0, 0, 0.0, 0, 0.0, 0, 0.0, 0, 0.0, None, 0, "", (), ())


def _thumbnail(polyp: int, rank: int) -> str:
    return f"thumbnails/polyp_{polyp:03d}_{rank + 1}.jpg"


def _write_thumbnails(folder: Path, polyps: tuple[PolypResult, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for polyp in polyps:
        for rank, frame in enumerate(polyp.best):
            picture = cv2.imdecode(np.frombuffer(frame.jpeg, np.uint8), cv2.IMREAD_COLOR)
            for points in frame.outlines:
                fixed = np.rint(np.array(points) * 16 - 8).astype(np.int32)[:, None]
                cv2.polylines(picture, [fixed], True, colour_of(polyp.id)[::-1], 2, cv2.LINE_AA, 4)
            _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 90])
            write_bytes(folder.parent / _thumbnail(polyp.id, rank), bytes(data))
