"""ICC against Shrout and Fleiss's example and against a mixed-model identity; Bland–Altman against its closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polypscope.evaluation.agreement import bland_altman, consensus, icc
from polypscope.records.errors import RecordError

SHROUT_FLEISS = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]


def test_icc_of_shrout_and_fleiss() -> None:
    found = icc(SHROUT_FLEISS)
    # Table 4 of the paper: ICC(2,1) = .29, ICC(3,1) = .71, ICC(2,4) = .62; McGraw and Wong's interval .02 to .76.
    assert found.icc_single == pytest.approx(0.29, abs=0.005)
    assert found.icc_consistency == pytest.approx(0.715, abs=0.005)
    assert found.icc_mean == pytest.approx(0.62, abs=0.005)
    assert found.icc_single_interval == pytest.approx((0.019, 0.761), abs=0.003)


def test_icc_recovers_the_variance_ratio() -> None:
    generator = np.random.default_rng(0)
    items = generator.normal(0, 2.0, (4000, 1))
    ratings = items + generator.normal(0, 1.0, (4000, 3))
    assert icc(ratings).icc_single == pytest.approx(4 / 5, abs=0.02)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 10), st.floats(-20, 20))
def test_icc_ignores_unit_and_origin(seed: int, scale: float, shift: float) -> None:
    ratings = np.random.default_rng(seed).normal(0, 1, (8, 3)) + np.arange(8)[:, None]
    assert icc(ratings * scale + shift).icc_single == pytest.approx(icc(ratings).icc_single, abs=1e-9)


def test_an_annotator_who_always_adds_a_millimetre_is_consistent_but_does_not_agree() -> None:
    size = np.array([3.0, 5.0, 8.0, 12.0])
    found = icc(np.stack([size, size + 1.0], axis=1))
    assert found.icc_consistency == pytest.approx(1.0)
    assert found.icc_single < 0.97


def test_bland_altman_closed_form() -> None:
    a, b = np.array([5.0, 6.0, 7.0, 9.0]), np.array([4.0, 6.5, 6.0, 8.0])
    found = bland_altman(a, b)
    difference = a - b
    assert found.bias == pytest.approx(difference.mean())
    assert found.high == pytest.approx(difference.mean() + 1.96 * difference.std(ddof=1))
    assert found.low_interval[0] < found.low < found.low_interval[1]
    half = 3.1824463 * difference.std(ddof=1) * np.sqrt(1 / 4 + 1.96**2 / 6)
    assert found.low - found.low_interval[0] == pytest.approx(half, rel=1e-6)


def test_bland_altman_sees_error_that_grows_with_size() -> None:
    true = np.linspace(2, 20, 30)
    assert bland_altman(true * 1.2, true).slope == pytest.approx(0.2 / 1.1, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "review", "reason"),
    [
        ([6.0], True, "one annotator"),
        ([6.0, 6.1, 6.2], False, ""),
        ([6.0, 8.5], True, "differ by 2.50"),
        ([4.9, 5.1], True, "both sides of 5"),
        ([30.0, 31.2], False, ""),
    ],
)
def test_consensus_asks_for_review_when_it_should(values: list[float], review: bool, reason: str) -> None:
    found = consensus(values)
    assert found.review is review
    assert reason in found.reason
    assert found.value == pytest.approx(float(np.median(values)))


@pytest.mark.parametrize(
    "call",
    [lambda: icc([[1, 2], [3, 4]]), lambda: icc([[1, np.nan], [3, 4], [5, 6]]), lambda: icc([[2, 2]] * 4),
     lambda: bland_altman([1, 2], [1, 2]), lambda: consensus([])],
)  # fmt: skip
def test_too_little_is_said(call: object) -> None:
    with pytest.raises(RecordError, match="expected"):
        call()  # type: ignore[operator]
