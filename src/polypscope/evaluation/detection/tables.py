"""Truth and outputs of a whole study as columns, so that matching, fusion and resampling are array work.

`TruthTable` holds every frame of every video, with the polyps of each frame; `DetectionTable` holds what one method
said about those frames. Both are built from records (`truth_table`, `detection_table`) or from plain columns.
A frame belongs to a video; for stills each image is a frame of one set, and time has no meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.concentration import concentration_ratio
from polypscope.evaluation.detection.regions import FloatArray, IntArray, Regions, RegionsBuilder
from polypscope.records import GroundTruth, Prediction
from polypscope.records.errors import DamagedInput, UsageError, sentence

__all__ = ["DetectionTable", "TruthTable", "TruthTableBuilder", "detection_table", "truth_table"]

StudyKind = Literal["videos", "stills"]


@dataclass(frozen=True, eq=False)
class TruthTable:
    """The annotated frames of a study, F frames of V videos with P polyp instances.

    `video` (F,) number of the video of each frame; `index` (F,) frame index inside its video; `pts_s` (F,) time stamps;
    `height_px`, `width_px` (F,); polyps of frame f are rows `first[f]:first[f + 1]` of `polyp_id`, `paris`, `regions`.
    `identities` says whether `polyp_id` follows a polyp through its video; if not, each video counts as one polyp's,
    as in the MICCAI 2015 study. `timed` says whether `pts_s` are seconds; if not, nothing is told in seconds.
    """

    videos: tuple[str, ...]
    video: IntArray
    index: IntArray
    pts_s: FloatArray
    height_px: IntArray
    width_px: IntArray
    first: IntArray
    polyp_id: IntArray
    paris: tuple[str | None, ...]
    regions: Regions
    kind: StudyKind = "videos"
    identities: bool = True
    timed: bool = True
    frame_names: tuple[str, ...] = ()
    patients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        frames = len(self.video)
        if len(self.first) != frames + 1 or len(self.polyp_id) != len(self.regions):
            raise DamagedInput(
                sentence(
                    "TruthTable",
                    expected=f"{frames + 1} offsets and one id per region",
                    found=f"{len(self.first)} offsets, {len(self.polyp_id)} ids, {len(self.regions)} regions",
                )
            )

    @property
    def frame_count(self) -> int:
        return len(self.video)

    @property
    def polyp_frame(self) -> IntArray:
        """(P,) frame row of each polyp instance."""
        return np.repeat(np.arange(self.frame_count), np.diff(self.first))

    @property
    def polyp_count(self) -> IntArray:
        """(F,) polyp instances in each frame."""
        return np.diff(self.first)

    @property
    def has_polyp(self) -> NDArray[np.bool_]:
        """(F,) frames with at least one polyp."""
        return np.diff(self.first) > 0

    @property
    def interval_s(self) -> FloatArray:
        """(V,) median time between frames of each video; NaN without time stamps and for videos of one frame."""
        out = np.full(len(self.videos), np.nan)
        if self.kind == "videos" and self.timed:
            for v in range(len(self.videos)):
                times = self.pts_s[self.video == v]
                if times.size > 1:
                    out[v] = float(np.median(np.diff(times)))
        return out

    @property
    def duration_s(self) -> FloatArray:
        """(V,) length of each video: last minus first time stamp plus one frame interval; NaN for stills."""
        out = np.full(len(self.videos), np.nan)
        for v, interval in enumerate(self.interval_s):
            times = self.pts_s[self.video == v]
            if np.isfinite(interval):
                out[v] = float(times[-1] - times[0]) + float(interval)
        return out

    @property
    def tracks(self) -> IntArray:
        """(P,) number of the polyp that each instance shows: one per (video, id), or one per video without identities.

        For stills every instance is its own polyp, since nothing says that two images show the same one.
        """
        if self.kind == "stills" and not self.identities:
            return np.arange(len(self.polyp_id))
        video = self.video[self.polyp_frame]
        ids = self.polyp_id if self.identities else np.zeros_like(self.polyp_id)
        if len(ids) == 0:
            return np.zeros(0, dtype=np.int64)
        _, numbers = np.unique(np.stack([video, ids]), axis=1, return_inverse=True)
        return np.asarray(numbers, dtype=np.int64).reshape(-1)

    def polyp_mask(self, row: int) -> NDArray[np.bool_]:
        """All polyps of frame `row` as one bool mask (H, W)."""
        out = np.zeros((int(self.height_px[row]), int(self.width_px[row])), dtype=np.bool_)
        for polyp in range(int(self.first[row]), int(self.first[row + 1])):
            x0, y0, mask = self.regions.mask(polyp)
            y1, x1 = min(y0 + mask.shape[0], out.shape[0]), min(x0 + mask.shape[1], out.shape[1])
            top, left = max(y0, 0), max(x0, 0)
            out[top:y1, left:x1] |= mask[top - y0 : y1 - y0, left - x0 : x1 - x0]
        return out

    def locate(self, video: str, indices: IntArray) -> IntArray:
        """Frame rows of frame `indices` of `video`; -1 where the truth has no such frame."""
        rows = np.flatnonzero(self.video == self.videos.index(video))
        place = np.searchsorted(self.index[rows], indices)
        place = np.minimum(place, max(len(rows) - 1, 0))
        if len(rows) == 0:
            return np.full(len(indices), -1, dtype=np.int64)
        found = self.index[rows[place]] == indices
        return np.where(found, rows[place], -1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class DetectionTable:
    """What one method said: D detections sorted by frame; those of frame f are rows `first[f]:first[f + 1]`.

    `x`, `y` (D,) px; `score` (D,) confidence, NaN where none was given; `regions` boxes or masks when every detection
    has one; `took_part` (V,) videos that the method handed in; `concentration` (F,) share of the map's energy inside
    the polyps, when maps were given.
    """

    name: str
    first: IntArray
    x: FloatArray
    y: FloatArray
    score: FloatArray
    regions: Regions | None
    took_part: NDArray[np.bool_]
    concentration: FloatArray | None = None

    @property
    def frame(self) -> IntArray:
        """(D,) frame row of each detection."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    @property
    def outputs(self) -> IntArray:
        """(F,) detections in each frame."""
        return np.diff(self.first)

    @property
    def has_scores(self) -> bool:
        """Whether every detection carries a confidence (a silent method counts as having none)."""
        return len(self.score) > 0 and not bool(np.isnan(self.score).any())

    @classmethod
    def from_columns(
        cls,
        truth: TruthTable,
        name: str,
        *,
        frame: NDArray[np.integer],
        x: NDArray[np.floating],
        y: NDArray[np.floating],
        score: NDArray[np.floating] | None = None,
        boxes: NDArray[np.floating] | None = None,
        regions: Regions | None = None,
        took_part: NDArray[np.bool_] | None = None,
        concentration: FloatArray | None = None,
    ) -> DetectionTable:
        """Sort detections by frame row (stable, so the order within a frame stays) and index them."""
        frame = np.asarray(frame, dtype=np.int64)
        if frame.size and (frame.min() < 0 or frame.max() >= truth.frame_count):
            raise UsageError(
                sentence(
                    f"detections of {name}",
                    expected=f"frame rows in 0..{truth.frame_count - 1}",
                    found=f"{frame.min()}..{frame.max()}",
                )
            )
        order = np.argsort(frame, kind="stable")
        counts = np.bincount(frame, minlength=truth.frame_count)
        if boxes is not None:
            builder = RegionsBuilder()
            for row in np.asarray(boxes, dtype=np.float64)[order]:
                builder.add_box(float(row[0]), float(row[1]), float(row[2]), float(row[3]))
            regions = builder.build()
        elif regions is not None and not bool((order == np.arange(len(order))).all()):
            regions = replace(
                regions,
                box=regions.box[order],
                crop=regions.crop[order],
                start=regions.start[order],
                area_px=regions.area_px[order],
            )
        scores = np.full(len(frame), np.nan) if score is None else np.asarray(score, dtype=np.float64)[order]
        return cls(
            name=name,
            first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            x=np.asarray(x, dtype=np.float64)[order],
            y=np.asarray(y, dtype=np.float64)[order],
            score=scores,
            regions=regions,
            took_part=np.ones(len(truth.videos), dtype=np.bool_) if took_part is None else took_part,
            concentration=concentration,
        )


