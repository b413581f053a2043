"""CVC-CLINIC: WM-DOVA energy maps, the hand-crafted method of Bernal et al. (CMIG 43, 2015).

A polyp protrudes, light comes from the camera, so a dark valley runs around it. Every pixel asks in all directions how
deep the deepest valley between two radii is (depth of valleys accumulation, DOVA), and believes the answer as far as
the valley is one boundary:
- concavity: the valley must run across the ray, as a boundary around the pixel does;
- completeness: the more sectors have a valley, the better;
- continuity: valleys of neighbouring sectors must lie at similar radii;
- robustness: a median over a window of sectors (the WM of the name) drops single strong valleys.
The smoothed sum is the energy map, and its maxima are the locations.

Where this differs from the authors': lengths are shares of the picture, the constraints multiply softly instead of
cutting, and votes are square roots of depths, so that a faint whole boundary beats a strong half one. The parameters
were chosen on Kvasir-SEG's training pictures and PolypGen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numba import njit
from numpy.typing import NDArray

from polypscope.methods.method import Look, Method, check_frame
from polypscope.methods.peaks import maxima
from polypscope.methods.tissue import find_highlights, find_view, paint_over, shrink, standard_size
from polypscope.methods.valleys import Valleys, find_valleys, without_vessels
from polypscope.records import Detection
from polypscope.records.errors import RecordError

__all__ = ["CvcClinic", "Dova", "accumulate", "sector_offsets"]

Plane = NDArray[np.float32]


@dataclass(frozen=True)
class Dova:
    """Parameters of the accumulation; lengths in pixels of the working size.

    sectors: around a pixel. nearest_px, farthest_px: radii between which a valley is looked for. window: neighbouring
    sectors of which the median is taken (odd). jump: change of radius between neighbouring sectors, as a share of the
    radius, that costs a vote 1 - 1/e. seen: vote from which a sector counts as having a valley. completeness: power of
    the share of such sectors.
    """

    sectors: int = 24
    nearest_px: int = 5
    farthest_px: int = 33
    window: int = 3
    jump: float = 0.35
    seen: float = 0.1
    completeness: float = 1.0

    def __post_init__(self) -> None:
        if self.window < 1 or self.window % 2 == 0 or self.window > self.sectors:
            raise RecordError.of("Dova.window", expected="an odd number of sectors", found=str(self.window))
        if not 1 <= self.nearest_px < self.farthest_px:
            raise RecordError.of(
                "Dova.nearest_px",
                expected="from 1 to below farthest_px",
                found=f"{self.nearest_px}, {self.farthest_px}",
            )


@lru_cache(maxsize=4)
def sector_offsets(spec: Dova) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Pixels of the annulus, sorted by sector: offsets int64 (n, 2) as (dy, dx), rays float32 (n, 3) as
    (x, y, radius), and int64 (sectors + 1,) where each sector begins."""
    far = spec.farthest_px
    dy, dx = np.mgrid[-far : far + 1, -far : far + 1].reshape(2, -1)
    radius = np.hypot(dy, dx)
    inside = (radius >= spec.nearest_px) & (radius <= far)
    dy, dx, radius = dy[inside], dx[inside], radius[inside]
    turn = np.mod(np.arctan2(dy, dx) / (2 * np.pi), 1.0)
    sector = np.minimum((turn * spec.sectors).astype(np.int64), spec.sectors - 1)
    order = np.lexsort((radius, sector))
    starts = np.searchsorted(sector[order], np.arange(spec.sectors + 1))
    rays = np.stack([dx / radius, dy / radius, radius], axis=1)[order].astype(np.float32)
    return np.stack([dy, dx], axis=1)[order].astype(np.int64), rays, starts.astype(np.int64)


def accumulate(valleys: Valleys, spec: Dova) -> Plane:
    """Energy of every pixel as a centre, float32 (H, W) in [0, 1], before smoothing."""
    far = spec.farthest_px
    root = np.sqrt(np.sqrt(valleys.depth))
    across = np.stack([np.pad(root * valleys.across_x, far), np.pad(root * valleys.across_y, far)])
    offsets, rays, starts = sector_offsets(spec)
    height, width = valleys.depth.shape
    return _accumulate(
        across.astype(np.float32), offsets, rays, starts, height, width, far, spec.window, np.float32(spec.jump),
        np.float32(spec.seen), np.float32(spec.completeness),
    )  # fmt: skip


