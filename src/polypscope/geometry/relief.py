"""The surface under a mask: its depth along the outline, the wall it stands on, its height above that wall.

A plane seen through any lens has 1/t linear in the unit ray r (n·r t = c), so local regressions are made on 1/t against
r: they are exact for planes, and carry the depth out to the border without the bias that averaging would have. How many
pixels are used follows from the noise that the map itself shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polypscope.geometry import cameras, masks
from polypscope.records import BinaryMask, Camera, DepthMap

__all__ = ["Relief", "noise_fraction", "relief_of"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_MAX_OUTLINE = 200
_MAX_WINDOW_PX = 12
# How much of the relief of a predicted map counts. A wrong difference within a polyp lengthens its largest chord more
# often than it shortens it; of 0, .2, .4, .5, .6, .8 and 1 the middle ones gave the smallest errors on polyps that the
# intervals were made from.
_BELIEVED = 0.6
# A part of a mask that begins so many of the polyp's widths behind it is no part of it. A stalk can begin more than one
# and a half behind its head.
_BEHIND = 2.0


@dataclass(frozen=True, slots=True)
class Relief:
    """What mask and depth say about one polyp's surface; n outline points, lengths in mm.

    rays (n, 3) unit; points (n, 3) the outline in space; step (n,) how far the background lies behind the outline;
    height (n,) of the outline above the wall; apex_mm: greatest height of the visible surface; wall (4,): unit normal
    towards the camera and offset, or None where too little wall is in view; centre (3,): mean visible point;
    noise: standard deviation of the depth as a fraction of it, per pixel; holes: fraction of the mask without depth.
    """

    rays: Array
    points: Array
    step: Array
    height: Array
    apex_mm: float
    apex_point: Array
    wall: Array | None
    centre: Array
    noise: float
    holes: float

    @property
    def distance_mm(self) -> float:
        """Distance of the middle of the visible surface from the camera."""
        return float(np.linalg.norm(self.centre))

    @property
    def elevation_deg(self) -> float:
        """Angle between line of sight and wall: 90 looks straight down on it, 0 grazes it; NaN without a wall."""
        if self.wall is None:
            return float("nan")
        towards = -self.centre / np.linalg.norm(self.centre)
        return float(np.degrees(np.arcsin(np.clip(self.wall[:3] @ towards, -1.0, 1.0))))


def relief_of(mask: BinaryMask, depth: DepthMap, camera: Camera, *, inset_px: int = 0) -> Relief:
    """Read the surface under `mask`; `inset_px` keeps that many border pixels out (predicted depth bleeds there)."""
    # All that matters lies within a polyp's breadth of the mask; the rest of the picture is left alone.
    radius_px = float(np.sqrt(mask.area_px / np.pi))
    window_of = _around(np.argwhere(mask.values), mask.shape, round(radius_px) + _MAX_WINDOW_PX)
    corner = np.array([window_of[0].start, window_of[1].start])
    t = cameras.ray_lengths(camera, depth, window_of)
    directions = cameras.rays(camera)[window_of]
    given = mask.values[window_of]
    known = np.isfinite(t)
    noise = noise_fraction(t, given & known)
    middle = float(np.median(t[given & known]))
    if depth.sigma is not None:
        t = middle * (t / middle) ** _BELIEVED
    extent = 2.0 * radius_px * middle / camera.fx
    # Steps of this size are steps between surfaces, not the fall of one surface towards its limb.
    step_mm = 0.25 * extent + 6.0 * noise * middle
    inside = _snapped(given, known, t, step_mm)
    if depth.sigma is None:  # predicted maps have slopes where surfaces have steps
        inside = _in_front(inside, known, t, step_mm, _BEHIND * extent)
    usable = _eroded(inside, inset_px) & known
    if np.count_nonzero(usable) < 4:
        usable = inside & known
    border = masks.outline(BinaryMask(inside))
    chosen = _spread(border.uv, _MAX_OUTLINE)
    start = border.inside[chosen]
    out_of = np.clip(border.outside[chosen], 0, np.array(inside.shape) - 1)
    r = cameras.unproject_rays(camera, border.uv[chosen] + corner[::-1])
    window = _window_px(noise * middle / extent, radius_px)
    near = _local_depth(t, usable, directions, start, r, window, step_mm)
    far = _local_depth(t, known & ~given, directions, out_of, r, max(window, 2), np.inf)
    points = near[:, None] * r

    wall = _wall(t, given, known, directions, radius_px)
    smooth = _smoothed(t, usable, window)[usable]
    cloud = directions[usable] * smooth[:, None]
    if wall is None:
        height, apex, top = np.full(len(points), np.nan), float("nan"), cloud[int(np.argmin(smooth))]
    else:
        height = points @ wall[:3] + wall[3]
        heights = cloud @ wall[:3] + wall[3]
        apex = float(np.quantile(heights, 0.98))
        top = cloud[int(np.argmin(np.abs(heights - apex)))]
    return Relief(
        rays=r,
        points=points,
        step=far - near,
        height=height,
        apex_mm=apex,
        apex_point=top,
        wall=wall,
        centre=cloud.mean(axis=0),
        noise=noise,
        holes=1.0 - float(np.count_nonzero(given & known)) / max(mask.area_px, 1),
    )


def noise_fraction(t: Array, usable: Bools) -> float:
    """Pixel noise of a depth map as a fraction of depth, from second differences within the mask.

    >>> t = 30 * (1 + 0.02 * np.random.default_rng(0).standard_normal((60, 60)))
    >>> bool(abs(noise_fraction(t, np.ones((60, 60), bool)) - 0.02) < 0.002)
    True
    """
    found = []
    for axis in (0, 1):
        a = np.moveaxis(t, axis, 0)
        u = np.moveaxis(usable, axis, 0)
        whole = u[:-2] & u[1:-1] & u[2:]
        if whole.any():
            found.append(((a[:-2] - 2.0 * a[1:-1] + a[2:]) / a[1:-1])[whole])
    if not found:
        return 0.0
    values = np.concatenate(found)
    # A curved surface has second differences too; what it shares with its neighbours is not noise.
    return float(1.4826 * np.median(np.abs(values - np.median(values))) / np.sqrt(6.0))


def _window_px(noise_over_extent: float, radius_px: float) -> int:
    """Half width at which smoothed noise falls to about 3 % of the polyp's extent."""
    wanted = 53.0 * noise_over_extent
    return int(np.clip(np.ceil(wanted), 1, max(1.0, min(_MAX_WINDOW_PX, 0.7 * radius_px))))


