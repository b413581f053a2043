"""Votes of edges: round boundaries are high, straight ones are not, and the contour has the shape's proportions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polypscope.methods.edge_votes import CELL_PX, find_candidates, group_votes, vote_map

EVERYWHERE = np.ones((120, 160), bool)


def _ring(axes: tuple[float, float], *, share: float = 1.0, inward: float = 1.0) -> np.ndarray:
    """Edges of an ellipse around (80, 60), normals inward; of its first `share` only."""
    angle = np.linspace(0, 2 * np.pi * share, round(200 * share), endpoint=False)
    out = np.stack([np.cos(angle) * axes[1], np.sin(angle) * axes[0]], axis=1)
    out /= np.linalg.norm(out, axis=1, keepdims=True)
    place = np.stack([80 + axes[0] * np.cos(angle), 60 + axes[1] * np.sin(angle)], axis=1)
    return np.concatenate([place, -inward * out], axis=1)


def _map(edges: np.ndarray) -> np.ndarray:
    return vote_map(edges, np.full(len(edges), 0.5, np.float32), EVERYWHERE)


@pytest.mark.parametrize("axes", [(18.0, 18.0), (24.0, 16.0), (16.0, 24.0)])
def test_a_ring_votes_for_its_middle(axes: tuple[float, float]) -> None:
    best = find_candidates(_map(_ring(axes)))[0]
    assert math.hypot(best.x - 80, best.y - 60) < 8
    left, top, right, bottom = best.contour
    assert left < best.x < right
    assert top < best.y < bottom
    if axes[0] != axes[1]:
        assert (right - left > bottom - top) == (axes[0] > axes[1])
    else:
        assert (right - left) / (bottom - top) == pytest.approx(1, abs=0.15)


def test_half_a_ring_still_votes_but_parallel_lines_do_not() -> None:
    along = np.linspace(30, 130, 200)
    lines = np.concatenate(
        [np.stack([along, 0 * along + y, 0 * along, 0 * along + up], axis=1) for y, up in ((42, 1.0), (78, -1.0))]
    )
    half = _map(_ring((18, 18), share=0.5)).max()
    assert half > 3 * _map(lines).max()
    assert _map(_ring((18, 18))).max() > half


def test_normals_that_point_outward_leave_the_middle_empty() -> None:
    assert _map(_ring((18, 18), inward=-1.0))[30, 40] < 1e-6


def test_a_vote_lies_ahead_in_the_group_of_its_angle() -> None:
    for degrees, group in ((10, 0), (60, 1), (100, 2), (170, 3), (190, 0), (350, 3)):
        nx, ny = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        votes = group_votes(np.array([[80.0, 60.0, nx, ny]]), np.ones(1, np.float32), EVERYWHERE.shape)
        assert np.flatnonzero(votes.sum(axis=(1, 2))).tolist() == [group]
        row, column = (np.average(np.arange(n), weights=votes.sum(axis=0).sum(axis=a)) for a, n in ((1, 60), (0, 80)))
        x, y = ((v + 0.5) * CELL_PX - 0.5 for v in (column, row))
        assert math.degrees(math.atan2(y - 60, x - 80)) % 360 == pytest.approx(degrees, abs=3)
        near, far = (votes[group, round((60 + r * ny) / 2), round((80 + r * nx) / 2)] for r in (8, 30))
        assert near > 2 * far > 0


def test_the_map_is_on_one_scale() -> None:
    """Half the votes have half the energy: the map is not stretched to its own maximum."""
    edges = _ring((18, 18))
    strong, weak = (vote_map(edges, np.full(len(edges), w, np.float32), EVERYWHERE).max() for w in (0.1, 0.05))
    assert 0 < strong < 1
    assert weak == pytest.approx(strong / 2, rel=0.1)


def test_nothing_is_voted_for_outside_the_view_or_by_nobody() -> None:
    edges = _ring((18, 18))
    view = EVERYWHERE.copy()
    view[:, 70:] = False
    energy = vote_map(edges, np.ones(len(edges), np.float32), view)
    assert energy[:, 35:].max() == 0
    assert energy.max() > 0
    assert find_candidates(_map(np.zeros((0, 4)))) == []