@njit(cache=True, nogil=True, boundscheck=False)
def _accumulate(  # type: ignore[no-untyped-def]
    across, offsets, rays, starts, height, width, far, window, jump, seen, completeness
):
    """The whole accumulation. Centres of a row go together, so that the inner loop runs along memory."""
    sectors = len(starts) - 1
    half = window // 2
    energy = np.zeros((height, width), np.float32)
    vote = np.zeros((sectors, width), np.float32)
    reach = np.zeros((sectors, width), np.float32)
    some = np.zeros(window, np.float32)
    calm = np.zeros((sectors, width), np.float32)
    for y in range(height):
        vote[:] = 0
        reach[:] = 0
        for s in range(sectors):
            best, radius = vote[s], reach[s]
            for k in range(starts[s], starts[s + 1]):
                row, column = y + far + offsets[k, 0], far + offsets[k, 1]
                ax = across[0, row, column : column + width]
                ay = across[1, row, column : column + width]
                rx, ry, r = rays[k, 0], rays[k, 1], rays[k, 2]
                for x in range(width):
                    v = ax[x] * rx + ay[x] * ry
                    v = v * v
                    closer = v > best[x]
                    best[x] = v if closer else best[x]
                    radius[x] = r if closer else radius[x]
        # Continuity looks at the jump to the next sector; each sector then keeps the milder of its two sides.
        for s in range(sectors):
            after = (s + 1) % sectors
            for x in range(width):
                mean = 0.5 * (reach[s, x] + reach[after, x])
                step = (reach[s, x] - reach[after, x]) / (jump * mean + np.float32(1e-6))
                calm[s, x] = np.exp(-step * step)
        for x in range(width):
            total = np.float32(0)
            full = 0
            for s in range(sectors):
                for k in range(window):
                    some[k] = vote[(s + k - half) % sectors, x]
                for i in range(1, window):  # insertion sort: the window is tiny
                    value, j = some[i], i
                    while j > 0 and some[j - 1] > value:
                        some[j] = some[j - 1]
                        j -= 1
                    some[j] = value
                middle = some[half]
                total += middle * max(calm[s, x], calm[(s - 1) % sectors, x])
                full += middle > seen
            energy[y, x] = total / sectors * (np.float32(full) / sectors) ** completeness
    return energy


class CvcClinic(Method):
    """WM-DOVA, ready to run.

    Parameters
    ----------
    spec
        Parameters of the accumulation.
    work_px
        Side of a square with as many pixels as the working picture.
    fine
        How many times finer the picture is in which highlights, vessels and valleys are looked for.
    smooth_px
        σ of the final smoothing.
    least
        Energy, of at most 1, below which there is nothing to report.
    most
        Locations of a frame.
    apart_px
        Distance between two locations of a frame.
    """

    def __init__(
        self,
        spec: Dova | None = None,
        *,
        work_px: int = 96,
        fine: int = 2,
        smooth_px: float = 2.2,
        least: float = 0.02,
        most: int = 5,
        apart_px: int = 9,
    ) -> None:
        self.spec = spec or Dova()
        self.work_px, self.fine, self.smooth_px = work_px, fine, smooth_px
        self.least, self.most, self.apart_px = least, most, apart_px

    def valleys(self, rgb: NDArray[np.uint8]) -> tuple[Valleys, NDArray[np.bool_]]:
        """Valleys of a frame at working size, none outside the view; and that view, bool (h, w)."""
        picture = standard_size(rgb, self.work_px * self.fine)
        view = find_view(picture)
        picture = paint_over(picture, find_highlights(picture) & view)
        found = find_valleys(without_vessels(picture))
        depth = np.where(shrink(view, 4), found.depth, np.float32(0))
        size = (max(1, round(depth.shape[1] / self.fine)), max(1, round(depth.shape[0] / self.fine)))
        # Directions have no sign, so they are averaged as doubled angles; a mean weighted by depth.
        double_x = depth * (found.across_x**2 - found.across_y**2)
        double_y = depth * 2 * found.across_x * found.across_y
        small = [cv2.resize(p, size, interpolation=cv2.INTER_AREA) for p in (depth, double_x, double_y)]
        angle = 0.5 * np.arctan2(small[2], small[1])
        seen = cv2.resize(view.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
        return Valleys(small[0], np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)), seen

    def look(self, rgb: NDArray[np.uint8]) -> Look:
        check_frame(rgb)
        valleys, view = self.valleys(rgb)
        energy = accumulate(valleys, self.spec)
        energy = cv2.GaussianBlur(energy, (0, 0), self.smooth_px)
        height, width = rgb.shape[:2]
        scale_x, scale_y = width / energy.shape[1], height / energy.shape[0]
        detections = tuple(
            Detection(((x + 0.5) * scale_x - 0.5, (y + 0.5) * scale_y - 0.5), score=min(1.0, value))
            for x, y, value in maxima(energy, self.apart_px, self.most, self.least)
            if view[y, x]  # valleys at the edge of the view may surround a place beyond it
        )
        whole = cv2.resize(energy, (width, height), interpolation=cv2.INTER_LINEAR)
        return Look(detections, np.clip(whole, 0, 1).astype(np.float32))
