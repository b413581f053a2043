"""From a probability map to the components that may be polyps: box, point, score, mask, outline and appearance."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.pipeline.findings import Found, rounded
from polypscope.records import BinaryMask, Box, Detection, ProbabilityMap

__all__ = ["appearance", "locate", "outline"]

_CHROMA_BINS = 6
_OUTLINE = 0.5


def locate(
    probability: ProbabilityMap,
    rgb: NDArray[np.uint8],
    area: NDArray[np.bool_],
    *,
    threshold: float = 0.5,
    faint: float = 0.3,
    least_area: float = 0.0006,
    limit: int = 8,
) -> tuple[Found, ...]:
    """Components of one frame, best score first.

    probability, rgb, area: all of working size (H, W); pixels outside `area` are left out.
    threshold: probability from which a pixel speaks for a polyp. faint: components that stay below `threshold` but
    reach this are kept too, with their low score: they can't start an alarm, but they can carry one through a weak
    moment. least_area: smallest component as a share of the picture. limit: at most so many components.

    The score of a component is the mean probability of its pixels above the threshold: a network is sure of a polyp all
    over, of a fold or a highlight only here and there. Its outline is drawn where the probability is a half, whatever
    the threshold: that is where the polyp is as likely to end as to go on.
    """
    values = np.where(area, probability.values, np.float32(0))
    faint = min(faint, threshold)
    low = (values >= faint).astype(np.uint8)
    if not low.any():
        return ()
    count, labels, stats, _ = cv2.connectedComponentsWithStats(low, connectivity=8)
    smallest = max(4.0, least_area * float(np.count_nonzero(area)))
    border = _border(area)
    found = []
    for label in range(1, count):
        x, y, w, h, pixels = (int(v) for v in stats[label])
        if pixels < smallest:
            continue
        part = values[y : y + h, x : x + w]
        member = labels[y : y + h, x : x + w] == label
        peak = _peak(part[member])
        pieces, level = [member], faint
        if peak >= threshold:
            pieces, level = _pieces(member, part, threshold, smallest), threshold
        for piece in pieces:
            found.append(_found(part, piece, level, (x, y), values.shape, rgb, border))
    found.sort(key=lambda f: (-f.score, f.box.x, f.box.y))
    return tuple(found[:limit])


def _pieces(
    member: NDArray[np.bool_], part: NDArray[np.float32], threshold: float, smallest: float
) -> list[NDArray[np.bool_]]:
    """Parts of a component outlined at a half, the one with the most pixels above the threshold first."""
    sure = member & (part >= threshold)
    outlined = member & (part >= min(_OUTLINE, threshold))
    count, labels = cv2.connectedComponents(outlined.astype(np.uint8), connectivity=8)
    cores = np.bincount(labels[sure], minlength=count)[1:]
    order = np.argsort(-cores, kind="stable")
    # The surest piece always stays: its neighbourhood was already found large enough.
    return [labels == n + 1 for rank, n in enumerate(order) if rank == 0 or cores[n] >= smallest]


def _found(
    part: NDArray[np.float32],
    piece: NDArray[np.bool_],
    level: float,
    corner: tuple[int, int],
    shape: tuple[int, ...],
    rgb: NDArray[np.uint8],
    border: NDArray[np.bool_],
) -> Found:
    rows, columns = np.flatnonzero(piece.any(axis=1)), np.flatnonzero(piece.any(axis=0))
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    piece, part = piece[top:bottom, left:right], part[top:bottom, left:right]
    x, y = corner[0] + int(left), corner[1] + int(top)
    height, width = piece.shape
    mask = np.zeros(shape, bool)
    mask[y : y + height, x : x + width] = piece
    # The point must lie inside the component (published rules ask for that), so the deepest pixel, not the centroid.
    padded = cv2.copyMakeBorder(piece.astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    distance = cv2.distanceTransform(padded, cv2.DIST_L2, 3)[1:-1, 1:-1]
    py, px = np.unravel_index(int(np.argmax(distance)), distance.shape)
    detection = Detection(
        (float(x + px), float(y + py)),
        min(1.0, rounded(part[piece & (part >= level)].mean())),
        Box(x, y, width, height),
        BinaryMask(mask),
    )
    seen = appearance(rgb[y : y + height, x : x + width], piece)
    touching = border[y : y + height, x : x + width] & piece
    return Found(detection, seen, int(np.count_nonzero(touching)) >= 3)


def _peak(values: NDArray[np.float32]) -> float:
    """Mean of the surest tenth: one stray pixel does not make a polyp out of a faint stain."""
    keep = max(1, values.size // 10)
    return float(np.partition(values, values.size - keep)[values.size - keep :].mean())


def _border(area: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The pixels of the picture that lie at its edge or beside something drawn over it."""
    inner = cv2.erode(area.astype(np.uint8), np.ones((5, 5), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return area & (inner == 0)


def appearance(rgb: NDArray[np.uint8], mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Histogram of chromaticity inside a mask, 36 whole numbers that add up to about 255.

    Chromaticity, not colour: the light of the scope gets weaker with distance, its hue stays.
    """
    pixels = rgb[mask].astype(np.float32)
    pixels = pixels[pixels.max(axis=1) < 235]  # highlights show the lamp, not the polyp
    if pixels.shape[0] == 0:
        return (0,) * _CHROMA_BINS**2
    total = pixels.sum(axis=1) + 1.0
    # Mucosa lies in red share .38-.66 and green share .18-.38; the bins divide that range.
    red = np.clip((pixels[:, 0] / total - 0.38) / 0.28 * _CHROMA_BINS, 0, _CHROMA_BINS - 1e-3).astype(np.int64)
    green = np.clip((pixels[:, 1] / total - 0.18) / 0.20 * _CHROMA_BINS, 0, _CHROMA_BINS - 1e-3).astype(np.int64)
    counts = np.bincount(red * _CHROMA_BINS + green, minlength=_CHROMA_BINS**2)
    return tuple(int(v) for v in np.rint(255.0 * counts / counts.sum()))


def outline(mask: BinaryMask) -> list[NDArray[np.int32]]:
    """Outer contours of a mask, each int32 (N, 2) as x, y.

    >>> square = np.zeros((5, 5), bool)
    >>> square[1:4, 1:4] = True
    >>> outline(BinaryMask(square))[0].tolist()
    [[1, 1], [1, 3], [3, 3], [3, 1]]
    """
    contours, _ = cv2.findContours(mask.values.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [contour[:, 0, :] for contour in contours]
