"""A look at what a model sees while it learns: pictures with the true outline (green) and the predicted one (red)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

TILE_PX = 200


def contact_sheet(
    pictures: Sequence[tuple[NDArray[np.uint8], NDArray[np.bool_]]],
    segment: Callable[[NDArray[np.uint8]], NDArray[np.float32]],
    path: Path,
    columns: int = 4,
) -> None:
    """Write a PNG with one tile per (rgb, truth) pair; `segment` maps rgb (H, W, 3) to probability (H, W)."""
    tiles = []
    for rgb, truth in pictures:
        tile = cv2.resize(rgb, (TILE_PX, TILE_PX), interpolation=cv2.INTER_AREA)
        for mask, shade in ((truth, (0, 255, 0)), (segment(rgb) >= 0.5, (255, 0, 0))):
            small = cv2.resize(mask.astype(np.uint8), (TILE_PX, TILE_PX), interpolation=cv2.INTER_NEAREST)
            outlines, _ = cv2.findContours(small, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
            cv2.drawContours(tile, outlines, -1, shade, 1)
        tiles.append(tile)
    while len(tiles) % columns:
        tiles.append(np.zeros((TILE_PX, TILE_PX, 3), np.uint8))
    rows = [np.hstack(tiles[start : start + columns]) for start in range(0, len(tiles), columns)]
    cv2.imwrite(str(path), np.vstack(rows)[..., ::-1])
