"""Still images in and out: PNG, JPEG, TIFF and BMP with 8 or 16 bits.

Pixels are given as they are stored: an EXIF orientation is not applied, because the mask that belongs to an image
carries none. An image above the pixel limit is refused before it is decoded, and a damaged one is never returned.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.io.image_headers import HeaderError, ImageHeader, insert_png_text, read_header
from polypscope.io.limits import check_pixels
from polypscope.io.paths import require_file, write_bytes
from polypscope.records.errors import DamagedInput, OutputError

__all__ = ["IMAGE_SUFFIXES", "decode_image", "image_size", "read_grey", "read_image", "read_rgb", "write_image"]

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp"})
_FORMATS = "a PNG, JPEG, TIFF or BMP image"

Pixels = NDArray[np.uint8] | NDArray[np.uint16]

# The decoder's own remarks on damaged files would reach the terminal beside our sentence.
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def image_size(path: str | Path) -> tuple[int, int]:
    """(width, height) in pixels from the header, without decoding."""
    path = require_file(path, "image")
    header = _header(path.read_bytes(), path)
    return header.width, header.height


def read_image(path: str | Path, *, max_pixels: int | None = None) -> Pixels:
    """An image as it is stored: uint8 or uint16, (H, W) grey, or (H, W, 3) RGB (transparency is dropped).

    Parameters
    ----------
    path
        A PNG, JPEG, TIFF (first page) or BMP file; recognised by content, not by name.
    max_pixels
        Larger images are refused; when None, the limit in force (`polypscope.io.limits`).
    """
    path = require_file(path, "image")
    return decode_image(path.read_bytes(), path, max_pixels=max_pixels)


def decode_image(data: bytes, name: str | Path, *, max_pixels: int | None = None) -> Pixels:
    """Like `read_image`, for a file that is in memory already; `name` stands in the error sentence."""
    header = _header(data, name)
    check_pixels(header.width, header.height, str(name), max_pixels)
    if header.fault is not None:
        raise DamagedInput(f"{name}: expected a whole image, found {header.fault}; copy or download it again.")
    pixels = _decode_jpeg(data) if header.format == "JPEG" else _decode(data)
    if pixels is None:
        raise DamagedInput(
            f"{name}: expected {_FORMATS}, found a {header.format} that cannot be decoded; copy or export it again."
        )
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.shape[:2] != (header.height, header.width):
        raise DamagedInput(
            f"{name}: expected 8 or 16 bits per channel, found {pixels.dtype} of {pixels.shape[1]}×{pixels.shape[0]}; "
            "convert it first."
        )
    return cast(Pixels, pixels)


def read_rgb(path: str | Path, *, max_pixels: int | None = None) -> NDArray[np.uint8]:
    """An image as uint8 RGB (H, W, 3); of 16 bits the upper 8 are kept, and grey is repeated."""
    pixels = read_image(path, max_pixels=max_pixels)
    small = (pixels >> 8).astype(np.uint8) if pixels.dtype == np.uint16 else pixels.astype(np.uint8, copy=False)
    return small if small.ndim == 3 else np.repeat(small[:, :, None], 3, axis=2)


def read_grey(path: str | Path, *, max_pixels: int | None = None) -> Pixels:
    """An image as grey (H, W), uint8 or uint16 as stored; colours are weighted by ITU-R BT.601, as OpenCV does."""
    pixels = read_image(path, max_pixels=max_pixels)
    if pixels.ndim == 2:
        return pixels
    return cast(Pixels, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))


def write_image(path: str | Path, pixels: Pixels, *, quality: int = 95, text: dict[str, str] | None = None) -> Path:
    """Write grey (H, W) or RGB (H, W, 3) pixels, uint8 or uint16, atomically; the suffix of `path` chooses the format.

    Parameters
    ----------
    path
        Ends in .png, .jpg, .jpeg, .tif, .tiff or .bmp; JPEG and BMP hold 8 bits only.
    pixels
        The image.
    quality
        Of JPEG, 1 to 100.
    text
        Texts to keep inside a PNG, such as the unit of a depth map.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in IMAGE_SUFFIXES:
        raise OutputError(f"{path}: expected a name ending in {', '.join(sorted(IMAGE_SUFFIXES))}, found {suffix!r}.")
    if suffix in (".jpg", ".jpeg", ".bmp") and pixels.dtype != np.uint8:
        raise OutputError(f"{path}: expected 8-bit pixels for this format, found {pixels.dtype}; write a PNG instead.")
    channels = pixels if pixels.ndim == 2 else cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2BGR)
    options = {
        ".jpg": [cv2.IMWRITE_JPEG_QUALITY, quality],
        ".jpeg": [cv2.IMWRITE_JPEG_QUALITY, quality],
        # Fast compression: a sixth of the time of the default for a tenth more bytes on masks and depth maps.
        ".png": [cv2.IMWRITE_PNG_COMPRESSION, 3],
    }.get(suffix, [])
    good, encoded = cv2.imencode(suffix, channels, options)
    if not good:
        raise OutputError(f"{path}: expected to encode {pixels.dtype} {pixels.shape}, but the encoder refused it.")
    data = encoded.tobytes()
    return write_bytes(path, insert_png_text(data, text) if text and suffix == ".png" else data)


def _header(data: bytes, name: str | Path) -> ImageHeader:
    try:
        return read_header(data)
    except HeaderError as error:
        raise DamagedInput(f"{name}: expected {_FORMATS}, found {error}; copy or convert it again.") from None


def _decode(data: bytes) -> NDArray[Any] | None:
    try:
        pixels: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_UNCHANGED)
    except (cv2.error, MemoryError):
        return None
    if pixels is None or pixels.ndim == 2:
        return pixels
    if pixels.shape[2] <= 2:  # grey, or grey with transparency
        return np.ascontiguousarray(pixels[:, :, 0])
    return cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGB if pixels.shape[2] == 4 else cv2.COLOR_BGR2RGB)


def _decode_jpeg(data: bytes) -> NDArray[Any] | None:
    # OpenCV writes remarks on damaged JPEGs to standard error past its own log level; Pillow is quiet and stricter.
    # The class is called directly because Image.open adds Pillow's own size limit to ours.
    from PIL.JpegImagePlugin import JpegImageFile

    try:
        picture = JpegImageFile(io.BytesIO(data))
        picture.load()
        return np.asarray(picture if picture.mode in ("L", "RGB") else picture.convert("RGB"))
    except Exception:  # Pillow's plugins raise many types on damaged files; each means that it cannot be decoded
        return None