def _local_depth(
    t: Array, usable: Bools, directions: Array, at: NDArray[np.intp], r: Array, window: int, step_mm: float
) -> Array:
    """Distance along rays r (n, 3) of the plane through the usable pixels near `at` (n, 2), or of the nearest one."""
    offsets = np.arange(-window, window + 1)
    dy, dx = (o.ravel() for o in np.meshgrid(offsets, offsets, indexing="ij"))
    rows, columns = at[:, :1] + dy, at[:, 1:] + dx
    within = (rows >= 0) & (rows < t.shape[0]) & (columns >= 0) & (columns < t.shape[1])
    rows, columns = np.clip(rows, 0, t.shape[0] - 1), np.clip(columns, 0, t.shape[1] - 1)
    take = within & usable[rows, columns]
    if np.isfinite(step_mm):
        # A head hides part of its stalk: pixels beyond such a step lie on another surface and would tilt the plane.
        here = _filled_from_nearest(np.where(usable[at[:, 0], at[:, 1]], t[at[:, 0], at[:, 1]], np.nan), at, t, usable)
        with np.errstate(invalid="ignore"):
            take &= np.abs(t[rows, columns] - here[:, None]) < step_mm
    weight = take * np.exp(-(dy**2 + dx**2) / (2.0 * (window / 1.5) ** 2))
    inverse = np.where(take, 1.0 / np.where(take, t[rows, columns], 1.0), 0.0)
    total = weight.sum(axis=1)
    filled = total > 0
    safe = np.where(filled, total, 1.0)
    w = weight / safe[:, None]
    seen = directions[rows, columns]
    mean_inverse = np.einsum("nk,nk->n", w, inverse)
    mean_ray = np.einsum("nk,nkd->nd", w, seen)
    dr = seen - mean_ray[:, None]
    normal = np.einsum("nk,nki,nkj->nij", w, dr, dr)
    # The rays span a plane only, and few pixels may span a line: a ridge keeps the slope finite there.
    scale = np.trace(normal, axis1=1, axis2=2)
    normal += (1e-3 * scale + 1e-12)[:, None, None] * np.eye(3)
    slope = np.linalg.solve(normal, np.einsum("nk,nki,nk->ni", w, dr, inverse - mean_inverse[:, None])[..., None])[
        ..., 0
    ]
    value = mean_inverse + np.einsum("ni,ni->n", r - mean_ray, slope)
    # An extrapolation beyond the values it came from is not believed.
    low = np.where(take, inverse, np.inf).min(axis=1)
    high = np.where(take, inverse, -np.inf).max(axis=1)
    margin = 0.25 * (high - low)
    with np.errstate(invalid="ignore"):
        value = np.clip(value, low - margin, high + margin)
    out = np.full(len(at), np.nan)
    good = filled & np.isfinite(value) & (value > 0)
    out[good] = 1.0 / value[good]
    return _filled_from_nearest(out, at, t, usable)


def _filled_from_nearest(values: Array, at: NDArray[np.intp], t: Array, usable: Bools) -> Array:
    missing = np.isnan(values)
    if missing.any() and usable.any():
        from scipy.spatial import cKDTree

        places = np.argwhere(usable)
        nearest = places[cKDTree(places).query(at[missing])[1]]
        values = values.copy()
        values[missing] = t[nearest[:, 0], nearest[:, 1]]
    return values


