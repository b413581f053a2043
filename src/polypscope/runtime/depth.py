"""Metric depth as the rest of the house sees it: a frame and its camera in, a depth map in mm out.

The depth head reads the features that the segmenter computed for the same frame, so that both together cost little
more than one. It was trained on simulated colons alone: its millimetres are as true as they are like the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.geometry.cameras import rays
from polypscope.records import Camera, DepthKind, DepthMap
from polypscope.records.errors import ModelError, RecordError
from polypscope.runtime.backends import Session, open_session
from polypscope.runtime.cards import ModelCard, find_card
from polypscope.runtime.segmenter import Segmenter

__all__ = ["DEFAULT_DEPTH", "DepthEstimator", "fix_scale"]

DEFAULT_DEPTH = "polypscope-depth"
SHARED = ("image", "feature_4", "feature_8")  # what the head takes of what the segmenter has computed
# Flips and quarter turns of a picture: rows and columns exchanged or not, then steps down and across; as it is first.
TURNS = tuple((swapped, down, across) for swapped in (False, True) for down in (1, -1) for across in (1, -1))


class DepthEstimator:
    """Depth in mm along the optical axis, with one standard deviation per pixel.

    >>> segmenter = Segmenter.load()                                              # doctest: +SKIP
    >>> ranger = DepthEstimator.load(segmenter)                                   # doctest: +SKIP
    >>> probability = segmenter.step(rgb); depth = ranger.depth(rgb, camera)      # doctest: +SKIP
    """

    def __init__(self, card: ModelCard, session: Session, segmenter: Segmenter) -> None:
        shapes = {name: shape for name, shape, _ in session.inputs}
        wanted = {*SHARED, "rays"}
        if card.kind != "depth" or set(shapes) != wanted:
            raise ModelError(
                f"Model {card.name}: expected a depth head with inputs {', '.join(sorted(wanted))}, "
                f"found a {card.kind} with {', '.join(shapes)}."
            )
        if not card.reads(segmenter.card):
            raise ModelError(
                f"Model {card.name}: expected the segmenter whose encoder it was trained on (SHA-256 "
                f"{card.segmenter[:12]}…), found {segmenter.card.sha256[:12]}…; use both as shipped."
            )
        self.card = card
        self._session, self._segmenter = session, segmenter
        self._side = int(shapes["rays"][1] or 22)
        self._remembered: tuple[Camera, NDArray[np.float32], NDArray[np.float32]] | None = None

    @classmethod
    def load(
        cls,
        segmenter: Segmenter | None = None,
        name_or_path: str | Path | None = None,
        threads: int = 2,
        provider: str = "cpu",
    ) -> DepthEstimator:
        """Open the shipped depth head.

        Parameters
        ----------
        segmenter : the segmenter whose features to share; a new one when None.
        name_or_path : model name or path; the shipped default when None.
        threads, provider : as for the segmenter.
        """
        card = find_card(DEFAULT_DEPTH if name_or_path is None else name_or_path)
        session = open_session(card.check_file(), threads, provider)
        return cls(card, session, segmenter or Segmenter.load(threads=threads, provider=provider))

    def depth(self, rgb: NDArray[np.uint8], camera: Camera, *, careful: bool = False) -> DepthMap:
        """Depth of a frame at its own size.

        If the segmenter has just seen this very array, its features are reused; otherwise the encoder runs once.

        Parameters
        ----------
        rgb : (H, W, 3) uint8.
        camera : the camera that took it; its size is the frame's.
        careful : look at the frame in all its flips and quarter turns and average what they tell, for eight times the
            work.
        """
        if rgb.shape[:2] != (camera.height, camera.width):
            raise RecordError.of(
                "camera",
                expected=f"the frame's size {rgb.shape[1]}×{rgb.shape[0]}",
                found=f"{camera.width}×{camera.height}",
                hint="use camera.resized(width, height)",
            )
        directions, forward = self._lens(camera)
        looks = [self._look(rgb, directions, *turn) for turn in (TURNS if careful else TURNS[:1])]
        size = (camera.width, camera.height)
        # From ray to axis while the maps are small: at full size this would cost more than the network.
        values = [
            cv2.resize(_mean(maps) * forward, size, interpolation=cv2.INTER_LINEAR) for maps in zip(*looks, strict=True)
        ]
        return DepthMap(values[0], DepthKind.Z_MM, values[1])

    def _look(
        self, rgb: NDArray[np.uint8], directions: NDArray[np.float32], swapped: bool, down: int, across: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Distances along the rays and their sigmas, told of the picture turned like this and turned back."""
        seen, rays = rgb, directions[0]
        if swapped:
            seen, rays = seen.swapaxes(0, 1), rays.swapaxes(0, 1)[..., [1, 0, 2]]
        if (swapped, down, across) != TURNS[0]:  # otherwise features that the segmenter has of this very array are used
            seen = np.ascontiguousarray(seen[::down, ::across])
        # A turned picture is what a camera with turned rays would have taken.
        rays = rays[::down, ::across] * np.array([across, down, 1], np.float32)
        shared = self._segmenter.features_of(seen)
        feeds = {"rays": np.ascontiguousarray(rays[None]), **{name: shared[name] for name in SHARED}}
        outputs = self._session.run(feeds)
        told = (outputs[name][0, 0, ::down, ::across] for name in ("ray_mm", "sigma_mm"))
        values, sigma = (map_.swapaxes(0, 1) if swapped else map_ for map_ in told)
        return values, sigma

    def _lens(self, camera: Camera) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Rays for the network (1, 22, 22, 3), and how much of each output pixel's ray lies along the axis."""
        if self._remembered is None or self._remembered[0] != camera:
            field = np.nan_to_num(rays(camera.resized(self._side, self._side))).astype(np.float32)[None]
            side = self._segmenter.card.input.width // 4
            along = rays(camera.resized(side, side))[..., 2]
            forward = np.where(along > 1e-3, along, np.nan).astype(np.float32)
            self._remembered = (camera, field, forward)
        return self._remembered[1], self._remembered[2]


def _mean(maps: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The geometric mean, since distances err by factors; a single map as it is."""
    return maps[0] if len(maps) == 1 else np.exp(np.mean(np.log(maps), axis=0))


def fix_scale(depth: DepthMap, points: Sequence[tuple[float, float, float]]) -> tuple[DepthMap, float]:
    """The depth map scaled to known depths, such as forceps contacts, and the factor.

    Parameters
    ----------
    depth : Z_MM.
    points : (u, v, z_mm): pixel column, row, and true depth there.

    >>> flat = DepthMap(np.full((4, 4), 20, np.float32), DepthKind.Z_MM)
    >>> fix_scale(flat, [(1, 1, 30.0)])[1]
    1.5
    """
    if depth.kind is not DepthKind.Z_MM:
        raise RecordError.of("depth", expected="mm along the axis", found=depth.kind.value)
    height, width = depth.shape
    ratios = []
    for u, v, z_mm in points:
        row, column = round(v), round(u)
        if 0 <= row < height and 0 <= column < width and z_mm > 0 and np.isfinite(depth.values[row, column]):
            ratios.append(z_mm / float(depth.values[row, column]))
    if not ratios:
        raise RecordError.of("points", expected="at least one known depth on the map", found="none")
    factor = float(np.exp(np.median(np.log(ratios))))
    return depth.scaled(factor), factor
