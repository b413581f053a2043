"""The small network: gradients against finite differences, convolution against OpenCV's, and a problem to learn."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from polypscope.methods.patch_cnn import PATCH, ROOM, PatchCnn, backward, draw_weights, fit_cnn, forward, shapes
from polypscope.records.errors import RecordError


def test_gradients_equal_finite_differences() -> None:
    rng = np.random.default_rng(0)
    weights = [w.astype(np.float64) for w in draw_weights(2, rng, patch=16)]
    for bias in weights[1::2]:
        bias += rng.normal(0, 0.1, bias.shape)
    x, answer = rng.normal(0, 1, (5, 16, 16, 2)), rng.integers(0, 2, 5)

    def loss() -> float:
        logits, _ = forward(weights, x)
        return float((np.logaddexp(0, logits) - answer * logits).sum())

    logits, kept = forward(weights, x)
    grads = backward(weights, kept, 1 / (1 + np.exp(-logits)) - answer)
    for w, g in zip(weights, grads, strict=True):
        assert g.shape == w.shape
        for i in rng.choice(w.size, min(w.size, 12), replace=False):
            step = 1e-6
            before = w.flat[i]
            w.flat[i] = before + step
            up = loss()
            w.flat[i] = before - step
            down = loss()
            w.flat[i] = before
            assert g.flat[i] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-6)


def test_a_convolution_equals_opencvs() -> None:
    rng = np.random.default_rng(1)
    weights = draw_weights(1, rng)
    x = rng.normal(0, 1, (1, PATCH, PATCH, 1)).astype(np.float32)
    _, kept = forward(weights, x)
    expected = cv2.filter2D(x[0, ..., 0], -1, weights[0][:, :, 0, 3], borderType=cv2.BORDER_CONSTANT)[::2, ::2]
    assert kept[0][1][0, ..., 3] == pytest.approx(np.maximum(expected, 0), abs=1e-4)


def _patches(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A disk on noise, against a cross of as many pixels: equal means, only shape differs."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:ROOM, :ROOM] - ROOM / 2
    out, positive = np.zeros((count, ROOM, ROOM, 3), np.uint8), np.arange(count) % 2 == 0
    for i in range(count):
        dx, dy = rng.uniform(-4, 4, 2)
        disk = np.hypot(x - dx, y - dy) < 7.4
        cross = (np.abs(x - dx) < 2.5) | (np.abs(y - dy) < 2.5)
        shape = disk if positive[i] else cross & (np.abs(x - dx) + np.abs(y - dy) < 18)
        out[i] = np.clip(110 + 50 * shape + rng.normal(0, 15, shape.shape), 0, 255).astype(np.uint8)[..., None]
    return out, positive


def test_it_learns_a_shape_and_the_seed_decides() -> None:
    train, positive = _patches(60, 0)
    test, truth = _patches(40, 1)
    network = fit_cnn(train, positive, batch=32)
    answer = network.probability(test)
    assert ((answer > 0.5) == truth).mean() >= 0.9
    assert np.array_equal(fit_cnn(train, positive, batch=32).probability(test), answer)
    assert network.probability(test[:0]).shape == (0,)
    with pytest.raises(RecordError, match="with and without polyp"):
        fit_cnn(train, np.ones(60, bool))


def test_weights_that_do_not_fit_are_refused() -> None:
    weights = tuple(draw_weights(3, np.random.default_rng(0)))
    assert [w.shape for w in weights] == shapes(3)
    mean, deviation = np.zeros(3, np.float32), np.ones(3, np.float32)
    PatchCnn(weights, mean, deviation)
    for w, m, d in ((weights[1:], mean, deviation), (weights, mean[:2], deviation[:2]), (weights, mean, 0 * deviation)):
        with pytest.raises(RecordError, match="PatchCnn"):
            PatchCnn(w, m, d)
