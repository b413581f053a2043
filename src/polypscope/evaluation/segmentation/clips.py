"""From frames to clips to a data set: averaging as each protocol does it, in memory that does not grow with frames.

Every frame becomes one `profile`, a vector of all its curves, scalars and pixel counts. A clip keeps the sum of its
profiles; any score of any set of clips is a function of a mean profile. Bootstrap replicates are therefore one matrix
product (see `polypscope.evaluation.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.segmentation.frame import FrameScore, score_frame
from polypscope.evaluation.segmentation.order import case_of, natural
from polypscope.evaluation.segmentation.overlap import Counts
from polypscope.evaluation.segmentation.spec import BINARY, CURVES, POOLED, SUNSEG, TOOLBOX, Spec, curve_of
from polypscope.records.errors import InputError

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

ROW_MEASURES = (*TOOLBOX, *BINARY, "boundaryF", "hausdorff95_px")
"""What is kept of each frame."""
_N_CURVES = len(CURVES) * 256
_COUNTS = slice(_N_CURVES + len(ROW_MEASURES), _N_CURVES + len(ROW_MEASURES) + 4)
PROFILE = _COUNTS.stop
_UNITS_PER_CLIP = 512


class Pair(Protocol):
    """A frame's truth and prediction, read when asked for. `name` is for rows and messages.

    `load` gives truth, prediction and remarks for the frame's row; an `InputError` from it leaves the frame out.
    """

    @property
    def name(self) -> str: ...

    def load(self) -> tuple[Bytes, Bytes, tuple[str, ...]]: ...


@dataclass(frozen=True, eq=False)
class FramePair:
    """A pair that is in memory already: uint8 (H, W) images."""

    name: str
    truth: Bytes
    prediction: Bytes

    def load(self) -> tuple[Bytes, Bytes, tuple[str, ...]]:
        return self.truth, self.prediction, ()


@dataclass(frozen=True, eq=False)
class PairedClip:
    """Pairs in the protocol's order. `is_video`: neighbours in the list are neighbours in time."""

    name: str
    pairs: Sequence[Pair]
    subset: str = ""
    case: str = ""
    attributes: tuple[str, ...] = ()
    is_video: bool = True

    def evaluated(self, spec: Spec) -> Sequence[Pair]:
        """The pairs that remain when the protocol has dropped the ends; an error in words if none does."""
        kept = self.pairs[spec.drop_first : len(self.pairs) - spec.drop_last]
        if not kept:
            dropped = f"the first {spec.drop_first} and last {spec.drop_last} are dropped"
            raise InputError(
                f"clip {self.name}: expected at least {spec.drop_first + spec.drop_last + 1} frames ({dropped} by "
                f"protocol {spec.name}), found {len(self.pairs)}; leave the clip out or use another protocol."
            )
        return kept


@dataclass(frozen=True, eq=False)
class ClipScores:
    """Scores of one clip.

    total: sum of the profiles, (PROFILE,). units: sums for resampling, (u, PROFILE), with `unit_frames` frames each:
    the whole clip for a video, single images (or a few together when there are many) for stills.
    names, values, remarks: one entry per frame, values being (n, len(ROW_MEASURES)). flicker: mean absolute change of
    IoU between consecutive frames, NaN where there is no next frame. skipped: why frames were left out, in words.
    """

    name: str
    subset: str
    case: str
    attributes: tuple[str, ...]
    is_video: bool
    total: Floats
    units: Floats
    unit_frames: NDArray[np.int64]
    names: tuple[str, ...]
    values: Floats
    remarks: tuple[tuple[str, ...], ...]
    spread: Floats = field(default_factory=lambda: np.zeros(len(ROW_MEASURES)))
    flicker: float = float("nan")
    skipped: tuple[str, ...] = ()

    @property
    def frames(self) -> int:
        return int(self.unit_frames.sum())

    @property
    def mean(self) -> Floats:
        """Mean profile of the clip's frames."""
        return self.total / self.frames

    def rows(self) -> Iterator[dict[str, Any]]:
        """One plain row per frame."""
        where = {"subset": self.subset, "case": self.case, "clip": self.name}
        for name, values, remarks in zip(self.names, self.values, self.remarks, strict=True):
            scores = dict(zip(ROW_MEASURES, values.tolist(), strict=True))
            yield {**where, "frame": name, **scores, "remarks": "; ".join(remarks)}

    def without_rows(self) -> ClipScores:
        """The same scores without what grows with the number of frames."""
        return replace(self, names=(), values=self.values[:0], remarks=())


