"""What an image file says of itself, read without decoding it: format, size, and whether it is whole.

The size is needed before decoding, to refuse a decompression bomb. Wholeness is needed because decoders are too kind:
they return a truncated JPEG with a grey lower half, and a PNG whose checksum fails, as if nothing had happened.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["HeaderError", "ImageHeader", "insert_png_text", "png_text", "read_header"]

_PNG = b"\x89PNG\r\n\x1a\n"
# Start-of-frame markers of JPEG: baseline, extended, progressive, lossless, and their arithmetic-coded kin.
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_TIFF_TYPES = {3: "H", 4: "I", 16: "Q"}


class HeaderError(ValueError):
    """Says in a few words what is wrong; the caller adds the file and turns it into DamagedInput."""


@dataclass(frozen=True)
class ImageHeader:
    """format: "PNG", "JPEG", "TIFF" or "BMP"; width, height in pixels; fault: what is broken or missing, if known."""

    format: str
    width: int
    height: int
    fault: str | None = None


def read_header(data: bytes) -> ImageHeader:
    """Header of a whole image file in memory; raises HeaderError if it has none that can be read."""
    try:
        if data.startswith(_PNG):
            return _png(data)
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data)
        if data.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
            return _tiff(data)
        if data.startswith(b"BM"):
            return _bmp(data)
    except (struct.error, IndexError, OverflowError):
        raise HeaderError("a header that ends too early") from None
    raise HeaderError(_what_else(data))


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int, bool]]:
    """(name, start, end, whole) of each chunk's content, up to IEND or the first chunk that is cut off."""
    at = len(_PNG)
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        start, end = at + 8, at + 8 + length
        if end + 4 > len(data):
            yield name, start, len(data), False
            return
        checksum = zlib.crc32(data[start:end], zlib.crc32(name))
        yield name, start, end, checksum == struct.unpack_from(">I", data, end)[0]
        if name == b"IEND":
            return
        at = end + 4


def _png(data: bytes) -> ImageHeader:
    name, width, height = struct.unpack_from(">4sII", data, 12)
    if name != b"IHDR" or width == 0 or height == 0:
        raise HeaderError("a PNG without a valid header")
    fault, seen = None, set()
    for name, _, end, whole in _png_chunks(data):
        # A lower-case first letter marks a chunk that the picture does not need.
        if not whole and not name[:1].islower():
            fault = "a PNG that is cut off" if end == len(data) else "a PNG with a wrong checksum"
            break
        seen.add(name)
    if fault is None and not {b"IDAT", b"IEND"} <= seen:
        fault = "a PNG that is cut off"
    return ImageHeader("PNG", width, height, fault)


def png_text(data: bytes) -> dict[str, str]:
    """Text chunks of a PNG file (keys such as "depth_unit_mm"); empty for other files."""
    found = {}
    if data.startswith(_PNG):
        for name, start, end, whole in _png_chunks(data):
            key, separator, value = data[start:end].partition(b"\0")
            if name == b"tEXt" and whole and separator:
                found[key.decode("latin-1")] = value.decode("latin-1")
    return found


def insert_png_text(data: bytes, text: dict[str, str]) -> bytes:
    """The same PNG with text chunks behind its header.

    >>> png_text(insert_png_text(_PNG + b"\\0\\0\\0\\rIHDR" + bytes(17), {"depth_unit_mm": "0.01"}))
    {'depth_unit_mm': '0.01'}
    """
    after_header = len(_PNG) + 25
    chunks = b""
    for key, value in text.items():
        body = b"tEXt" + key.encode("latin-1") + b"\0" + value.encode("latin-1")
        chunks += struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return data[:after_header] + chunks + data[after_header:]


def _jpeg(data: bytes) -> ImageHeader:
    at, size = 2, None
    while True:
        while data[at] == 0xFF and data[at + 1] == 0xFF:
            at += 1
        if data[at] != 0xFF:
            raise HeaderError("a JPEG with a broken header")
        marker = data[at + 1]
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without content
            at += 2
            continue
        if marker == 0xD9:
            raise HeaderError("a JPEG without a picture")
        length = struct.unpack_from(">H", data, at + 2)[0]
        if marker in _SOF:
            height, width = struct.unpack_from(">HH", data, at + 5)
            size = (width, height)
        at += 2 + length
        if marker == 0xDA:
            break
    if size is None or size[0] == 0 or size[1] == 0:
        raise HeaderError("a JPEG without a picture size")
    fault = None if data.find(b"\xff\xd9", at) >= 0 else "a JPEG that is cut off"
    return ImageHeader("JPEG", *size, fault)


def _tiff(data: bytes) -> ImageHeader:
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    at = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)[0]
    count = struct.unpack_from(order + ("Q" if big else "H"), data, at)[0]
    entry, value_at, first = (20, 12, at + 8) if big else (12, 8, at + 2)
    size: dict[int, int] = {}
    for i in range(min(count, 4096)):
        tag, kind = struct.unpack_from(order + "HH", data, first + i * entry)
        if tag in (256, 257) and kind in _TIFF_TYPES:
            size[tag] = struct.unpack_from(order + _TIFF_TYPES[kind], data, first + i * entry + value_at)[0]
    if not size.get(256) or not size.get(257):
        raise HeaderError("a TIFF without a picture size")
    return ImageHeader("TIFF", size[256], size[257])


def _bmp(data: bytes) -> ImageHeader:
    offset, header = struct.unpack_from("<II", data, 10)
    if header == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        bits, compressed = struct.unpack_from("<H", data, 24)[0], False
    else:
        width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
        compressed = compression in (1, 2)
    width, height = abs(width), abs(height)
    if width == 0 or height == 0:
        raise HeaderError("a BMP without a picture size")
    needed = offset + height * ((width * bits + 31) // 32 * 4)
    cut = not compressed and len(data) < needed
    return ImageHeader("BMP", width, height, "a BMP that is cut off" if cut else None)


def _what_else(data: bytes) -> str:
    """A few words on what a file is that is no image of ours."""
    known = {
        b"GIF8": "a GIF",
        b"%PDF": "a PDF document",
        b"PK\x03\x04": "a ZIP archive",
        b"\x1f\x8b": "a gzip archive",
        b"<": "markup such as HTML (perhaps the error page of a failed download)",
        b"version https://git-lfs": "a Git LFS pointer (fetch the real file first)",
        b"{": "JSON",
    }
    for start, words in known.items():
        if data.startswith(start):
            return words
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "a WebP image"
    if data[4:8] == b"ftyp" or data[:4] in (b"RIFF", b"\x1aE\xdf\xa3"):
        return "a video"
    return "text" if data[:256].isascii() and b"\0" not in data[:256] else "something else"
