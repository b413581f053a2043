"""ETIS-LARIB: shapes, texture and boosting each against an obvious version, and the whole on drawn pictures."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import cv2
import numpy as np
import pytest
from scenes_of_mucosa import bright_disk, flat, mucosa

from polypscope.methods import etis_larib
from polypscope.methods.boosting import best_split, fit_stumps
from polypscope.methods.etis_larib import EtisLarib, train_etis_larib
from polypscope.methods.haralick import FEATURES, cooccurrence, haralick, texture
from polypscope.methods.hough import Ellipse, SizePrior, find_edges, find_ellipses
from polypscope.methods.trained import write_arrays
from polypscope.records.errors import DamagedInput, InputError, MissingInput, RecordError

WIDE = SizePrior(math.log(22), 1.0)


@pytest.mark.parametrize(
    ("axes", "angle_deg"), [((22, 22), 0), ((30, 19), 0), ((30, 19), 45), ((30, 19), 90), ((30, 19), 135)]
)
def test_a_drawn_ellipse_is_the_best_one_found(axes: tuple[int, int], angle_deg: int) -> None:
    grey = np.full((110, 140), 90, np.uint8)
    cv2.ellipse(grey, (70, 55), axes, angle_deg, 0, 360, 150, -1, cv2.LINE_AA)
    noisy = np.clip(grey + np.random.default_rng(0).normal(0, 3, grey.shape), 0, 255).astype(np.uint8)
    found = find_ellipses(find_edges(noisy, np.ones(grey.shape, bool)), grey.shape, WIDE)
    best = found[0]
    assert math.hypot(best.x - 70, best.y - 55) < 4
    assert best.radius == pytest.approx(math.sqrt(axes[0] * axes[1]), rel=0.12)
    if axes[0] != axes[1]:
        assert best.aspect > 1
        assert best.angle == pytest.approx(math.radians(angle_deg))
    else:
        assert best.aspect == 1
    assert all(a.support >= b.support for a, b in itertools.pairwise(found))


def test_the_size_prior_decides_between_two_circles() -> None:
    grey = np.full((110, 160), 90, np.uint8)
    cv2.circle(grey, (45, 55), 14, 150, -1, cv2.LINE_AA)
    cv2.circle(grey, (110, 55), 34, 150, -1, cv2.LINE_AA)
    edges = find_edges(grey, np.ones(grey.shape, bool))
    small = find_ellipses(edges, grey.shape, SizePrior(math.log(14), 0.3))[0]
    large = find_ellipses(edges, grey.shape, SizePrior(math.log(34), 0.3))[0]
    assert abs(small.x - 45) < 4
    assert abs(large.x - 110) < 4


def test_support_is_a_share_of_the_outline_and_no_two_regions_are_alike() -> None:
    grey = np.full((130, 200), 90, np.uint8)
    for centre, radius in (((45, 60), 14), ((130, 62), 38)):
        cv2.circle(grey, centre, radius, 150, -1, cv2.LINE_AA)
    edges = find_edges(grey, np.ones(grey.shape, bool))
    found = find_ellipses(edges, grey.shape, SizePrior(3.0, 100.0))
    assert {round(one.radius / 4) for one in found[:2]} == {4, 9}
    assert [one.support for one in found[:2]] == pytest.approx([0.95, 0.95], abs=0.1)
    for one, other in itertools.combinations(found, 2):
        small, large = sorted((one.radius, other.radius))
        assert math.hypot(one.x - other.x, one.y - other.y) >= 0.4 * small or large >= 1.6 * small
    assert len(found) == 14
    assert find_ellipses(edges, grey.shape, SizePrior(3.0, 100.0), most=3) == found[:3]


def test_edges_are_those_of_allowed_places_and_none_of_noise() -> None:
    noise = np.clip(np.random.default_rng(0).normal(120, 6, (110, 140)), 0, 255).astype(np.uint8)
    everywhere = np.ones(noise.shape, bool)
    assert len(find_edges(noise, everywhere)) == 0
    cv2.circle(noise, (70, 55), 25, 200, -1, cv2.LINE_AA)
    right = everywhere.copy()
    right[:, :70] = False
    edges = find_edges(noise, right)
    assert edges[:, 0].min() >= 70
    assert len(edges) == pytest.approx(len(find_edges(noise, everywhere)) / 2, rel=0.1)
    # Normals point from the dark to the bright side, so towards the middle.
    inward = -(edges[:, 2] * (edges[:, 0] - 70) + edges[:, 3] * (edges[:, 1] - 55)) / 25
    assert np.median(inward) > 0.9


@pytest.mark.parametrize("angle_deg", [0, 30, 90, 150])
def test_an_ellipse_knows_what_it_contains(angle_deg: int) -> None:
    angle = math.radians(angle_deg)
    one = Ellipse(10, 20, 4, 4.0, angle)  # half axes 8 and 2
    assert one.reach() == 8
    along, across = np.array([7.9, 8.1, 0, 0]), np.array([0, 0, 1.9, 2.1])
    x = 10 + along * math.cos(angle) - across * math.sin(angle)
    y = 20 + along * math.sin(angle) + across * math.cos(angle)
    assert one.contains(x, y).tolist() == [True, False, True, False]
    assert one.scaled(2) == Ellipse(20.5, 40.5, 8, 4.0, angle)


def _obvious_features(p: np.ndarray) -> dict[str, float]:
    """Haralick's formulas, each written out over the whole matrix."""
    n = len(p)
    i, j = np.mgrid[:n, :n]
    log = lambda v: np.log(np.where(v > 0, v, 1))
    px, py = p.sum(1), p.sum(0)
    mean = (i * p).sum()
    plus = np.array([p[i + j == k].sum() for k in range(2 * n - 1)])
    minus = np.array([p[abs(i - j) == k].sum() for k in range(n)])
    k, d = np.arange(2 * n - 1), np.arange(n)
    hx, hxy = -(px * log(px)).sum(), -(p * log(p)).sum()
    outer = np.outer(px, py)
    hxy1, hxy2 = -(p * log(outer)).sum(), -(outer * log(outer)).sum()
    return {
        "angular second moment": (p**2).sum(),
        "contrast": ((i - j) ** 2 * p).sum(),
        "correlation": (((i - mean) * (j - mean) * p).sum()) / ((i - mean) ** 2 * p).sum(),
        "variance": ((i - mean) ** 2 * p).sum(),
        "inverse difference moment": (p / (1 + (i - j) ** 2)).sum(),
        "sum average": (k * plus).sum(),
        "sum variance": ((k - (k * plus).sum()) ** 2 * plus).sum(),
        "sum entropy": -(plus * log(plus)).sum(),
        "entropy": hxy,
        "difference variance": ((d - (d * minus).sum()) ** 2 * minus).sum(),
        "difference entropy": -(minus * log(minus)).sum(),
        "information measure 1": (hxy - hxy1) / hx,
        "information measure 2": math.sqrt(max(0, 1 - math.exp(-2 * (hxy2 - hxy)))),
    }


