"""Masks in and out. What counts as polyp is a named threshold, because published protocols differ in it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.io.images import read_grey, write_image
from polypscope.records import BinaryMask, ProbabilityMap
from polypscope.records.errors import DamagedInput

__all__ = [
    "MaskThreshold",
    "connected_instances",
    "read_instances",
    "read_mask",
    "read_probability",
    "write_instances",
    "write_mask",
    "write_probability",
]


class MaskThreshold(StrEnum):
    """When a grey value of 0 to 255 is polyp. Values of 16-bit masks are first divided by 257."""

    ABOVE_128 = "above 128"  # SUN-SEG's toolbox: 128 is background
    AT_LEAST_128 = "at least 128"  # MICCAI 2015
    ABOVE_0 = "above 0"  # label maps and masks stored as 0 and 1

    def apply(self, grey: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Bool (H, W) of a grey image.

        >>> values = np.array([[0, 1, 128, 129]], np.uint8)
        >>> [int(threshold.apply(values).sum()) for threshold in MaskThreshold]
        [1, 2, 3]
        """
        if self is MaskThreshold.ABOVE_0:
            return grey > 0
        return grey > 128 if self is MaskThreshold.ABOVE_128 else grey >= 128


def read_mask(
    path: str | Path, threshold: MaskThreshold = MaskThreshold.AT_LEAST_128, *, max_pixels: int | None = None
) -> BinaryMask:
    """Read a mask image and compare it with a named threshold."""
    return BinaryMask(threshold.apply(_grey8(path, threshold, max_pixels)))


def write_mask(path: str | Path, mask: BinaryMask) -> Path:
    """Write a mask as an 8-bit image of 0 and 255."""
    return write_image(path, mask.values.astype(np.uint8) * np.uint8(255))


def read_instances(path: str | Path, *, max_pixels: int | None = None) -> NDArray[np.uint16]:
    """Read a label map, uint16 (H, W): 0 is background, other values are polyp ids as stored (8 or 16 bits)."""
    return read_grey(path, max_pixels=max_pixels).astype(np.uint16)


def write_instances(path: str | Path, instances: NDArray[np.uint16]) -> Path:
    """Write a label map, with 8 bits where the largest id allows it."""
    small = instances.size == 0 or int(instances.max()) <= 255
    return write_image(path, instances.astype(np.uint8) if small else instances)


def connected_instances(mask: BinaryMask) -> NDArray[np.uint16]:
    """Number the 8-connected components of a mask from 1, as uint16 (H, W); the numbering goes top to bottom.

    >>> connected_instances(BinaryMask(np.eye(2, dtype=bool))).tolist()
    [[1, 0], [0, 1]]
    """
    count, labels = cv2.connectedComponents(mask.values.astype(np.uint8), connectivity=8, ltype=cv2.CV_32S)
    if count > 65536:
        raise DamagedInput(f"mask: expected fewer than 65,536 separate regions, found {count - 1}; is it a photograph?")
    numbered: NDArray[np.uint16] = labels.astype(np.uint16)
    return numbered


def read_probability(path: str | Path, *, max_pixels: int | None = None) -> ProbabilityMap:
    """Read a grey image as probabilities: 8 bits divided by 255, 16 bits by 65535."""
    grey = read_grey(path, max_pixels=max_pixels)
    return ProbabilityMap(grey.astype(np.float32) / np.float32(np.iinfo(grey.dtype).max))


def write_probability(path: str | Path, probability: ProbabilityMap, *, bits: int = 8) -> Path:
    """Write probabilities as a grey image, rounded to 8 bits (what evaluators of the field read) or 16."""
    dtype: Any = np.uint8 if bits == 8 else np.uint16
    return write_image(path, np.rint(probability.values * np.float32(np.iinfo(dtype).max)).astype(dtype))


def _grey8(path: str | Path, threshold: MaskThreshold, max_pixels: int | None) -> NDArray[np.uint8]:
    grey = read_grey(path, max_pixels=max_pixels)
    if grey.dtype == np.uint8:
        return grey.astype(np.uint8, copy=False)
    # Dividing would send a 16-bit label of 1 to 0, which "above 0" must not.
    if threshold is MaskThreshold.ABOVE_0:
        return (grey > 0).astype(np.uint8)
    return (grey // 257).astype(np.uint8)
