"""Fusion: exact maxima against a filled image, the paper's voting rule, and the search against fusing one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import label

from polypscope.evaluation.detection import DetectionTable, TruthTable, TruthTableBuilder, evaluate_detection
from polypscope.evaluation.detection.synthetic import SyntheticMethod, SyntheticVideo, simulate_method, simulate_truth
from polypscope.evaluation.fusion import STRATEGIES, Sigma, fuse, saliency_maxima, sigma_from_polyps
from polypscope.evaluation.fusion_search import search_combinations
from polypscope.records.errors import UsageError


def filled(x, y, sigma_px: float, height: int, width: int, weight=None) -> np.ndarray:
    yy, xx = np.mgrid[0:height, 0:width]
    weights = np.ones(len(x)) if weight is None else weight
    return sum(
        w * np.exp(-((xx - a) ** 2 + (yy - b) ** 2) / (2 * sigma_px**2)) for a, b, w in zip(x, y, weights, strict=True)
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(0.8, 40))
def test_maxima_are_those_of_the_filled_image(seed, count, sigma_px):
    rng = np.random.default_rng(seed)
    height, width = rng.integers(5, 90, 2)
    x, y = rng.integers(0, width, count), rng.integers(0, height, count)
    found, value = saliency_maxima(x, y, sigma_px)
    image = filled(x, y, sigma_px, height, width)
    assert value == pytest.approx(image.max(), rel=1e-12)
    tied, groups = label(image >= image.max() * (1 - 1e-9), np.ones((3, 3)))
    assert groups == len(found)
    assert sorted(tied[b, a] for a, b in found) == list(range(1, groups + 1))


@pytest.mark.parametrize("distance", [2, 10, 19, 20, 21, 22, 30, 60])
def test_two_equal_gaussians_merge_up_to_two_sigma(distance):
    found, _ = saliency_maxima(np.array([10, 10 + distance]), np.array([5, 5]), 10.0)
    assert len(found) == (1 if distance <= 20 else 2)


def study(*frames: int, size: int = 100) -> TruthTable:
    """One frame per number: 1 with a polyp in the upper left quarter, 0 without."""
    builder = TruthTableBuilder()
    builder.start_video("v")
    for f, polyp in enumerate(frames):
        builder.add_frame(f, f / 25, size, size)
        if polyp:
            builder.add_polyp(1, box=(0, 0, 30, 30))
    return builder.build()


def says(truth: TruthTable, name: str, *rows: tuple[int, float, float], scores=None) -> DetectionTable:
    frame, x, y = np.array(rows, dtype=float).reshape(-1, 3).T
    score = None if scores is None else np.array(scores, dtype=float)
    return DetectionTable.from_columns(truth, name, frame=frame.astype(int), x=x, y=y, score=score)


def test_union_is_concatenation():
    truth = study(1, 0)
    both = fuse(truth, [says(truth, "a", (0, 5, 5), (1, 9, 9)), says(truth, "b", (0, 5, 5), (0, 70, 70))], "union")
    assert both.outputs.tolist() == [3, 1]
    assert both.name == "union (a, b)"
    counts = evaluate_detection(truth, [both]).methods[0].group("all").counts
    assert (counts.tp, counts.fp, counts.tn) == (1, 2, 0)


@pytest.mark.parametrize(
    ("teams", "speaking", "output"),
    [(1, 1, True), (2, 1, True), (3, 1, False), (3, 2, True), (4, 2, True), (5, 2, False)],
)
def test_voting_needs_half_of_the_teams_so_one_of_two_is_enough(teams, speaking, output):
    truth = study(0)
    methods = [says(truth, f"m{i}", *([(0, 50, 50)] if i < speaking else [])) for i in range(teams)]
    assert bool(fuse(truth, methods, "voting", sigma=Sigma(5)).outputs[0]) is output
    assert bool(fuse(truth, methods, "saliency", sigma=Sigma(5)).outputs[0]) is True


def test_the_maximum_goes_where_most_points_are():
    truth = study(1)
    methods = [says(truth, "a", (0, 10, 10)), says(truth, "b", (0, 14, 10)), says(truth, "c", (0, 80, 80))]
    fused = fuse(truth, methods, "saliency", sigma=Sigma(6))
    assert (fused.x.tolist(), fused.y.tolist()) == ([12.0], [10.0])
    assert fused.score[0] == pytest.approx(2 * np.exp(-(2**2) / 72) / 3)


def test_tie_policies():
    truth = study(0)
    methods = [says(truth, "a", (0, 10, 90), scores=[0.9]), says(truth, "b", (0, 90, 10), scores=[0.3])]
    for policy, expected in (("all", [[90, 10], [10, 90]]), ("first", [[90, 10]]), ("confidence", [[10, 90]])):
        fused = fuse(truth, methods, "saliency", sigma=Sigma(5), ties=policy)
        assert np.stack([fused.x, fused.y], axis=1).tolist() == expected, policy


def test_one_vote_per_method_tames_a_talkative_one():
    truth = study(0)
    talkative = says(truth, "talks", (0, 80, 80), (0, 81, 80), (0, 80, 81))
    methods = [talkative, says(truth, "a", (0, 9, 9)), says(truth, "b", (0, 9, 9))]
    by_point = fuse(truth, methods, "saliency", sigma=Sigma(5))
    by_method = fuse(truth, methods, "saliency", sigma=Sigma(5), one_vote_per_method=True)
    assert by_point.x[0] >= 80
    assert by_method.x[0] == 9


def test_points_outside_the_image_vote_from_its_border():
    truth = study(0)
    fused = fuse(truth, [says(truth, "a", (0, 1e6, 50))], "saliency", sigma=Sigma(5))
    assert (fused.x[0], fused.y[0]) == (99, 50)


@pytest.mark.parametrize("ties", ["all", "first", "confidence"])
def test_search_agrees_with_fusing_every_subset_by_itself(ties):
    videos = [
        SyntheticVideo("p", 30, 60, 80, ((3, 14), (20, 28)), radius_px=10),
        SyntheticVideo("n", 20, 60, 80),
    ]
    truth = simulate_truth(videos)
    specs = [SyntheticMethod(f"m{i}", 0.3 + 0.2 * i, noise_px=6, false_alarms=0.5, scores=i != 1) for i in range(4)]
    methods = [simulate_method(truth, videos, spec, seed=3) for spec in specs]
    sigma = Sigma(0.06, "diagonal")
    result = search_combinations(truth, methods, sigma=sigma, ties=ties, threads=2)
    assert len([c for c in result.combinations if c.group == "all"]) == 3 * 15
    for strategy in STRATEGIES:
        for size in (1, 2, 3, 4):
            for subset in combinations(methods, size):
                fused = fuse(truth, list(subset), strategy, sigma=sigma, ties=ties)
                one = evaluate_detection(truth, [fused]).methods[0]
                for group in ("all", "mixed", "no_polyp"):
                    found = next(
                        c
                        for c in result.combinations
                        if c.strategy == strategy and c.group == group and c.methods == tuple(m.name for m in subset)
                    )
                    assert found.counts == one.group(group).counts, (strategy, found.methods, group)
    best = result.best("f1")
    assert all(best[s].metrics["f1"] == max(c.metrics["f1"] for c in result.ranked(s)) for s in STRATEGIES)


def test_sigma_forms():
    assert Sigma.parse(" 12.5 PX ").pixels(1, 1) == 12.5
    assert Sigma.parse("10%").pixels(30, 40) == pytest.approx(5)
    assert str(Sigma.parse("3%")) == "3 % of the diagonal"
    for bad in ("", "x", "0", "-3", "12 mm"):
        with pytest.raises(UsageError, match="sigma"):
            Sigma.parse(bad)


def test_sigma_from_training_polyps_is_half_their_radius():
    videos = [SyntheticVideo("p", 5, 300, 400, ((0, 5),), radius_px=40)]
    assert sigma_from_polyps(simulate_truth(videos)).pixels(300, 400) == pytest.approx(20, rel=0.01)
    with pytest.raises(UsageError, match="no polyp"):
        sigma_from_polyps(study(0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t, m: fuse(t, m, "saliency"), "--sigma"),
        (lambda t, m: fuse(t, m, "blend", sigma=Sigma(3)), "union"),
        (lambda t, m: fuse(t, [], "union"), "at least one"),
        (lambda t, m: search_combinations(t, m * 13, sigma=Sigma(3)), "leave the weakest out"),
    ],
)
def test_errors(call, words):
    truth = study(0)
    with pytest.raises(UsageError, match=words):
        call(truth, [says(truth, "a", (0, 1, 1))])
