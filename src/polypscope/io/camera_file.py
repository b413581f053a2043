"""Camera files, as `polypscope calibrate` writes them."""

from __future__ import annotations

from pathlib import Path

from polypscope.io.paths import read_text, require_file
from polypscope.records import Camera
from polypscope.records.errors import DamagedInput, MissingInput, RecordError

__all__ = ["read_camera"]


def read_camera(path: str | Path) -> Camera:
    """The camera in a JSON file."""
    try:
        path = require_file(path, "camera file")
    except MissingInput:
        raise MissingInput(
            f"{path}: expected a camera file, found nothing there; make one with `polypscope calibrate`."
        ) from None
    try:
        return Camera.from_json(read_text(path))
    except RecordError as error:
        raise DamagedInput(f"{path}: {error}") from None
