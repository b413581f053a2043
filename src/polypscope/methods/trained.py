"""Files of trained methods: named arrays in .npz, never a pickle, with the name of the method they belong to."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polypscope.io.paths import atomic_path, require_file
from polypscope.records.errors import DamagedInput, InputError

__all__ = ["read_arrays", "write_arrays"]


def write_arrays(path: Path, method: str, arrays: dict[str, NDArray[np.generic]]) -> Path:
    """Write arrays of a trained method, atomically; returns the path."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, method=np.array(method), **arrays)
    return Path(path)


def read_arrays(path: Path, method: str, shapes: dict[str, tuple[int | str, ...]]) -> dict[str, NDArray[np.generic]]:
    """The named arrays of a file that was written for this method; nothing in it is ever executed.

    shapes: what each array must have. A letter stands for a length of one or more, the same wherever it stands.
    """
    path = require_file(path, f"trained file of {method}")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            owner = str(file["method"]) if "method" in file else ""
            if owner != method:
                raise InputError(
                    f"{path}: expected a file trained for {method}, found {owner or 'another kind of file'}; "
                    f"train one with a recipe of kind 'detector' and method '{method}'."
                )
            missing = [name for name in shapes if name not in file]
            if missing:
                raise DamagedInput(f"{path}: expected the array {missing[0]!r}, found none; train it again.")
            out = {name: file[name] for name in shapes}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError, AttributeError, TypeError):
        raise DamagedInput(
            f"{path}: expected a trained file of {method} (.npz), found something else; train it again."
        ) from None
    lengths: dict[int | str, int] = {}
    for name, shape in shapes.items():
        found = out[name].shape
        fits = len(found) == len(shape) and all(
            found[axis] == (side if isinstance(side, int) else lengths.setdefault(side, max(1, found[axis])))
            for axis, side in enumerate(shape)
        )
        if not fits or out[name].dtype.kind not in "fiub":
            raise DamagedInput(
                f"{path}: expected numbers of shape ({', '.join(map(str, shape))}) in {name!r}, found "
                f"{out[name].dtype} of shape {found}; train it again."
            )
    if any(not np.all(np.isfinite(a)) for a in out.values() if a.dtype.kind == "f"):
        raise DamagedInput(f"{path}: expected finite numbers, found others; train it again.")
    return out
