"""Finding calibration boards in pictures: chessboards by their inner corners, Charuco boards by their markers.

Endoscope pictures are small, dark at the rim and strongly bent, so the chessboard is looked for at several scales with
OpenCV's sector-based detector first and the classical one after it; the corners found are refined to parts of a pixel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import UsageError

__all__ = ["AUTO_LAYOUTS", "Board", "Sighting", "find", "parse_board"]

Array = NDArray[np.float64]

# Inner corners, larger boards first: a small layout is also found inside a larger board.
AUTO_LAYOUTS: Final = (
    *((11, 8), (10, 7), (9, 7), (9, 6), (8, 7), (8, 6), (8, 5), (7, 6), (7, 5), (6, 5), (5, 4), (4, 3)),
)
_SCALES: Final = (1.0, 2.0, 3.0)
_SMALL_PX: Final = 700
_SECTOR_FLAGS: Final = cv2.CALIB_CB_NORMALIZE_IMAGE | cv2.CALIB_CB_EXHAUSTIVE | cv2.CALIB_CB_ACCURACY
_CLASSIC_FLAGS: Final = cv2.CALIB_CB_ADAPTIVE_THRESH | cv2.CALIB_CB_NORMALIZE_IMAGE


@dataclass(frozen=True)
class Board:
    """A flat board: inner corners across and down, edge of a square in mm; a Charuco board has markers in squares."""

    columns: int
    rows: int
    square_mm: float
    dictionary: str | None = None
    marker_mm: float | None = None

    def __post_init__(self) -> None:
        if self.columns < 3 or self.rows < 3:
            raise UsageError(
                f"board: expected at least 3x3 inner corners, found {self.columns}x{self.rows}; count the corners "
                "where four squares meet."
            )
        if not self.square_mm > 0:
            raise UsageError(f"square: expected the edge of a square in mm, found {self.square_mm:g}; measure one.")

    @property
    def corners_mm(self) -> Array:
        """Inner corners (n, 3) on the board, row by row, z = 0."""
        v, u = np.mgrid[: self.rows, : self.columns]
        return np.stack([u.ravel(), v.ravel(), np.zeros(u.size)], axis=-1) * self.square_mm

    def charuco(self) -> cv2.aruco.CharucoBoard:
        """OpenCV's board; it counts squares, one more than inner corners each way."""
        code = getattr(cv2.aruco, str(self.dictionary), None)
        if code is None or not str(self.dictionary).startswith("DICT_"):
            raise UsageError(
                f"charuco: expected the name of a marker dictionary such as DICT_4X4_50, found {self.dictionary!r}."
            )
        marker = self.marker_mm if self.marker_mm is not None else 0.75 * self.square_mm
        return cv2.aruco.CharucoBoard(
            (self.columns + 1, self.rows + 1), self.square_mm, marker, cv2.aruco.getPredefinedDictionary(code)
        )


@dataclass(frozen=True, eq=False)
class Sighting:
    """A board in one picture: its corners on the board (n, 3) in mm and in the picture (n, 2) in px."""

    name: str
    board_mm: Array
    corners_px: Array
    size: tuple[int, int]


def parse_board(text: str) -> tuple[int, int]:
    """Columns and rows of inner corners from "7x6".

    >>> parse_board("7x6")
    (7, 6)
    """
    match = re.fullmatch(r"\s*(\d+)\s*[x×X,]\s*(\d+)\s*", text)
    if match is None:
        raise UsageError(f"board: expected inner corners as COLSxROWS, for example 7x6, or auto; found {text!r}.")
    return int(match[1]), int(match[2])


def find(name: str, grey: NDArray[np.uint8], board: Board) -> Sighting | None:
    """The board in a picture, or None. Of a Charuco board, the corners that are visible (six at least)."""
    size = (grey.shape[1], grey.shape[0])
    if board.dictionary is not None:
        corners, ids, _, _ = cv2.aruco.CharucoDetector(board.charuco()).detectBoard(grey)
        if ids is None or len(ids) < 6:
            return None
        return Sighting(name, board.corners_mm[ids.ravel()], corners.reshape(-1, 2).astype(np.float64), size)
    corners = _chessboard(grey, (board.columns, board.rows))
    return None if corners is None else Sighting(name, board.corners_mm, corners, size)


def _chessboard(grey: NDArray[np.uint8], layout: tuple[int, int]) -> Array | None:
    # Enlarging helps squares of a few pixels and only costs time in large pictures.
    scales = _SCALES if max(grey.shape) <= _SMALL_PX else _SCALES[:1]
    for scale in scales:
        picture = grey if scale == 1 else cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        found, corners = cv2.findChessboardCornersSB(picture, layout, flags=_SECTOR_FLAGS)
        if found and _is_grid(corners.reshape(-1, 2), layout):
            return _unscaled(_refined(picture, corners, layout), scale)
    for scale in scales:
        picture = grey if scale == 1 else cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        found, corners = cv2.findChessboardCorners(picture, layout, flags=_CLASSIC_FLAGS)
        if found:
            corners = _refined(picture, corners, layout)
            if _is_grid(corners.reshape(-1, 2), layout):
                return _unscaled(corners, scale)
    return None


def _refined(picture: NDArray[np.uint8], corners: NDArray[np.float32], layout: tuple[int, int]) -> NDArray[np.float32]:
    """Corners by the gradients around them: halves the scatter on drawn boards, but not where squares are tiny."""
    reach = int(min(0.3 * _spacing(corners.reshape(-1, 2), layout), 11))
    if reach < 5:
        return corners
    stop = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 50, 1e-3)
    return np.asarray(cv2.cornerSubPix(picture, corners.astype(np.float32), (reach, reach), (-1, -1), stop))


def _unscaled(corners: NDArray[np.float32], scale: float) -> Array:
    return (corners.reshape(-1, 2).astype(np.float64) + 0.5) / scale - 0.5


def _spacing(corners: NDArray[np.float32], layout: tuple[int, int]) -> float:
    grid = corners.reshape(layout[1], layout[0], 2)
    return float(min(np.linalg.norm(np.diff(grid, axis=a), axis=-1).min() for a in (0, 1)))


def _is_grid(corners: NDArray[np.float32], layout: tuple[int, int]) -> bool:
    """Whether the corners run evenly: a skipped row or column shows as a step twice as long as its neighbours."""
    grid = corners.reshape(layout[1], layout[0], 2).astype(np.float64)
    for axis in (0, 1):
        steps = np.diff(grid, axis=axis)
        length = np.linalg.norm(steps, axis=-1)
        if length.min() < 1.5:
            return False
        if length.shape[axis] > 1:
            a, b = (np.take(length, range(k, length.shape[axis] - 1 + k), axis=axis) for k in (0, 1))
            if np.max(np.maximum(a / b, b / a)) > 1.8:
                return False
    return True
