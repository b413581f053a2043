"""Run-length codes and polygons mean the same here as in Microsoft's maskApi (strings below were made by it)."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from polypscope.io.rle import RunLengths, mask_from_polygons
from polypscope.records.errors import DamagedInput


@pytest.mark.parametrize(
    ("polygon", "height", "width", "code"),
    [
        ([1.2, 1.7, 8.5, 2.1, 6.3, 9.9, 2.2, 7.4], 12, 10, ">1;5K001O001OLj0"),
        ([0, 0, 5, 0, 5, 5, 0, 5], 6, 6, "05100000006"),
    ],
)
def test_polygon_equals_reference(polygon: list[float], height: int, width: int, code: str) -> None:
    mask = mask_from_polygons([polygon], height=height, width=width)
    assert RunLengths.from_mask(mask).to_string() == code


def test_repeated_and_far_points_do_not_matter() -> None:
    square = [2.0, 2.0, 8.0, 2.0, 8.0, 8.0, 2.0, 8.0]
    doubled = [2.0, 2.0, 2.0, 2.0, 8.0, 2.0, 8.0, 8.0, 2.0, 8.0]
    mask = mask_from_polygons([square], height=10, width=10)
    assert (mask == mask_from_polygons([doubled], height=10, width=10)).all()
    everything = mask_from_polygons([[-1e9, -1e9, 1e9, -1e9, 1e9, 1e9, -1e9, 1e9]], height=5, width=5)
    assert everything.all()


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40)))
def test_round_trip(mask: np.ndarray) -> None:
    code = RunLengths.from_mask(mask)
    assert code.area_px == mask.sum()
    assert (code.to_mask() == mask).all()
    assert RunLengths.from_string(code.to_string(), height=mask.shape[0], width=mask.shape[1]) == code


@given(st.text(max_size=30), st.integers(0, 5), st.integers(0, 5))
def test_any_string_is_decoded_or_refused(text: str, height: int, width: int) -> None:
    with suppress(DamagedInput):
        assert RunLengths.from_string(text, height=height, width=width).to_mask().shape == (height, width)
