"""Grey images exactly as evaluation toolboxes read them: `cv2.imread(path, IMREAD_GRAYSCALE)`, but never silently.

Published scores depend on how a colour PNG or a JPEG becomes grey, and OpenCV's decoders do it their own way (a colour
PNG inside libpng, a JPEG by its luminance), so `io.images.read_grey` would differ by a grey level here and there.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.io.image_headers import HeaderError, read_header
from polypscope.io.limits import check_pixels
from polypscope.io.paths import require_file
from polypscope.records.errors import DamagedInput

__all__ = ["read_grey_as_opencv"]


def read_grey_as_opencv(path: str | Path) -> NDArray[np.uint8]:
    """The image as uint8 (H, W); `DamagedInput` in words where OpenCV would return None or a part of the picture."""
    path = require_file(path, "image")
    data = path.read_bytes()
    try:
        header = read_header(data)
    except HeaderError as error:
        raise DamagedInput(f"{path}: expected an image, found {error}; copy or convert it again.") from None
    check_pixels(header.width, header.height, str(path))
    if header.fault:
        raise DamagedInput(f"{path}: expected a whole image, found {header.fault}; copy it again.")
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    except cv2.error:
        pixels = None
    if pixels is None or pixels.dtype != np.uint8:
        raise DamagedInput(f"{path}: expected an image, found a {header.format} that cannot be decoded; copy it again.")
    return pixels.astype(np.uint8, copy=False)
