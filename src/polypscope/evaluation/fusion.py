"""Combining methods: union, saliency map and voting (Bernal et al., IEEE TMI 36(6), 2017, section III-E1).

Union keeps every point of every method. A saliency map adds a Gaussian of width σ at every point, and the frame's one
output is the map's global maximum. Voting builds the map only where at least half of the methods gave an output; with
two methods one is enough, as the paper's own numbers show.

The maximum is exact at pixel resolution but no image is filled: points are truncated to pixels, so the map is a sum of
products of two table entries, and a branch and bound over rectangles finds its largest pixel. No pixel outside the
points' bounding box can win, because moving towards the box raises every term.

Two equal Gaussians merge only when their distance is at most 2σ; beyond that the maxima tie, and a tie policy decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.evaluation.detection.regions import FloatArray, IntArray
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable
from polypscope.records.errors import UsageError, sentence

__all__ = ["Sigma", "Strategy", "TiePolicy", "fuse", "gaussian_table", "saliency_maxima", "sigma_from_polyps"]

Strategy = Literal["union", "saliency", "voting"]
TiePolicy = Literal["all", "first", "confidence"]
STRATEGIES: tuple[Strategy, ...] = ("union", "saliency", "voting")
# Pixels whose values agree to this share of the maximum tie: sums of the same terms in another order differ by less.
TIE_TOLERANCE = 1e-9
_STACK = 256  # halving an image of 2³¹ pixels a side needs 62 levels


@dataclass(frozen=True)
class Sigma:
    """Width of the Gaussians: pixels, or a share of the image diagonal. The paper does not give its value.

    >>> Sigma.parse("24"), Sigma.parse("3%").pixels(300, 400)
    (Sigma(value=24.0, unit='px'), 15.0)
    """

    value: float
    unit: Literal["px", "diagonal"] = "px"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.value) and self.value > 0):
            raise UsageError(
                sentence("sigma", expected="a width above 0", found=f"{self.value:g}", hint='give "24px" or "3%"')
            )

    @classmethod
    def parse(cls, text: str | float) -> Sigma:
        """From a number of pixels ("24", "24px") or a share of the diagonal ("3%")."""
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[-+]?\d+)?)\s*(px|%)?\s*", str(text), re.IGNORECASE)
        if match is None:
            raise UsageError(
                sentence("sigma", expected='pixels ("24px") or a share of the diagonal ("3%")', found=repr(text))
            )
        value = float(match[1])
        return cls(value / 100.0, "diagonal") if match[2] == "%" else cls(value, "px")

    def pixels(self, height_px: float, width_px: float) -> float:
        """The width in pixels for an image of this size."""
        return self.value if self.unit == "px" else self.value * float(np.hypot(height_px, width_px))

    def __str__(self) -> str:
        return f"{self.value:g} px" if self.unit == "px" else f"{100 * self.value:g} % of the diagonal"


def sigma_from_polyps(training: TruthTable) -> Sigma:
    """Half the radius of the median training polyp, as a share of the diagonal.

    Two points merge when they are at most 2σ apart, so points within one polyp radius of each other become one.
    """
    if len(training.regions) == 0:
        raise UsageError("the training truth shows no polyp, so no width can be taken from it; give --sigma in pixels.")
    frames = training.polyp_frame
    diagonal = np.hypot(training.height_px[frames], training.width_px[frames])
    radius = np.sqrt(training.regions.area_px / np.pi)
    return Sigma(float(np.median(radius / diagonal)) / 2.0, "diagonal")


def gaussian_table(sigma_px: float, length: int) -> FloatArray:
    """exp(-d² / 2σ²) for whole distances d = 0 … length - 1."""
    d = np.arange(length, dtype=np.float64)
    return np.asarray(np.exp(-(d**2) / (2.0 * sigma_px**2)))


def saliency_maxima(
    x: NDArray[np.integer], y: NDArray[np.integer], sigma_px: float, weight: FloatArray | None = None
) -> tuple[IntArray, float]:
    """All pixels (k, 2) at which the sum of Gaussians around pixels (x, y) is largest, one per plateau, and its value.

    Adjacent tied pixels (a maximum halfway between two pixels) count once; the upper left one stands for them.

    >>> saliency_maxima(np.array([10, 14]), np.array([5, 5]), 4.0)[0].tolist()
    [[12, 5]]
    >>> saliency_maxima(np.array([10, 90]), np.array([5, 5]), 4.0)[0].tolist()
    [[10, 5], [90, 5]]
    """
    xs, ys = np.asarray(x, dtype=np.int64), np.asarray(y, dtype=np.int64)
    if len(xs) == 0:
        return np.zeros((0, 2), dtype=np.int64), 0.0
    length = int(max(np.ptp(xs), np.ptp(ys))) + 2
    weights = np.ones(len(xs)) if weight is None else np.asarray(weight, dtype=np.float64)
    out = np.empty((4 * len(xs) + 16, 2), dtype=np.int64)
    count, value = _maxima(xs, ys, weights, gaussian_table(sigma_px, length), out, np.empty((_STACK, 5)))
    return out[:count].copy(), float(value)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _value(xs: IntArray, ys: IntArray, weight: FloatArray, table: FloatArray, px: int, py: int) -> float:
    total = 0.0
    for k in range(xs.shape[0]):
        total += weight[k] * table[abs(px - xs[k])] * table[abs(py - ys[k])]
    return total


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _bound(
    xs: IntArray, ys: IntArray, weight: FloatArray, table: FloatArray, x0: int, y0: int, x1: int, y1: int
) -> float:
    """No pixel of the rectangle [x0, x1] × [y0, y1] can exceed this: each term at its nearest pixel."""
    total = 0.0
    for k in range(xs.shape[0]):
        dx = max(x0 - xs[k], 0, xs[k] - x1)
        dy = max(y0 - ys[k], 0, ys[k] - y1)
        total += weight[k] * table[dx] * table[dy]
    return total


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _climb(xs: IntArray, ys: IntArray, weight: FloatArray, table: FloatArray, px: int, py: int) -> float:
    """Value of the pixel reached by steepest ascent over neighbours, with steps that halve: a good lower bound."""
    best = _value(xs, ys, weight, table, px, py)
    x_low, x_high, y_low, y_high = xs.min(), xs.max(), ys.min(), ys.max()
    step = 8
    while step >= 1:
        moved = True
        while moved:
            moved = False
            bx, by = px, py
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    qx, qy = px + dx * step, py + dy * step
                    if qx < x_low or qx > x_high or qy < y_low or qy > y_high:
                        continue
                    v = _value(xs, ys, weight, table, qx, qy)
                    if v > best:
                        best, bx, by, moved = v, qx, qy, True
            px, py = bx, by
        step //= 2
    return best


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _one_per_plateau(out: IntArray, count: int) -> int:
    """Sort by row, then column, and keep the first pixel of each 8-connected group of tied pixels."""
    for i in range(1, count):
        x, y = out[i, 0], out[i, 1]
        j = i - 1
        while j >= 0 and (out[j, 1] > y or (out[j, 1] == y and out[j, 0] > x)):
            out[j + 1, 0], out[j + 1, 1] = out[j, 0], out[j, 1]
            j -= 1
        out[j + 1, 0], out[j + 1, 1] = x, y
    group = np.arange(count)
    changed = True
    while changed:
        changed = False
        for i in range(count):
            for j in range(i + 1, count):
                near = abs(out[i, 0] - out[j, 0]) <= 1 and abs(out[i, 1] - out[j, 1]) <= 1
                if near and group[i] != group[j]:
                    low = min(group[i], group[j])
                    group[i] = low
                    group[j] = low
                    changed = True
    kept = 0
    for i in range(count):
        if group[i] == i:
            out[kept, 0], out[kept, 1] = out[i, 0], out[i, 1]
            kept += 1
    return kept


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _maxima(
    xs: IntArray, ys: IntArray, weight: FloatArray, table: FloatArray, out: IntArray, stack: FloatArray
) -> tuple[int, float]:
    """Branch and bound; `out` (T, 2) receives the maxima in scan order of discovery sorted by row then column."""
    n = xs.shape[0]
    if n == 1:
        out[0, 0], out[0, 1] = xs[0], ys[0]
        return 1, weight[0]
    best = 0.0
    for k in range(n):
        best = max(best, _climb(xs, ys, weight, table, xs[k], ys[k]))
    count = 0
    top = 0
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = xs.min(), ys.min(), xs.max(), ys.max()
    stack[0, 4] = 1e300
    top = 1
    while top > 0:
        top -= 1
        x0, y0, x1, y1 = int(stack[top, 0]), int(stack[top, 1]), int(stack[top, 2]), int(stack[top, 3])
        if stack[top, 4] < best * (1.0 - TIE_TOLERANCE):
            continue
        if x0 == x1 and y0 == y1:
            v = _value(xs, ys, weight, table, x0, y0)
            if v < best * (1.0 - TIE_TOLERANCE):
                continue
            if v > best * (1.0 + TIE_TOLERANCE):
                count = 0
            best = max(best, v)
            if count < out.shape[0]:
                out[count, 0], out[count, 1] = x0, y0
                count += 1
            continue
        if x1 - x0 >= y1 - y0:
            mid = (x0 + x1) // 2
            a0, b0, a1, b1 = x0, y0, mid, y1
            c0, d0, c1, d1 = mid + 1, y0, x1, y1
        else:
            mid = (y0 + y1) // 2
            a0, b0, a1, b1 = x0, y0, x1, mid
            c0, d0, c1, d1 = x0, mid + 1, x1, y1
        first = _bound(xs, ys, weight, table, a0, b0, a1, b1)
        second = _bound(xs, ys, weight, table, c0, d0, c1, d1)
        for turn in range(2):
            # the more promising half is pushed last, so it is looked at first
            use_first = (first < second) == (turn == 0)
            bound = first if use_first else second
            if bound < best * (1.0 - TIE_TOLERANCE):
                continue
            if use_first:
                stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = a0, b0, a1, b1
            else:
                stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = c0, d0, c1, d1
            stack[top, 4] = bound
            top += 1
    return _one_per_plateau(out, count), best


@dataclass(frozen=True, eq=False)
class _Points:
    """Every point of every method in one block, sorted by frame: pixels inside the image, team, weight and score."""

    first: IntArray
    x: IntArray
    y: IntArray
    team: IntArray
    weight: FloatArray
    score: FloatArray


def _gather(truth: TruthTable, methods: Sequence[DetectionTable], one_vote_per_method: bool) -> _Points:
    frame = np.concatenate([m.frame for m in methods])
    team = np.concatenate([np.full(len(m.x), t, dtype=np.int64) for t, m in enumerate(methods)])
    share = [1.0 / np.maximum(m.outputs, 1)[m.frame] if one_vote_per_method else np.ones(len(m.x)) for m in methods]
    order = np.argsort(frame, kind="stable")
    frame = frame[order]
    # The map covers the image; a point outside it votes from the nearest border pixel.
    x = np.concatenate([m.x for m in methods])[order].astype(np.int64)
    y = np.concatenate([m.y for m in methods])[order].astype(np.int64)
    score = np.concatenate([np.nan_to_num(m.score, nan=1.0) for m in methods])[order]
    return _Points(
        first=np.concatenate([[0], np.cumsum(np.bincount(frame, minlength=truth.frame_count))]).astype(np.int64),
        x=np.clip(x, 0, truth.width_px[frame] - 1),
        y=np.clip(y, 0, truth.height_px[frame] - 1),
        team=team[order],
        weight=np.concatenate(share)[order],
        score=score,
    )


def _sigma_tables(truth: TruthTable, sigma: Sigma) -> tuple[FloatArray, IntArray]:
    """One Gaussian table per frame size (k, L), and which of them each frame uses (F,)."""
    sizes, place = np.unique(np.stack([truth.height_px, truth.width_px]), axis=1, return_inverse=True)
    length = int(sizes.max(initial=1)) + 2
    tables = [gaussian_table(sigma.pixels(float(h), float(w)), length) for h, w in sizes.T]
    return np.stack(tables), np.asarray(place, dtype=np.int64).reshape(-1)


def fuse(
    truth: TruthTable,
    methods: Sequence[DetectionTable],
    strategy: Strategy,
    *,
    sigma: Sigma | None = None,
    ties: TiePolicy = "all",
    one_vote_per_method: bool = False,
    name: str = "",
) -> DetectionTable:
    """Combine methods into one. Of `truth` only the frames and their sizes are used, never the polyps.

    Map outputs get the confidence "height of the maximum over the number of methods", at most 1.
    """
    if strategy not in STRATEGIES:
        raise UsageError(sentence("strategy", expected=f"one of {', '.join(STRATEGIES)}", found=repr(strategy)))
    if not methods:
        raise UsageError("a combination needs at least one method; name some.")
    title = name or f"{strategy} ({', '.join(m.name for m in methods)})"
    took_part = np.logical_and.reduce([m.took_part for m in methods])
    if strategy == "union":
        frame = np.concatenate([m.frame for m in methods])
        keep = took_part[truth.video[frame]]
        x, y, score = (np.concatenate([getattr(m, c) for m in methods])[keep] for c in ("x", "y", "score"))
        return DetectionTable.from_columns(truth, title, frame=frame[keep], x=x, y=y, score=score, took_part=took_part)
    if sigma is None:
        raise UsageError(
            f'the strategy {strategy!r} needs a width of the Gaussians; give --sigma, such as "24px" or "3%".'
        )
    points = _gather(truth, methods, one_vote_per_method)
    tables, table_of = _sigma_tables(truth, sigma)
    count, frame, x, y, value = _fuse_kernel(
        points.first, points.x, points.y, points.team, points.weight, points.score,
        tables, table_of, len(methods), strategy == "voting", _TIES.index(ties), took_part[truth.video],
    )  # fmt: skip
    return DetectionTable.from_columns(
        truth,
        title,
        frame=frame[:count],
        x=x[:count].astype(np.float64),
        y=y[:count].astype(np.float64),
        score=np.minimum(value[:count] / len(methods), 1.0),
        took_part=took_part,
    )


_TIES: tuple[TiePolicy, ...] = ("all", "first", "confidence")


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def settle_ties(
    out: IntArray, count: int, policy: int, xs: IntArray, ys: IntArray, score: FloatArray, table: FloatArray
) -> int:
    """Apply the tie policy to the maxima in `out`: 0 all, 1 the first, 2 the one with the most confidence around it."""
    if policy == 0 or count <= 1:
        return count
    chosen = 0
    if policy == 2:
        best = -1.0
        for k in range(count):
            v = _value(xs, ys, score, table, out[k, 0], out[k, 1])
            if v > best * (1.0 + TIE_TOLERANCE):
                best, chosen = v, k
    out[0, 0], out[0, 1] = out[chosen, 0], out[chosen, 1]
    return 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _fuse_kernel(
    first: IntArray,
    xs: IntArray,
    ys: IntArray,
    team: IntArray,
    weight: FloatArray,
    score: FloatArray,
    tables: FloatArray,
    table_of: IntArray,
    teams: int,
    voting: bool,
    ties: int,
    wanted: NDArray[np.bool_],
) -> tuple[int, IntArray, IntArray, IntArray, FloatArray]:
    room = 4 * xs.shape[0] + 16
    frame, out_x, out_y = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    value = np.empty(room)
    stack = np.empty((_STACK, 5))
    total = 0
    for f in range(first.shape[0] - 1):
        a, b = first[f], first[f + 1]
        if a == b or not wanted[f]:
            continue
        present = np.zeros(teams, np.bool_)
        for k in range(a, b):
            present[team[k]] = True
        if voting and 2 * present.sum() < teams:
            continue
        table = tables[table_of[f]]
        out = np.empty((4 * (b - a) + 16, 2), np.int64)
        count, top = _maxima(xs[a:b], ys[a:b], weight[a:b], table, out, stack)
        count = settle_ties(out, count, ties, xs[a:b], ys[a:b], score[a:b], table)
        for k in range(count):
            frame[total], out_x[total], out_y[total], value[total] = f, out[k, 0], out[k, 1], top
            total += 1
    return total, frame, out_x, out_y, value
