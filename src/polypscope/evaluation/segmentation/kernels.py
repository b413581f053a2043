"""The loops over pixels, compiled: everything a frame's scores need in one pass over what matters.

Three ideas make the published measures cheap without changing their values:
- every threshold measure is a function of two histograms of grey levels, inside and outside the truth;
- the region part of S needs the same histograms per quadrant around the truth's centroid;
- weighted F needs the nearest truth pixel only within three pixels of the truth, and elsewhere only the squared
  distance, an integer whose weight is a table and is zero to double precision beyond `REACH_PX`.

`plain.py` has the same functions in numpy, for machines without numba and as the oracle of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    F = TypeVar("F", bound=Callable[..., Any])

    def njit(**options: Any) -> Callable[[F], F]: ...
else:
    import numba

    def njit(**options):
        def compile_later(function):
            try:
                return numba.njit(**options)(function)
            except RuntimeError:  # neither the package nor the user has a folder that can keep compiled code
                return numba.njit(**{**options, "cache": False})(function)

        return compile_later


Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REACH_PX = 265  # 0.5 ** (265 / 5) is below half a unit in the last place of 2
REACH2 = REACH_PX * REACH_PX
FEW = 96  # pixels of a row up to which a plain search for the nearest column is the faster one
PAD = 8  # room around the truth for the 7x7 window and the nearest-pixel search

_FAST = {"cache": True, "nogil": True, "boundscheck": False}
# Sums of many terms may be added in any order here: they are compared at 1e-9, not bit by bit.
_SUMS = {**_FAST, "fastmath": {"reassoc", "nsz", "contract"}}


@njit(**_FAST)
def truth_moments(truth: Bytes, above: int) -> Ints:
    """Pixels above `above`: [count, sum of x, sum of y, first row, last row, first column, last column]."""
    height, width = truth.shape
    columns = np.zeros(width, np.int32)
    count, sum_x, sum_y = 0, 0, 0
    first_row, last_row = height, -1
    for y in range(height):
        row = truth[y]
        in_row = np.int32(0)
        for x in range(width):
            in_row += row[x] > above
        if in_row:
            for x in range(width):
                columns[x] += row[x] > above
            count += int(in_row)
            sum_y += int(in_row) * y
            first_row = min(first_row, y)
            last_row = y
    first_column, last_column = width, -1
    for x in range(width):
        if columns[x]:
            sum_x += int(columns[x]) * x
            first_column = min(first_column, x)
            last_column = x
    return np.array([count, sum_x, sum_y, first_row, last_row, first_column, last_column], np.int64)


@njit(**_FAST)
def quadrant_histograms(truth: Bytes, prediction: Bytes, above: int, split_y: int, split_x: int) -> Ints:
    """Grey levels of the prediction, (4, 2, 256): quadrants LT, RT, LB, RB; outside and inside the truth."""
    height, width = truth.shape
    result = np.zeros((4, 512), np.int64)
    # Four lanes: neighbouring pixels are mostly equal, and one counter would wait for its own last store.
    lanes = np.zeros((4, 512), np.uint32)
    for quadrant in range(4):
        y0, y1 = (0, split_y) if quadrant < 2 else (split_y, height)
        x0, x1 = (0, split_x) if quadrant % 2 == 0 else (split_x, width)
        lanes[:] = 0
        for y in range(y0, y1):
            t, p = truth[y], prediction[y]
            x = x0
            while x + 4 <= x1:
                lanes[0, p[x] + (np.intp(t[x] > above) << 8)] += np.uint32(1)
                lanes[1, p[x + 1] + (np.intp(t[x + 1] > above) << 8)] += np.uint32(1)
                lanes[2, p[x + 2] + (np.intp(t[x + 2] > above) << 8)] += np.uint32(1)
                lanes[3, p[x + 3] + (np.intp(t[x + 3] > above) << 8)] += np.uint32(1)
                x += 4
            while x < x1:
                lanes[0, p[x] + (np.intp(t[x] > above) << 8)] += np.uint32(1)
                x += 1
        for lane in range(4):
            for i in range(512):
                result[quadrant, i] += lanes[lane, i]
    return result.reshape(4, 2, 256)


def _nearest_offsets() -> NDArray[np.int8]:
    """Offsets (row, column) that reach any pixel of a 7x7 window, nearest first; ties by column, then row.

    That order is how `scipy.ndimage.distance_transform_edt` chooses among equally near pixels.
    """
    reach = [(dy * dy + dx * dx, dx, dy) for dy in range(-4, 5) for dx in range(-4, 5)]
    inside = sorted(entry for entry in reach if 0 < entry[0] <= 18)
    return np.array([(dy, dx) for _, dx, dy in inside], np.int8)


def _falloff() -> Floats:
    """0.5 ** (d / 5) by squared distance; 0 for the truth itself and beyond reach."""
    table: Floats = np.exp(np.log(0.5) / 5.0 * np.sqrt(np.arange(REACH2 + 1, dtype=np.float64)))
    table[0] = table[REACH2] = 0.0
    return table


OFFSETS = _nearest_offsets()
FALLOFF = _falloff()
GAUSS = np.exp(-(np.arange(-3.0, 4.0) ** 2) / 50.0)
GAUSS /= GAUSS.sum()


@njit(**_SUMS)
def _inside_error(truth: Bytes, prediction: Bytes, above: int, level: Floats, box: Ints, offsets: Any, g: Any) -> float:
    """Sum over the truth of min(error, error smoothed over 7x7); `box` is first row, last row, first, last column."""
    height, width = truth.shape
    top, left = box[0] - PAD, box[2] - PAD
    rows, columns = box[1] - box[0] + 1 + 2 * PAD, box[3] - box[2] + 1 + 2 * PAD
    inside = np.zeros((rows, columns), np.uint8)
    error = np.zeros((rows, columns), np.float64)
    for y in range(PAD, rows - PAD):
        t, p, i, e = truth[y + top], prediction[y + top], inside[y], error[y]
        for x in range(PAD, columns - PAD):
            i[x] = t[x + left] > above
        for x in range(PAD, columns - PAD):
            e[x] = (1.0 - level[p[x + left]]) * i[x]
    # Around each border pixel of the truth, what lies outside takes the error of its nearest truth pixel.
    done = inside.copy()
    around = np.empty(columns, np.uint8)
    for y in range(PAD, rows - PAD):
        up, here, down = inside[y - 1], inside[y], inside[y + 1]
        for x in range(PAD, columns - PAD):
            a = up[x - 1] + up[x] + up[x + 1] + here[x - 1] + here[x + 1] + down[x - 1] + down[x] + down[x + 1]
            around[x] = here[x] * np.uint8(a != 8)
        for x in range(PAD, columns - PAD):
            if around[x]:
                for yy in range(y - 3, y + 4):
                    if not 0 <= yy + top < height:
                        continue
                    for xx in range(max(x - 3, -left), min(x + 4, width - left)):
                        if not done[yy, xx]:
                            done[yy, xx] = 1
                            for k in range(offsets.shape[0]):
                                ny, nx = yy + offsets[k, 0], xx + offsets[k, 1]
                                if inside[ny, nx]:
                                    error[yy, xx] = error[ny, nx]
                                    break
    total = 0.0
    across = np.zeros((7, columns), np.float64)
    for y in range(PAD - 3, rows - PAD + 3):
        e, into = error[y], across[y % 7]
        for x in range(PAD, columns - PAD):
            into[x] = g[3] * e[x] + (
                g[0] * (e[x - 3] + e[x + 3]) + g[1] * (e[x - 2] + e[x + 2]) + g[2] * (e[x - 1] + e[x + 1])
            )
        if y < PAD + 3:
            continue
        c = y - 3
        a0, a1, a2, a3 = across[(c + 4) % 7], across[(c + 5) % 7], across[(c + 6) % 7], across[c % 7]
        a4, a5, a6 = across[(c + 1) % 7], across[(c + 2) % 7], across[(c + 3) % 7]
        e, i = error[c], inside[c]
        for x in range(PAD, columns - PAD):
            smooth = g[3] * a3[x] + (g[0] * (a0[x] + a6[x]) + g[1] * (a1[x] + a5[x]) + g[2] * (a2[x] + a4[x]))
            total += min(e[x], smooth) * i[x]
    return total


@njit(**_SUMS)
def _outside_falloff(truth: Bytes, prediction: Bytes, above: int, level: Floats, box: Ints, falloff: Floats) -> float:
    """Sum over what is outside the truth of level * 0.5 ** (distance / 5)."""
    height, width = truth.shape
    row0, row1 = max(0, box[0] - REACH_PX), min(height, box[1] + 1 + REACH_PX)
    column0, column1 = max(0, box[2] - REACH_PX), min(width, box[3] + 1 + REACH_PX)
    first, n = box[2], box[3] - box[2] + 1
    far = 1 << 14
    # Distance to the truth along each column of its box, downwards and then upwards.
    vertical = np.empty((row1 - row0, n), np.int32)
    for r in range(row1 - row0):
        t, v = truth[r + row0], vertical[r]
        if r == 0:
            for x in range(n):
                v[x] = 0 if t[x + first] > above else far
        else:
            before = vertical[r - 1]
            for x in range(n):
                v[x] = 0 if t[x + first] > above else before[x] + 1
    for r in range(row1 - row0 - 2, -1, -1):
        v, after = vertical[r], vertical[r + 1]
        for x in range(n):
            v[x] = min(v[x], after[x] + 1)
    half = np.empty(n + 1, np.float64)
    for k in range(1, n + 1):
        half[k] = 0.5 / k
    apex = np.empty(n, np.int32)  # columns whose parabola is lowest somewhere, and where each begins
    begin = np.empty(n + 1, np.int32)
    squares, places = np.empty(n, np.int32), np.empty(FEW, np.int64)
    total = 0.0
    for r in range(row1 - row0):
        p, v = prediction[r + row0], vertical[r]
        x0, x1 = column0, column1
        while x0 < x1 and level[p[x0]] == 0.0:
            x0 += 1
        while x1 > x0 and level[p[x1 - 1]] == 0.0:
            x1 -= 1
        if x0 == x1:
            continue
        wanted = 0
        for x in range(x0, x1):
            if level[p[x]] != 0.0 and not (0 <= x - first < n and v[x - first] == 0):
                if wanted < FEW:
                    places[wanted] = x
                wanted += 1
        if wanted <= FEW:
            # A handful of pixels: trying every column for each beats building the envelope for the row.
            for u in range(n):
                squares[u] = v[u] * v[u]
            for i in range(wanted):
                x = places[i] - first
                nearest = REACH2
                for u in range(n):
                    nearest = min(nearest, (x - u) * (x - u) + squares[u])
                total += level[p[places[i]]] * falloff[nearest]
            continue
        top = -1
        for u in range(n):
            d = v[u]
            if d >= REACH_PX:
                continue
            start = x0
            while top >= 0:
                w = apex[top]
                dw = v[w]
                # First column, counted from the image's left, from which u is at least as near as w.
                cut = ((u - w) * (u + w) + d * d - dw * dw) * half[u - w] + first
                start = int(np.ceil(cut))
                if start > begin[top]:
                    break
                top -= 1
                start = x0
            if start < x1:
                top += 1
                apex[top] = u
                begin[top] = max(start, x0)
        if top < 0:
            continue
        begin[top + 1] = x1
        for k in range(top + 1):
            w = apex[k] + first
            d2 = v[apex[k]] * v[apex[k]]
            for x in range(begin[k], begin[k + 1]):
                total += level[p[x]] * falloff[min((x - w) * (x - w) + d2, REACH2)]
    return total


def weighted_error_sums(truth: Bytes, prediction: Bytes, above: int, level: Floats, box: Ints) -> tuple[float, float]:
    """The two sums of weighted F that need positions: error inside the truth, and faded level outside it."""
    inside = _inside_error(truth, prediction, above, level, box, OFFSETS, GAUSS)
    return inside, _outside_falloff(truth, prediction, above, level, box, FALLOFF)


@njit(**_FAST)
def _resize(image: Bytes, x0: Any, ax: Any, y0: Any, ay: Any) -> Bytes:
    height, width = image.shape
    out = np.empty((len(y0), len(x0)), np.uint8)
    strips = np.empty((2, len(x0)), np.int32)
    held = np.full(2, -1, np.int64)
    for y in range(len(y0)):
        above_row, below_row = min(max(y0[y], 0), height - 1), min(max(y0[y] + 1, 0), height - 1)
        for source in (above_row, below_row):
            slot = source % 2
            if held[slot] != source:
                held[slot] = source
                row, strip = image[source], strips[slot]
                for x in range(len(x0)):
                    i = x0[x]
                    strip[x] = (np.int32(row[i]) * ax[x, 0] + np.int32(row[min(i + 1, width - 1)]) * ax[x, 1]) >> 4
        b0, b1 = ay[y, 0], ay[y, 1]
        s0, s1, o = strips[above_row % 2], strips[below_row % 2], out[y]
        for x in range(len(x0)):
            o[x] = (((b0 * s0[x]) >> 16) + ((b1 * s1[x]) >> 16) + 2) >> 2
    return out


def resize_rows(image: Bytes, x0: Any, ax: Any, y0: Any, ay: Any) -> Bytes:
    """Blend pixels by 11-bit weights as OpenCV does; `resize.py` makes the tables."""
    return _resize(np.ascontiguousarray(image), x0, ax, y0, ay)


@njit(**_FAST)
def _mark_outline(image: Bytes, level: np.uint8, y: int, on_outline: Bytes) -> int:
    """Set `on_outline` for row y and return how many pixels are. Without branches, so that it runs many at once."""
    height, width = image.shape
    row = image[y]
    brightest = np.uint8(0)
    for x in range(width):
        brightest = max(brightest, row[x])
    if brightest <= level:
        return 0
    if y in (0, height - 1):
        for x in range(width):
            on_outline[x] = row[x] > level
    else:
        up, down = image[y - 1], image[y + 1]
        for x in range(1, width - 1):
            darkest = min(min(up[x], down[x]), min(row[x - 1], row[x + 1]))
            on_outline[x] = (row[x] > level) & (darkest <= level)
        on_outline[0], on_outline[width - 1] = row[0] > level, row[width - 1] > level
    n = 0
    for x in range(width):
        n += on_outline[x]
    return n


@njit(**_FAST)
def outline_pixels(image: Bytes, above: int) -> NDArray[np.int32]:
    """(row, column) of the pixels above `above` that touch one that is not, or the image's edge; int32 (n, 2)."""
    height, width = image.shape
    level = np.uint8(above)
    on_outline = np.empty(width, np.uint8)
    found = np.empty((1024, 2), np.int32)
    n = 0
    for y in range(height):
        in_row = _mark_outline(image, level, y, on_outline)
        if in_row == 0:
            continue
        while n + in_row > len(found):
            grown = np.empty((2 * len(found), 2), np.int32)
            grown[:n] = found[:n]
            found = grown
        for x in range(width):
            if on_outline[x]:
                found[n, 0], found[n, 1] = y, x
                n += 1
    return found[:n].copy()


@njit(**_FAST)
def nearest_squared(a: NDArray[np.int32], b: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Squared distance from each point of `a` to the nearest of `b`, and from each of `b` to the nearest of `a`."""
    far = np.int32(2**31 - 1)
    by, bx = b[:, 0].copy(), b[:, 1].copy()
    from_a, from_b = np.empty(len(a), np.int32), np.full(len(b), far, np.int32)
    for i in range(len(a)):
        y, x = a[i, 0], a[i, 1]
        nearest = far
        for j in range(len(b)):
            d2 = (by[j] - y) * (by[j] - y) + (bx[j] - x) * (bx[j] - x)
            nearest = min(nearest, d2)
            from_b[j] = min(from_b[j], d2)
        from_a[i] = nearest
    return from_a, from_b