class TruthTableBuilder:
    """Collects annotated frames video by video, in order of time; `build()` gives the table."""

    def __init__(self, *, kind: StudyKind = "videos", identities: bool = True, timed: bool = True) -> None:
        self._kind: StudyKind = kind
        self._timed = timed and kind == "videos"
        self._identities = identities
        self._videos: list[str] = []
        self._patients: list[str] = []
        self._frames: list[tuple[int, int, float, int, int]] = []
        self._names: list[str] = []
        self._counts: list[int] = []
        self._ids: list[int] = []
        self._paris: list[str | None] = []
        self._regions = RegionsBuilder()

    def start_video(self, name: str, *, patient: str = "") -> None:
        if name in self._videos:
            raise DamagedInput(f"the truth names video {name!r} twice; give each video a name of its own.")
        self._videos.append(name)
        self._patients.append(patient or name)

    def add_frame(self, index: int, pts_s: float, height_px: int, width_px: int, *, name: str = "") -> None:
        """Add a frame to the video started last; indices and, for videos, time stamps must grow."""
        video = len(self._videos) - 1
        if self._frames and self._frames[-1][0] == video:
            _, previous_index, previous_pts_s, _, _ = self._frames[-1]
            grows = index > previous_index and (self._kind == "stills" or pts_s > previous_pts_s)
            if not grows:
                raise DamagedInput(
                    sentence(
                        f"video {self._videos[-1]!r}",
                        expected="frame indices and time stamps that grow",
                        found=f"frame {index} at {pts_s:g} s after frame {previous_index} at {previous_pts_s:g} s",
                        hint="sort the frames by time",
                    )
                )
        self._frames.append((video, index, pts_s, height_px, width_px))
        self._names.append(name or f"{self._videos[-1]}/{index}")
        self._counts.append(0)

    def add_polyp(
        self,
        polyp_id: int,
        *,
        mask: NDArray[np.bool_] | None = None,
        x0: int = 0,
        y0: int = 0,
        box: tuple[float, float, float, float] | None = None,
        paris: str | None = None,
    ) -> None:
        """Add a polyp to the frame added last: a mask (with the place of its corner) or a box x, y, width, height."""
        if mask is not None:
            self._regions.add_mask(mask, x0=x0, y0=y0)
        elif box is not None:
            self._regions.add_box(*box)
        else:
            raise UsageError("a polyp needs a mask or a box; give one of them.")
        self._counts[-1] += 1
        self._ids.append(polyp_id)
        self._paris.append(paris)

    def build(self) -> TruthTable:
        columns = np.array(self._frames, dtype=np.float64).reshape(-1, 5)
        return TruthTable(
            videos=tuple(self._videos),
            video=columns[:, 0].astype(np.int64),
            index=columns[:, 1].astype(np.int64),
            pts_s=columns[:, 2].copy(),
            height_px=columns[:, 3].astype(np.int64),
            width_px=columns[:, 4].astype(np.int64),
            first=np.concatenate([[0], np.cumsum(self._counts)]).astype(np.int64),
            polyp_id=np.array(self._ids, dtype=np.int64),
            paris=tuple(self._paris),
            regions=self._regions.build(),
            kind=self._kind,
            identities=self._identities,
            timed=self._timed,
            frame_names=tuple(self._names),
            patients=tuple(self._patients),
        )


