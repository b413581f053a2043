"""Checks shared by the records; each raises `RecordError` saying what was expected and what was found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polypscope.records.errors import RecordError

__all__ = ["describe", "finite", "frozen_array", "non_negative_int", "positive", "same_shape"]


def describe(value: object) -> str:
    """A short description of what was found.

    >>> describe(np.zeros((2, 3), np.uint8))
    'uint8 array of shape (2, 3)'
    >>> describe("a")
    "str 'a'"
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def frozen_array(
    what: str, value: object, *, dtype: Any, ndim: int, last: int | None = None, hint: str = ""
) -> NDArray[Any]:
    """`value` as a read-only view, if it is a non-empty array of exactly this dtype and number of dimensions."""
    wanted = np.dtype(dtype)
    shape = {2: "(H, W)", 3: f"(H, W, {last if last is not None else 'C'})"}[ndim]
    good = (
        isinstance(value, np.ndarray)
        and value.dtype == wanted
        and value.ndim == ndim
        and value.size > 0
        and (last is None or value.shape[-1] == last)
    )
    if not good:
        raise RecordError.of(what, expected=f"a non-empty {wanted} array {shape}", found=describe(value), hint=hint)
    assert isinstance(value, np.ndarray)
    view: NDArray[Any] = value.view()
    view.flags.writeable = False
    return view


def finite(what: str, value: float, *, hint: str = "") -> float:
    """`value` as a float, if it is a finite number (a bool is not a number here)."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise RecordError.of(what, expected="a finite number", found=describe(value), hint=hint)
    if not math.isfinite(value):
        raise RecordError.of(what, expected="a finite number", found=str(value), hint=hint)
    return float(value)


def positive(what: str, value: float, *, hint: str = "") -> float:
    """`value` as a float, if it is finite and above zero."""
    number = finite(what, value, hint=hint)
    if number <= 0:
        raise RecordError.of(what, expected="a number above 0", found=f"{number:g}", hint=hint)
    return number


def non_negative_int(what: str, value: int, *, hint: str = "") -> int:
    """`value` as an int, if it is a whole number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise RecordError.of(what, expected="a whole number from 0 on", found=describe(value), hint=hint)
    return int(value)


def same_shape(what: str, shape: tuple[int, ...], other: str, other_shape: tuple[int, ...]) -> None:
    """Raise unless two records cover the same pixels."""
    if tuple(shape) != tuple(other_shape):
        raise RecordError.of(
            what, expected=f"the shape of {other}, {tuple(other_shape)}", found=str(tuple(shape)), hint="resize one"
        )
