"""Plain overlaps against set arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from polypscope.evaluation.segmentation import count, dice, iou, mean_dice, mean_iou
from polypscope.records.errors import RecordError

MASKS = st.tuples(arrays(bool, (5, 6)), arrays(bool, (5, 6)))


@given(MASKS)
def test_overlaps_equal_set_arithmetic(pair: tuple[np.ndarray, np.ndarray]) -> None:
    truth, prediction = pair
    t, p = set(np.flatnonzero(truth)), set(np.flatnonzero(prediction))
    c = count(truth, prediction)
    assert (c.tp, c.fp, c.fn, c.tn) == (len(t & p), len(p - t), len(t - p), truth.size - len(t | p))
    assert dice(truth, prediction) == (2 * len(t & p) / (len(t) + len(p)) if t or p else 1.0)
    assert iou(truth, prediction) == (len(t & p) / len(t | p) if t | p else 1.0)
    assert iou(truth, prediction) <= dice(truth, prediction) <= 1.0
    assert dice(truth, truth) == 1.0


@pytest.mark.parametrize(
    ("truth", "prediction", "recall", "precision"),
    [([1, 1, 0], [1, 0, 1], 0.5, 0.5), ([0, 0, 0], [0, 0, 0], 1, 1), ([0, 0, 0], [1, 0, 0], 0, 0), ([1], [0], 0, 0)],
)
def test_recall_and_precision(truth: list[int], prediction: list[int], recall: float, precision: float) -> None:
    c = count(np.array(truth, bool), np.array(prediction, bool))
    assert (c.recall(), c.precision()) == (recall, precision)


def test_means_count_each_image_once() -> None:
    full, empty = np.ones((2, 2), bool), np.zeros((2, 2), bool)
    assert mean_dice([(full, full), (full, empty)]) == 0.5
    assert mean_iou([(full, full), (empty, empty)], empty=0.0) == 0.5


def test_wrong_input_is_answered_in_words() -> None:
    mask = np.zeros((2, 2), bool)
    with pytest.raises(RecordError, match="expected a bool mask, found dtype uint8"):
        dice(mask.astype(np.uint8), mask)
    with pytest.raises(RecordError, match=r"expected the truth's shape \(2, 2\), found \(3, 2\)"):
        dice(mask, np.zeros((3, 2), bool))
    with pytest.raises(RecordError, match="at least one pair"):
        mean_dice([])