def truth_table(
    videos: Mapping[str, Iterable[GroundTruth]],
    *,
    kind: StudyKind = "videos",
    instances: Literal["ids", "components"] = "ids",
    identities: bool | None = None,
    timed: bool = True,
    patients: Mapping[str, str] | None = None,
) -> TruthTable:
    """The columns of a study from its records, read once and in order.

    `instances="ids"` takes each label as a polyp, `"components"` the 8-connected components of each frame.
    `identities` says whether a label follows its polyp through the video: by default it does, components never do.
    """
    from scipy.ndimage import find_objects, label

    follows = instances == "ids" if identities is None else identities
    builder = TruthTableBuilder(kind=kind, identities=follows and instances == "ids", timed=timed)
    for video, records in videos.items():
        builder.start_video(video, patient=(patients or {}).get(video, ""))
        for record in records:
            builder.add_frame(record.index, record.pts_s, *record.shape)
            known = {polyp.id: polyp for polyp in record.polyps}
            labels = record.instances
            if labels is None:
                for polyp in record.polyps:
                    if polyp.box is None:
                        raise DamagedInput(
                            f"video {video!r}, frame {record.index}: polyp {polyp.id} has neither mask nor box, so no "
                            "detection can be checked against it; add one of them."
                        )
                    box = polyp.box
                    builder.add_polyp(polyp.id, box=(box.x, box.y, box.width, box.height), paris=polyp.paris)
                continue
            rows_used = np.flatnonzero(labels.any(axis=1))
            if rows_used.size == 0:
                continue
            top = int(rows_used[0])  # most rows are empty, and finding objects is the slow part
            labels = labels[top : int(rows_used[-1]) + 1]
            if instances == "components":
                labels, _ = label(labels > 0, structure=np.ones((3, 3)))
            paris = record.polyps[0].paris if instances == "components" and record.polyps else None
            for number, place in enumerate(find_objects(labels), start=1):
                if place is None:
                    continue
                rows, columns = place
                polyp_paris = known[number].paris if instances == "ids" and number in known else paris
                builder.add_polyp(
                    number, mask=labels[place] == number, x0=columns.start, y0=top + rows.start, paris=polyp_paris
                )
    return builder.build()


