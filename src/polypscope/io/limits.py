"""The pixel limit that keeps a decompression bomb from filling memory: a tiny file may claim to be a huge image."""

from __future__ import annotations

import os

from polypscope.records.errors import UnsafeInput, UsageError

__all__ = ["DEFAULT_MAX_PIXELS", "MAX_PIXELS_VARIABLE", "check_pixels", "max_pixels"]

DEFAULT_MAX_PIXELS = 100_000_000
"""Pixels that one image or video frame may have: three 8K frames, 300 MB as RGB."""

MAX_PIXELS_VARIABLE = "POLYPSCOPE_MAX_PIXELS"
"""Environment variable that overrides the limit."""


def max_pixels() -> int:
    """The limit in force: `POLYPSCOPE_MAX_PIXELS` if it is set, else 100 million."""
    text = os.environ.get(MAX_PIXELS_VARIABLE)
    if not text:
        return DEFAULT_MAX_PIXELS
    try:
        limit = int(text.replace("_", ""))
    except ValueError:
        limit = 0
    if limit < 1:
        raise UsageError(
            f"{MAX_PIXELS_VARIABLE}: expected a whole number of pixels above 0, found {text!r}; correct it."
        )
    return limit


def check_pixels(width: int, height: int, what: str, limit: int | None = None) -> None:
    """Raise UnsafeInput when an image of this size is above the limit (`limit`, or the one in force when None)."""
    limit = max_pixels() if limit is None else limit
    if width * height > limit:
        raise UnsafeInput(
            f"{what}: expected at most {limit:,} pixels, found {width}×{height} = {width * height:,}; "
            f"if you trust it, set {MAX_PIXELS_VARIABLE} higher."
        )
