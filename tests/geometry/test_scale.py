"""Scale from known depths: closed forms for one and many contacts, an independent oracle, and odd readings."""

from __future__ import annotations

import numpy as np
import pytest

from polypscope.geometry.scale import CHANGING, LASTS_S, READING, SHARED, ScaleCourse
from polypscope.records.errors import RecordError


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("apart_s", [0.0, 0.2, 1.0, 600.0])
def test_one_contact_counts_by_what_moments_share(ratio: float, apart_s: float) -> None:
    shared = SHARED**2 + CHANGING**2 * np.exp(-apart_s / LASTS_S)
    weight = shared / (SHARED**2 + CHANGING**2 + READING**2)
    course = ScaleCourse((10.0,), (ratio,))
    assert course.factor(10.0 + apart_s) == pytest.approx(ratio**weight)
    assert course.factor(10.0 - apart_s) == pytest.approx(ratio**weight)


def test_many_contacts_that_agree_are_believed_anywhere() -> None:
    course = ScaleCourse(tuple(np.arange(0.0, 1000.0, 5.0)), (1.25,) * 200)
    for time_s in (2.5, 100.0, 10_000.0):
        assert course.factor(time_s) == pytest.approx(1.25, abs=0.01)


def test_equals_the_conditional_mean_of_drawn_errors() -> None:
    """Errors are drawn by their definition; among those near two readings, the mean error elsewhere is the estimate."""
    rng = np.random.default_rng(0)
    gap, count = 0.3, 3_000_000
    keep = np.exp(-gap / LASTS_S)
    first = CHANGING * rng.standard_normal(count)  # what changes, at three moments in a row
    second = keep * first + CHANGING * np.sqrt(1 - keep**2) * rng.standard_normal(count)
    third = keep * second + CHANGING * np.sqrt(1 - keep**2) * rng.standard_normal(count)
    shared = SHARED * rng.standard_normal(count)
    read = [shared + part + READING * rng.standard_normal(count) for part in (first, third)]
    near = (np.abs(read[0] - 0.15) < 0.01) & (np.abs(read[1] + 0.05) < 0.01)
    course = ScaleCourse((0.0, 2 * gap), (float(np.exp(0.15)), float(np.exp(-0.05))))
    assert np.log(course.factor(gap)) == pytest.approx((shared + second)[near].mean(), abs=0.004)
    assert np.log(course.factor(0.0)) == pytest.approx((shared + first)[near].mean(), abs=0.004)


def test_one_odd_reading_among_several_hardly_counts() -> None:
    times = (0.0, 20.0, 40.0, 60.0, 80.0)
    plain = ScaleCourse(times, (1.1,) * 5).factor(200.0)
    spoilt = ScaleCourse(times, (1.1, 1.1, 2.9, 1.1, 1.1)).factor(200.0)
    mean = float(np.exp(np.mean(np.log([1.1, 1.1, 2.9, 1.1, 1.1]))))
    assert abs(spoilt - plain) < 0.35 * abs(mean - plain)


def test_the_order_of_contacts_does_not_matter() -> None:
    a = ScaleCourse((1.0, 5.0, 5.2), (1.1, 0.9, 0.95))
    b = ScaleCourse((5.2, 1.0, 5.0), (0.95, 1.1, 0.9))
    assert a.factor(3.0) == pytest.approx(b.factor(3.0))


@pytest.mark.parametrize(
    ("times", "ratios", "words"),
    [
        ((), (), "at least one"),
        ((1.0,), (1.0, 1.1), "as many ratios as times"),
        ((1.0,), (0.0,), "above 0"),
        ((1.0,), (float("nan"),), "above 0"),
    ],
)
def test_bad_input_is_named(times: tuple[float, ...], ratios: tuple[float, ...], words: str) -> None:
    with pytest.raises(RecordError, match=words):
        ScaleCourse(times, ratios)