def detection_table(truth: TruthTable, name: str, predictions: Mapping[str, Iterable[Prediction]]) -> DetectionTable:
    """The columns of a method from its records; videos that are not among the keys did not take part."""
    unknown = sorted(set(predictions) - set(truth.videos))
    if unknown:
        raise UsageError(
            sentence(
                f"method {name!r}",
                expected=f"videos of the truth ({', '.join(truth.videos[:4])}, …)",
                found=", ".join(map(repr, unknown[:4])),
                hint="rename the videos",
            )
        )
    frame: list[int] = []
    found: list[tuple[float, float, float]] = []
    builder = RegionsBuilder()
    shaped = True
    concentration = np.full(truth.frame_count, np.nan)
    for video, records in predictions.items():
        for record in records:
            row = int(truth.locate(video, np.array([record.index]))[0])
            if row < 0:
                raise UsageError(
                    f"method {name!r}: video {video!r} has no frame {record.index} in the truth; number them as there."
                )
            if record.probability is not None and truth.polyp_count[row]:
                concentration[row] = concentration_ratio(record.probability.values, truth.polyp_mask(row))
            for detection in record.detections:
                frame.append(row)
                score = np.nan if detection.score is None else detection.score
                found.append((*detection.point_xy, score))
                if detection.mask is not None:
                    builder.add_mask(detection.mask.values)
                elif detection.box is not None:
                    box = detection.box
                    builder.add_box(box.x, box.y, box.width, box.height)
                else:
                    shaped = False
    columns = np.array(found, dtype=np.float64).reshape(-1, 3)
    return DetectionTable.from_columns(
        truth,
        name,
        frame=np.array(frame, dtype=np.int64),
        x=columns[:, 0],
        y=columns[:, 1],
        score=columns[:, 2],
        regions=builder.build() if shaped and frame else None,
        took_part=np.array([video in predictions for video in truth.videos]),
        concentration=None if np.isnan(concentration).all() else concentration,
    )