def test_cooccurrence_and_features_equal_the_formulas() -> None:
    rng = np.random.default_rng(5)
    grey = rng.integers(0, 8, (14, 17)).astype(np.uint8)
    inside = rng.random(grey.shape) < 0.8
    for dy, dx in ((0, 1), (-2, 2), (-1, 0), (-3, -3)):
        counts = np.zeros((8, 8))
        for y in range(14):
            for x in range(17):
                if 0 <= y + dy < 14 and 0 <= x + dx < 17 and inside[y, x] and inside[y + dy, x + dx]:
                    counts[grey[y, x], grey[y + dy, x + dx]] += 1
                    counts[grey[y + dy, x + dx], grey[y, x]] += 1
        expected = counts / counts.sum()
        found = cooccurrence(grey, inside, dy, dx, 8)
        assert np.allclose(found, expected)
        formulas = _obvious_features(expected)
        assert haralick(found) == pytest.approx([formulas[name] for name in FEATURES], abs=1e-9)


def test_texture_is_mean_and_range_over_directions_at_two_distances() -> None:
    rng = np.random.default_rng(6)
    grey = rng.integers(0, 256, (24, 30)).astype(np.uint8)
    inside = rng.random(grey.shape) < 0.9
    expected = []
    for distance in (1, 3):
        offsets = [(0, distance), (-distance, distance), (-distance, 0), (-distance, -distance)]
        each = [haralick(cooccurrence(grey // 8, inside, dy, dx, 32)) for dy, dx in offsets]
        expected += [np.mean(each, axis=0), np.ptp(each, axis=0)]
    assert texture(grey, inside) == pytest.approx(np.concatenate(expected))


def test_texture_of_nothing_and_of_one_colour_is_finite() -> None:
    grey = np.full((20, 20), 77, np.uint8)
    for inside in (np.zeros((20, 20), bool), np.ones((20, 20), bool)):
        assert np.isfinite(texture(grey, inside)).all()


def test_the_best_split_equals_trying_all() -> None:
    rng = np.random.default_rng(1)
    binned = rng.integers(0, 6, (3, 60)).astype(np.uint8)
    sign = np.where(binned[1] + rng.normal(0, 1.5, 60) > 3, 1.0, -1.0)
    weight = rng.random(60)
    weight /= weight.sum()
    errors = {}
    for f in range(3):
        for cut in range(5):
            low = binned[f] <= cut
            answer = np.zeros(60)
            for part in (low, ~low):
                answer[part] = np.average(sign[part], weights=weight[part])
            errors[f, cut] = (weight * (sign - answer) ** 2).sum()
    f, cut, low_mean, _ = best_split(binned, sign, weight, 5)
    assert errors[f, cut] == pytest.approx(min(errors.values()))
    below = binned[f] <= cut
    assert low_mean == pytest.approx(np.average(sign[below], weights=weight[below]))


def test_boosting_learns_a_disc_and_needs_both_classes() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0, 1, (1200, 4))
    inside = np.hypot(values[:, 0], values[:, 2]) < 1
    stumps = fit_stumps(values[:800], inside[:800], rounds=120)
    right = (stumps.probability(values[800:]) > 0.5) == inside[800:]
    assert right.mean() > 0.9
    assert set(stumps.feature[:2].tolist()) <= {0, 2}
    with pytest.raises(RecordError, match="with and without polyp"):
        fit_stumps(values, np.ones(1200, bool))


def test_one_round_is_one_stump_at_a_value_that_occurs() -> None:
    values = np.repeat([0.0, 1.0, 2.0], [16, 17, 16])[:, None]  # of 49, all quantiles are values
    stump = fit_stumps(values, values[:, 0] >= 1, rounds=1, shrink=0.5)
    assert (stump.below[0], stump.above[0]) == pytest.approx((-0.5, 0.5))
    assert (stump.margin(np.array([[0.0], [1.0], [2.0]])) > 0).tolist() == [False, True, True]


def test_a_rare_class_weighs_as_much_as_the_other() -> None:
    values = np.random.default_rng(3).normal(0, 1, (400, 2))
    rare = np.arange(400) < 20  # features say nothing about it
    assert fit_stumps(values, rare, rounds=5).probability(values).mean() == pytest.approx(0.5, abs=0.1)


def _drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A disk whose surface is grainy, beside one of equal shape whose surface is not: only texture tells them apart."""
    rng = np.random.default_rng(seed)
    left = bool(rng.integers(2))
    places = [(75.0, 90.0), (195.0, 90.0)]
    rgb = np.concatenate(
        [bright_disk(135, 180, (75, 90), 34, seed=seed), bright_disk(135, 180, (60, 90), 34, seed=seed + 1)], axis=1
    )
    centre = places[0 if left else 1]
    y, x = np.mgrid[:180, :270]
    mask = np.hypot(x - centre[0], y - centre[1]) < 34
    grain = rng.normal(0, 22, (90, 135)).repeat(2, 0).repeat(2, 1)[..., None]
    return np.clip(rgb + grain * mask[..., None], 0, 255).astype(np.uint8), mask


@pytest.fixture(scope="module")
def trained() -> EtisLarib:
    return train_etis_larib((_drawn(seed) for seed in range(12)), rounds=30)


def test_texture_tells_two_equal_shapes_apart(trained: EtisLarib) -> None:
    hits = []
    for seed in range(100, 106):
        rgb, mask = _drawn(seed)
        found = trained(rgb)
        assert found
        x, y = found[0].point_xy
        hits.append(bool(mask[int(y), int(x)]))
        assert found[0].box is not None
        assert found[0].box.contains(x, y)
    assert sum(hits) >= 5
    assert trained(flat(200, 150)) == ()


def test_the_size_of_polyps_is_learned(trained: EtisLarib) -> None:
    radius = 34 * etis_larib.SHAPE_PX / math.sqrt(270 * 180)
    assert trained.prior.mean == pytest.approx(math.log(radius), abs=0.05)


def test_the_strongest_regions_are_from_the_threshold_on_and_not_inside_better_ones() -> None:
    circles = [Ellipse(x, 50, radius, 1.0, 0.0) for x, radius in ((200, 20), (55, 10), (50, 20), (120, 15))]
    probability = np.array([0.3, 0.8, 0.9, 0.6])
    assert etis_larib._strongest(circles, probability, 0.5) == [2, 3]
    assert etis_larib._strongest(circles, probability, 0.2) == [2, 3, 0]


@pytest.mark.parametrize(
    ("one", "label"),
    [
        (Ellipse(50, 40, 20, 1.0, 0.0), 1),
        (Ellipse(50, 40, 6, 1.0, 0.0), -1),  # in the mask, but of another size
        (Ellipse(75, 40, 20, 1.0, 0.0), 0),
        (Ellipse(-3, 300, 20, 1.0, 0.0), 0),
    ],
)
def test_what_a_region_is_an_example_of(one: Ellipse, label: int) -> None:
    y, x = np.mgrid[:90, :120]
    assert etis_larib._label(one, np.hypot(x - 50, y - 40) < 20) == label


@pytest.mark.parametrize("angle_deg", [0, 30, 90, 135])
def test_the_box_of_a_detection_touches_its_ellipse(angle_deg: int) -> None:
    regions = etis_larib._Regions([Ellipse(100, 60, 20, 4.0, math.radians(angle_deg))], np.zeros((1, 1)), (120, 200))
    found = etis_larib._detection(regions, 0, 0.7, (240, 600))
    turn = np.linspace(0, 2 * np.pi, 3601)
    outline = (40 * np.cos(turn) + 10j * np.sin(turn)) * np.exp(1j * math.radians(angle_deg))
    assert found.box is not None
    assert found.point_xy == pytest.approx((3 * 100 + 1, 2 * 60 + 0.5))
    assert found.box.width == pytest.approx(3 * np.ptp(outline.real), abs=0.01)
    assert found.box.height == pytest.approx(2 * np.ptp(outline.imag), abs=0.01)
    assert found.box.x + found.box.width / 2 == pytest.approx(found.point_xy[0])
    assert found.box.y + found.box.height / 2 == pytest.approx(found.point_xy[1])


def test_the_threshold_has_the_best_f1_on_pictures_that_were_left_out() -> None:
    """Three regions far apart in each of thirty pictures, the first of them a polyp, told by noisy features."""
    rng = np.random.default_rng(3)
    circles = [Ellipse(x, 50, 10, 1.0, 0.0) for x in (30, 90, 150)]
    polyp = np.array([True, False, False])
    features = rng.normal(0, 1, (30, 3, 4)) + 1.6 * polyp[:, None]
    seen = [etis_larib._Regions(circles, one, (100, 200)) for one in features]
    mask = np.zeros((100, 200), bool)
    mask[45:55, 25:35] = True
    fold = np.arange(30) // 10
    probability = np.zeros((30, 3))
    for left_out in range(3):
        stumps = fit_stumps(
            features[fold != left_out].reshape(-1, 4), np.tile(polyp, int((fold != left_out).sum())), rounds=10
        )
        probability[fold == left_out] = [stumps.probability(one) for one in features[fold == left_out]]

    def f1(threshold: float) -> float:
        told = probability >= threshold
        right, wrong = told[:, 0].sum(), told[:, 1:].sum()
        return 2 * right / (right + wrong + 30)

    best = etis_larib._best_threshold(seen, [mask] * 30, [[1, 0, 0]] * 30, fold, rounds=10)
    assert best == pytest.approx(max(np.linspace(0.3, 0.95, 27), key=f1))
    assert f1(0.3) < f1(best) - 0.02
    assert f1(0.95) < f1(best) - 0.02


@pytest.mark.parametrize(("kind", "some"), [("disk", True), ("border", False), ("highlight", False), ("glare", False)])
def test_borders_and_highlights_are_no_shapes(kind: str, some: bool) -> None:
    rgb = np.full((256, 256, 3), (150, 90, 80), np.uint8)
    if kind == "border":
        y, x = np.mgrid[:256, :256]
        rgb[np.hypot(x - 128, y - 128) > 80] = 4
    else:
        cv2.circle(rgb, (128, 128), 40, (250, 245, 240) if kind == "highlight" else (190, 115, 100), -1, cv2.LINE_AA)
    if kind == "glare":  # covers the outline: where the disk ends is then made up by painting over
        cv2.circle(rgb, (128, 128), 40, (250, 245, 240), 7, cv2.LINE_AA)
    assert bool(etis_larib._regions(rgb, WIDE).ellipses) == some


def test_texture_is_that_of_the_view() -> None:
    grey = np.random.default_rng(4).integers(0, 256, (80, 80)).astype(np.uint8)
    view = np.ones(grey.shape, bool)
    view[:, :40] = False
    one = Ellipse(42, 40, 20, 1.5, 0.3)
    y, x = np.mgrid[:80, :80].astype(np.float64)
    expected = texture(grey, one.contains(x, y) & view)
    assert etis_larib._texture_inside(grey, view, one) == pytest.approx(expected)


def test_a_trained_file_comes_back_equal_and_others_are_refused(trained: EtisLarib, tmp_path: Path) -> None:
    path = trained.save(tmp_path / "a.npz")
    rgb, _ = _drawn(7)
    again = EtisLarib.load(path)
    assert [(d.point_xy, d.score) for d in again(rgb)] == [(d.point_xy, d.score) for d in trained(rgb)]
    with pytest.raises(MissingInput):
        EtisLarib.load(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DamagedInput, match="found something else"):
        EtisLarib.load(tmp_path / "text.npz")
    write_arrays(tmp_path / "other.npz", "pls", {})
    with pytest.raises(InputError, match="trained for etis-larib, found pls"):
        EtisLarib.load(tmp_path / "other.npz")
    np.savez(tmp_path / "evil.npz", method=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DamagedInput):
        EtisLarib.load(tmp_path / "evil.npz")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("feature", np.array([3, 52]), "expected features below 52, found 52"),
        ("feature", np.array([3, 4, 5]), "expected numbers of shape"),
        ("above", np.array([[1.0], [2.0]]), "expected numbers of shape"),
        ("below", np.array(["1", "2"]), "expected numbers of shape"),
        ("below", np.array([1.0, np.nan]), "expected finite numbers"),
        ("feature", np.zeros(0, np.int32), "expected numbers of shape"),
        ("prior", np.array([3.0, 0.0]), "expected a prior with a width above 0, found 0.0"),
    ],
)
def test_a_file_with_other_numbers_is_refused(name: str, value: np.ndarray, sentence: str, tmp_path: Path) -> None:
    arrays = {"feature": np.array([3, 4]), "threshold": np.ones(2), "below": -np.ones(2), "above": np.ones(2)}
    arrays |= {"prior": np.array([3.0, 0.5]), "report_from": np.array([0.5])}
    EtisLarib.load(write_arrays(tmp_path / "good.npz", "etis-larib", arrays))
    with pytest.raises(DamagedInput, match=sentence):
        EtisLarib.load(write_arrays(tmp_path / "bad.npz", "etis-larib", {**arrays, name: value}))


def test_a_file_without_stumps_or_without_an_array_is_refused(tmp_path: Path) -> None:
    arrays = dict.fromkeys(("feature", "threshold", "below", "above"), np.zeros(0))
    arrays |= {"prior": np.array([3.0, 0.5]), "report_from": np.array([0.5])}
    with pytest.raises(DamagedInput, match=r"expected numbers of shape \(n\) in 'feature', found .* of shape \(0,\)"):
        EtisLarib.load(write_arrays(tmp_path / "none.npz", "etis-larib", arrays))
    del arrays["above"]
    with pytest.raises(DamagedInput, match="expected the array 'above', found none"):
        EtisLarib.load(write_arrays(tmp_path / "less.npz", "etis-larib", arrays))


def test_a_file_that_cannot_be_written_leaves_the_one_before(trained: EtisLarib, tmp_path: Path) -> None:
    path = trained.save(tmp_path / "a.npz")
    before = path.read_bytes()
    with pytest.raises(Exception, match="pickle"):
        write_arrays(path, "etis-larib", {"prior": np.ones(9), "feature": np.array([lambda: 0])})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_training_without_polyps_is_refused() -> None:
    rgb = mucosa(120, 90)
    with pytest.raises(InputError, match="pictures with a polyp, found 0"):
        train_etis_larib([(rgb, np.zeros((90, 120), bool))] * 4)