def _smoothed(t: Array, usable: Bools, window: int) -> Array:
    """Depth averaged within the mask; as it is where the map shows no noise worth averaging."""
    if window <= 1:
        return t
    from scipy import ndimage

    weight = ndimage.gaussian_filter(usable.astype(np.float64), window / 2.0)
    total = ndimage.gaussian_filter(np.where(usable, t, 0.0), window / 2.0)
    return np.asarray(np.divide(total, weight, out=np.full_like(t, np.nan), where=usable))


def _wall(t: Array, inside: Bools, known: Bools, directions: Array, radius_px: float) -> Array | None:
    """The plane of the wall around the polyp, by robust regression of 1/t on the rays of a ring about the mask."""
    from scipy import ndimage

    inner = max(1, round(0.1 * radius_px))
    outer = inner + max(3, round(0.6 * radius_px))
    distance = ndimage.distance_transform_edt(~inside)
    ring = (distance > inner) & (distance <= outer) & known
    if np.count_nonzero(ring) < 12:
        return None
    places = np.argwhere(ring)
    if len(places) > 1500:
        places = places[:: len(places) // 1500 + 1]
    r, y = directions[places[:, 0], places[:, 1]], 1.0 / t[places[:, 0], places[:, 1]]
    weight = np.ones(len(y))
    g: Array = np.zeros(3)
    for _ in range(10):
        root = np.sqrt(weight)
        g = np.asarray(np.linalg.lstsq(r * root[:, None], y * root, rcond=None)[0])
        residual = (r @ g) / y - 1.0
        spread = 1.4826 * float(np.median(np.abs(residual))) + 1e-9
        weight = 1.0 / (1.0 + (residual / (2.0 * spread)) ** 2)
    length = float(np.linalg.norm(g))
    if length < 1e-9:
        return None
    return np.append(-g / length, 1.0 / length)


def _snapped(given: Bools, known: Bools, t: Array, step_mm: float) -> Bools:
    """The mask without border pixels that lie on another surface, far behind the polyp a pixel or two further in.

    A mask one pixel too large takes in the wall behind a limb, and that pixel's depth would lengthen the polyp by the
    whole distance to the wall.
    """
    from scipy import ndimage

    kept = given
    for _ in range(2):
        nearest = ndimage.minimum_filter(np.where(kept & known, t, np.inf), size=3)
        with np.errstate(invalid="ignore"):
            dropped = kept & ~_eroded(kept, 1) & known & (t - nearest > step_mm)
        if not dropped.any():
            break
        kept = kept & ~dropped
    if kept is given or np.count_nonzero(kept & known) < max(4, 0.3 * np.count_nonzero(given)):
        return given
    return masks.largest_part(BinaryMask(kept)).values


def _in_front(inside: Bools, known: Bools, t: Array, step_mm: float, behind_mm: float) -> Bools:
    """The mask without parts beyond a step that begin more than `behind_mm` behind its largest part.

    A mask that spills over a limb takes in a patch of the wall far behind, and every chord to there would be too long.
    """
    from scipy import ndimage

    nearest = ndimage.minimum_filter(np.where(inside & known, t, np.inf), size=3)
    with np.errstate(invalid="ignore"):
        beyond = inside & known & (t - nearest > step_mm)
    if not beyond.any():
        return inside
    parts, count = ndimage.label(inside & ~beyond)
    pixels = np.bincount(parts[known], minlength=count + 1)[1:]  # only parts with depth can say where the polyp is
    if not pixels.any():
        return inside
    main = 1 + int(np.argmax(pixels))
    limit = float(np.median(t[(parts == main) & known])) + behind_mm
    begins = [np.quantile(depths, 0.1) if (depths := t[(parts == n) & known]).size else 0.0 for n in range(count + 1)]
    with np.errstate(invalid="ignore"):
        kept = inside & ~((parts > 0) & (np.array(begins)[parts] > limit)) & ~(beyond & (t > limit))
    # What is left may fall apart: the polyp is where its largest part with depth is, not where most pixels are.
    pieces = ndimage.label(kept)[0]
    front = pieces == pieces[tuple(np.argwhere(parts == main)[0])]
    return inside if kept.sum() == inside.sum() or np.count_nonzero(front & known) < 4 else front


def _around(places: NDArray[np.intp], shape: tuple[int, int], pad: int) -> tuple[slice, slice]:
    low = np.maximum(places.min(axis=0) - pad, 0)
    high = np.minimum(places.max(axis=0) + pad + 1, shape)
    return slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))


def _eroded(inside: Bools, pixels: int) -> Bools:
    if pixels <= 0:
        return inside
    from scipy import ndimage

    return np.asarray(ndimage.binary_erosion(inside, iterations=pixels), dtype=bool)


def _spread(uv: Array, count: int) -> NDArray[np.intp]:
    """Indices of about `count` outline points, evenly over the angle around the middle."""
    around = uv - uv.mean(axis=0)
    order = np.argsort(np.arctan2(around[:, 1], around[:, 0]), kind="stable")
    return order[:: max(1, len(order) // count)]