def profile(score: FrameScore) -> Floats:
    """All of a frame's scores as one vector."""
    vector = np.empty(PROFILE)
    vector[:_N_CURVES] = score.curves.array.ravel()
    means, maxima = score.curves.array.mean(axis=1).tolist(), score.curves.array.max(axis=1).tolist()
    for i, name in enumerate(ROW_MEASURES):
        reduced = curve_of(name)
        if reduced:
            vector[_N_CURVES + i] = (means if reduced[1] == "mean" else maxima)[CURVES.index(reduced[0])]
        elif score.outlines is None and name in ("boundaryF", "hausdorff95_px"):
            vector[_N_CURVES + i] = np.nan
        else:
            vector[_N_CURVES + i] = score.value(name)
    c = score.counts
    vector[_COUNTS] = c.tp, c.fp, c.fn, c.tn
    return vector


def score_clip(clip: PairedClip, spec: Spec = SUNSEG) -> ClipScores:
    """Score the frames of one clip that the protocol keeps."""
    pairs = clip.evaluated(spec)
    n_units = 1 if clip.is_video else min(len(pairs), _UNITS_PER_CLIP)
    units, unit_frames = np.zeros((n_units, PROFILE)), np.zeros(n_units, np.int64)
    names: list[str] = []
    rows: list[Floats] = []
    remarks: list[tuple[str, ...]] = []
    skipped: list[str] = []
    for pair in pairs:
        try:
            truth, prediction, said = pair.load()
        except InputError as error:
            skipped.append(str(error))
            continue
        score = score_frame(truth, prediction, spec)
        vector = profile(score)
        unit = len(rows) % n_units
        units[unit] += vector
        unit_frames[unit] += 1
        names.append(pair.name)
        rows.append(vector[_N_CURVES : _COUNTS.start].copy())
        remarks.append((*said, *score.remarks))
    if not rows:
        raise InputError(f"clip {clip.name}: expected frames to score, found none that can be read; {skipped[0]}")
    values = np.array(rows)
    iou = values[:, ROW_MEASURES.index("mIoU")]
    return ClipScores(
        name=clip.name,
        subset=clip.subset,
        case=clip.case or case_of(clip.name),
        attributes=clip.attributes,
        is_video=clip.is_video,
        total=units.sum(axis=0),
        units=units[unit_frames > 0],
        unit_frames=unit_frames[unit_frames > 0],
        names=tuple(names),
        values=values,
        remarks=tuple(remarks),
        spread=((values - values.mean(axis=0)) ** 2).sum(axis=0),
        flicker=float(np.abs(np.diff(iou)).mean()) if clip.is_video and len(rows) > 1 else float("nan"),
        skipped=tuple(skipped),
    )


def join(parts: Sequence[ClipScores]) -> ClipScores:
    """Parts of one folder of stills, scored apart, as one. (A video is always scored in one piece.)"""
    if len(parts) == 1:
        return parts[0]
    n, mean, spread = 0, np.zeros(len(ROW_MEASURES)), np.zeros(len(ROW_MEASURES))
    for part in parts:  # Chan's update of a sum of squared deviations
        m, part_mean = part.frames, part.mean[_N_CURVES : _COUNTS.start]
        spread = spread + part.spread + (part_mean - mean) ** 2 * n * m / (n + m)
        mean = mean + (part_mean - mean) * m / (n + m)
        n += m
    return replace(
        parts[0],
        total=np.sum([part.total for part in parts], axis=0),
        units=np.concatenate([part.units for part in parts]),
        unit_frames=np.concatenate([part.unit_frames for part in parts]),
        names=tuple(name for part in parts for name in part.names),
        values=np.concatenate([part.values for part in parts]),
        remarks=tuple(remark for part in parts for remark in part.remarks),
        spread=spread,
        skipped=tuple(text for part in parts for text in part.skipped),
    )


@dataclass(frozen=True, eq=False)
class Summary:
    """Scores of a set of clips: by measure, with the standard deviation over clips (or frames, as averaged)."""

    values: dict[str, float]
    deviations: dict[str, float]
    curves: Floats
    clips: int
    frames: int

    def printed(self, decimals: int = 3) -> dict[str, str]:
        """As the toolbox prints its table: rounded by numpy, then written with that many decimals."""
        return {name: f"{np.round(value, decimals):.{decimals}f}" for name, value in self.values.items()}


@dataclass(frozen=True, eq=False)
class Result:
    """Scores of one method on many clips, and what is derived from them."""

    spec: Spec
    clips: tuple[ClipScores, ...]

    @property
    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per frame, clip by clip."""
        return (row for clip in self.clips for row in clip.rows())

    def summary(self, keep: Callable[[ClipScores], bool] = lambda clip: True) -> Summary:
        """The scores of the clips for which `keep` is true."""
        return summarise([clip for clip in self.clips if keep(clip)], self.spec)

    def subsets(self) -> list[str]:
        """Names of the subsets, in order of first sight."""
        return list(dict.fromkeys(clip.subset for clip in self.clips))

    def attributes(self) -> list[str]:
        """Attributes that any clip has, in order of first sight."""
        return list(dict.fromkeys(a for clip in self.clips for a in clip.attributes))


def evaluate(clips: Iterable[PairedClip], spec: Spec = SUNSEG) -> Result:
    """Score clips one after another. Only sums are kept of each frame besides its row."""
    scored = tuple(score_clip(clip, spec) for clip in clips)
    if not scored:
        raise InputError("evaluation: expected at least one clip, found none; check the folder that was given.")
    return Result(spec, tuple(sorted(scored, key=lambda c: (natural(c.subset), natural(c.name)))))


def columns_of(measure: str, after_averaging: bool = True) -> slice:
    """The part of a profile that a measure depends on; resampling then need not carry the rest."""
    reduced = curve_of(measure)
    if reduced and after_averaging:
        start = CURVES.index(reduced[0]) * 256
        return slice(start, start + 256)
    if measure in POOLED:
        return _COUNTS
    row = _N_CURVES + ROW_MEASURES.index(measure)
    return slice(row, row + 1)


def reduce_columns(mean: Floats, measure: str, after_averaging: bool = True) -> Floats:
    """A measure of its own columns of mean profiles, (..., columns) -> (...)."""
    reduced = curve_of(measure)
    if reduced and after_averaging:
        return np.asarray(mean.mean(axis=-1) if reduced[1] == "mean" else mean.max(axis=-1))
    if measure not in POOLED:
        return np.asarray(mean[..., 0])
    tp, fp, fn, _ = np.moveaxis(mean, -1, 0)
    part, whole = {
        "pooledDice": (2 * tp, 2 * tp + fp + fn),
        "pooledIoU": (tp, tp + fp + fn),
        "pooledRecall": (tp, tp + fn),
        "pooledPrecision": (tp, tp + fp),
    }[measure]
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) > 0))


def reduce_profile(mean: Floats, measure: str, after_averaging: bool = True) -> Floats:
    """A measure of mean profiles, (..., PROFILE) -> (...)."""
    return reduce_columns(mean[..., columns_of(measure, after_averaging)], measure, after_averaging)


def summarise(clips: Sequence[ClipScores], spec: Spec) -> Summary:
    """Average clips (or their frames) and reduce the averaged curves."""
    if not clips:
        raise InputError("summary: expected at least one clip, found none; check the subset or attribute asked for.")
    total = np.sum([clip.total for clip in clips], axis=0)
    frames = sum(clip.frames for clip in clips)
    means = np.array([clip.mean for clip in clips])
    mean = means.mean(axis=0) if spec.average == "clips" else total / frames
    values = {name: float(reduce_profile(mean, name, spec.reduce_after_averaging)) for name in ROW_MEASURES}
    values |= {name: float(reduce_profile(total, name)) for name in POOLED}
    flicker = np.array([clip.flicker for clip in clips])
    known = ~np.isnan(flicker)
    values["flicker"] = float(flicker[known].mean()) if known.any() else float("nan")
    return Summary(values, _deviations(clips, spec), mean[:_N_CURVES].reshape(len(CURVES), 256), len(clips), frames)


def _deviations(clips: Sequence[ClipScores], spec: Spec) -> dict[str, float]:
    """Standard deviations (n - 1) of each row measure, over clips' means or over frames."""
    rows = slice(_N_CURVES, _COUNTS.start)
    if spec.average == "clips":
        means = np.array([clip.mean[rows] for clip in clips])
        deviation = means.std(axis=0, ddof=1) if len(clips) > 1 else np.full(len(ROW_MEASURES), np.nan)
    else:
        n, mean, spread = 0, np.zeros(len(ROW_MEASURES)), np.zeros(len(ROW_MEASURES))
        for clip in clips:
            m, part = clip.frames, clip.mean[rows]
            spread = spread + clip.spread + (part - mean) ** 2 * n * m / (n + m)
            mean, n = mean + (part - mean) * m / (n + m), n + m
        deviation = np.sqrt(spread / (n - 1)) if n > 1 else np.full(len(ROW_MEASURES), np.nan)
    return dict(zip(ROW_MEASURES, deviation.tolist(), strict=True))


def pooled_counts(clips: Iterable[ClipScores]) -> Counts:
    """Pixel counts of all frames together, at the binary threshold."""
    counts = np.sum([clip.total[_COUNTS] for clip in clips], axis=0)
    return Counts(*(round(v) for v in counts))
