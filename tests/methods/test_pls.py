"""PLS: global features against their definitions, the search, the elliptical energy, and the whole."""

from __future__ import annotations

import math
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes_of_mucosa import bright_disk, flat, mucosa

from polypscope.methods import pls
from polypscope.methods.global_features import cedd, fcth, fuzzy_colours, jcd, tamura, tanimoto
from polypscope.methods.pls import Pls, elliptical_energy, rank_votes, train_pls
from polypscope.methods.trained import write_arrays
from polypscope.records.errors import DamagedInput, InputError

RED, GREEN = 3 + 1, 12 + 1  # the full shades of their colours


@pytest.mark.parametrize(
    ("rgb", "bin_"),
    [
        ((255, 255, 255), 0), ((128, 128, 128), 1), ((0, 0, 0), 2), ((255, 0, 0), RED), ((0, 255, 0), GREEN),
        ((255, 200, 200), 3), ((90, 0, 0), 5), ((255, 0, 40), RED), ((255, 128, 0), 7), ((255, 255, 0), 10),
        ((0, 255, 255), 16), ((0, 0, 255), 19), ((200, 0, 255), 22), ((255, 0, 255), 22),
    ],
)  # fmt: skip
def test_plain_colours_fall_in_their_bins(rgb: tuple[int, int, int], bin_: int) -> None:
    members = fuzzy_colours(np.array([rgb], np.float64))[0]
    assert int(members.argmax()) == bin_


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_every_colour_belongs_somewhere(rgb: tuple[int, int, int]) -> None:
    members = fuzzy_colours(np.array([rgb], np.float64))[0]
    assert members.shape == (24,)
    assert (members >= 0).all()
    assert members.sum() > 0.2


def _stripes(kind: str) -> np.ndarray:
    y, x = np.mgrid[:160, :160]
    level = {
        "horizontal": y % 4 // 2, "vertical": x % 4 // 2, "checks": (x % 4 // 2) ^ (y % 4 // 2),
        "rising": (x % 4 + y % 4) / 6, "falling": (3 - x % 4 + y % 4) / 6,
    }[kind]  # fmt: skip
    return np.repeat((60 + 160 * level).astype(np.uint8)[..., None], 3, axis=2)


@pytest.mark.parametrize(
    ("kind", "edge"), [("horizontal", 2), ("vertical", 3), ("checks", 1), ("rising", 4), ("falling", 5)]
)
def test_edges_fall_in_their_kinds(kind: str, edge: int) -> None:
    table = cedd(_stripes(kind)).reshape(6, 24).sum(axis=1)
    assert int(table.argmax()) == edge
    assert table[0] == 0
    assert cedd(flat(160, 160, 128)).reshape(6, 24)[0].sum() == pytest.approx(1)
    assert fcth(flat(160, 160, 128)).reshape(8, 24)[0].sum() == pytest.approx(1)


def test_a_block_counts_for_every_filter_that_answers_nearly_as_strongly() -> None:
    y, x = np.mgrid[:160, :160]
    stairs = np.repeat(np.where(x % 4 + y % 4 >= 4, 220, 60).astype(np.uint8)[..., None], 3, axis=2)
    # The answer without direction is 0.71 of the rising one, for which 0.68 is enough; upright ones would need 0.98.
    assert cedd(stairs).reshape(6, 24).sum(axis=1) == pytest.approx([0, 0.5, 0, 0, 0.5, 0])


def test_fine_checks_are_rough_both_ways_for_fcth() -> None:
    y, x = np.mgrid[:160, :160]
    fine = np.repeat(np.where((x + y) % 2, 250, 10).astype(np.uint8)[..., None], 3, axis=2)
    table = fcth(fine).reshape(8, 24).sum(axis=1)
    assert int(table.argmax()) == 1  # only the diagonal band has energy
    lines = np.repeat(np.where(y % 2, 250, 10).astype(np.uint8)[..., None], 3, axis=2)
    assert int(fcth(lines).reshape(8, 24).sum(axis=1).argmax()) == 4


@pytest.mark.parametrize("kind", ["vertical", "horizontal", "rising", "falling", "checks", "mucosa"])
def test_the_joint_descriptor_keeps_what_both_know(kind: str) -> None:
    rgb = mucosa(200, 150) if kind == "mucosa" else _stripes(kind)
    no_edge, no_direction, horizontal, vertical, rising, falling = cedd(rgb).reshape(6, 24)
    t = fcth(rgb).reshape(8, 24)
    expected = [
        (no_edge + t[0] + t[4]) / 2, (horizontal + t[1] + t[5]) / 2, rising, (vertical + t[2] + t[6]) / 2, falling,
        t[3] + t[7], no_direction,
    ]  # fmt: skip
    assert np.allclose(jcd(rgb).reshape(7, 24), expected)


def test_tamura_sees_coarseness_contrast_and_direction() -> None:
    y, x = np.mgrid[:160, :160].astype(np.float64)

    def waves(length: float, size: float, along: np.ndarray) -> np.ndarray:
        return tamura(
            np.repeat((128 + size * np.sin(2 * np.pi * along / length)).astype(np.uint8)[..., None], 3, axis=2)
        )

    assert waves(40, 60, x)[0] > 1.5 * waves(6, 60, x)[0]
    assert waves(20, 90, x)[1] > 1.5 * waves(20, 30, x)[1]
    horizontal, vertical = waves(12, 90, y)[2:], waves(12, 90, x)[2:]
    assert int(vertical.argmax()) == 8  # edges upright: a right angle to the first bin
    assert int(horizontal.argmax()) in (0, 15)
    assert horizontal.max() > 0.8
    assert horizontal.sum() == pytest.approx(1)
    rare = (200 * (np.random.default_rng(0).random((160, 160)) < 0.05)).astype(np.uint8)
    deviations = (rare - rare.mean()) / rare.std()
    expected = rare.std() / (deviations**4).mean() ** 0.25  # peaks that are rare make less contrast
    assert tamura(np.repeat(rare[..., None], 3, axis=2))[1] == pytest.approx(expected, rel=0.01)


def test_tanimoto_is_a_distance_from_0_to_1() -> None:
    one = np.array([0.5, 0.5, 0.0])
    found = tanimoto(one, np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
    assert found == pytest.approx([0, 1, 1 - 0.5 / (0.5 + 1 - 0.5)])


def test_votes_fall_with_the_rank_and_are_fair_to_the_rarer_class() -> None:
    distance = np.arange(4, dtype=np.float64)
    assert rank_votes(distance, np.array([True, True, False, False])) > 0.7
    assert rank_votes(distance, np.array([False, False, True, True])) < 0.3
    rare = np.array([False] + [True] * 9)  # the nearest of ten is the only one of its class
    assert rank_votes(np.arange(10.0), rare) < 0.2
    assert rank_votes(np.arange(40.0), np.arange(40) >= 30) == 0, "only the thirty nearest vote"


@pytest.mark.parametrize("place", [(120, 100), (200, 130)])
def test_a_bright_disk_has_the_highest_energy(place: tuple[int, int]) -> None:
    rgb = bright_disk(310, 250, place, 42)
    energy = elliptical_energy(rgb)
    y, x = np.unravel_index(int(energy.argmax()), energy.shape)
    scale = 310 / energy.shape[1]
    assert math.hypot(x * scale - place[0], y * scale - place[1]) < 20
    assert energy.max() > 3 * np.median(energy)


@pytest.mark.parametrize(("aspect", "angle_deg"), [(1.0, 0), (1.5, 0), (1.5, 45), (1.5, 135)])
def test_energy_equals_means_taken_one_by_one(
    aspect: float, angle_deg: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """One shape at all places of a picture without border or flare, against ellipses and rings painted by hand."""
    rng = np.random.default_rng(3)
    rgb = cv2.resize(rng.integers(70, 180, (9, 9, 3)).astype(np.uint8), (192, 192), interpolation=cv2.INTER_CUBIC)
    rgb[..., 0] = np.maximum(rgb[..., 0], rgb[..., 1:].max(axis=2))  # mucosa is red
    request.addfinalizer(pls._kernels.cache_clear)
    monkeypatch.setattr(pls, "RADII_PX", (8.0,))
    monkeypatch.setattr(pls, "SHAPES", ((aspect, math.radians(angle_deg)),))
    pls._kernels.cache_clear()
    energy = elliptical_energy(rgb)
    planes = cv2.resize(
        cv2.cvtColor(rgb, cv2.COLOR_RGB2YCrCb).astype(np.float32), (64, 64), interpolation=cv2.INTER_AREA
    )
    spread = np.maximum(planes.reshape(-1, 3).std(axis=0), 2)
    y, x = np.mgrid[:64, :64]
    expected = np.zeros((64, 64), np.float32)
    for cy in range(64):
        for cx in range(64):
            turned = ((x - cx) + 1j * (y - cy)) * np.exp(-1j * math.radians(angle_deg))
            distance = np.hypot(turned.real / math.sqrt(aspect), turned.imag * math.sqrt(aspect)) / 8
            disc, ring = distance <= 0.9, (distance > 1.1) & (distance <= 1.5)
            d = (planes[disc].mean(axis=0) - planes[ring].mean(axis=0)) / spread
            expected[cy, cx] = min(max(d[0], 0) * (1 + math.hypot(d[1], d[2])) / 4, 1)
    middle = slice(20, 44)
    assert np.allclose(cv2.GaussianBlur(expected, (0, 0), 1.0)[middle, middle], energy[middle, middle], atol=0.02)


@pytest.mark.parametrize("kind", ["noise", "a highlight", "a hollow", "a border"])
def test_what_is_no_bright_ellipse_has_no_energy(kind: str) -> None:
    rgb = np.clip(np.array([150, 90, 80]) + np.random.default_rng(0).normal(0, 1, (250, 310, 3)), 0, 255)
    rgb = rgb.astype(np.uint8)
    if kind == "a highlight":
        cv2.circle(rgb, (150, 120), 14, (250, 245, 240), -1)
    if kind == "a border":
        y, x = np.mgrid[:250, :310]
        rgb[np.hypot(x - 155, y - 125) > 100] = 4
    if kind == "a hollow":
        cv2.circle(rgb, (150, 120), 26, (90, 50, 45), -1)
        assert elliptical_energy(rgb)[25:31, 31:38].max() < 0.05
        return
    assert elliptical_energy(rgb).max() < 0.05


def test_there_is_no_energy_outside_the_view_nor_from_ellipses_that_lie_mostly_there() -> None:
    notched = bright_disk(310, 250, (120, 125), 42)
    notched[117:133, :130] = 0  # reaches the middle of the disk
    energy = elliptical_energy(notched)
    assert energy[27:30, 5:25].max() < 0.1 * energy.max()
    strip = np.full((250, 310, 3), 4, np.uint8)
    strip[105:145] = (150, 90, 80)
    strip[105:145, 150:] = (170, 102, 90)
    assert elliptical_energy(strip).max() < 0.6


def _two_kinds(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Disks on mucosa, and mucosa of a greyer kind without."""
    out = []
    for seed in range(count):
        rgb = bright_disk(200, 160, (90, 80), 30, seed=seed)
        y, x = np.mgrid[:160, :200]
        out.append((rgb, np.hypot(x - 90, y - 80) < 30))
        grey = (0.5 * mucosa(200, 160, seed=50 + seed) + 60).astype(np.uint8)
        out.append((grey, np.zeros((160, 200), bool)))
    return out


@pytest.fixture(scope="module")
def trained() -> Pls:
    return train_pls(_two_kinds(8))


def test_presence_and_four_locations(trained: Pls) -> None:
    (polyp, mask), (none, _) = _two_kinds(12)[-2:]
    found = trained(polyp)
    assert 1 <= len(found) <= 4
    x, y = found[0].point_xy
    assert mask[int(y), int(x)]
    assert trained(none) == ()
    assert trained.presence(polyp) > 0.8
    assert trained.presence(none) < 0.2
    look = trained.look(polyp)
    assert look.energy is not None
    assert found[0].score == pytest.approx(trained.presence(polyp) * look.energy[round(y), round(x)], abs=0.01)


def test_presence_is_the_mean_of_both_votes() -> None:
    """Pictures whose colours say nothing, and whose textures do; then the other way round."""
    rgb = bright_disk(200, 160, (90, 80), 30)
    colours, textures = jcd(rgb), tamura(rgb)
    polyp = np.array([True, True, False, False])
    apart = np.array([0.0, 0.1, 0.5, 0.6])[:, None]
    # Contrast varies by far more than directions do; measured by its own spread it says no more than they.
    near_by_texture = textures + apart * np.arange(18)
    near_by_texture[:, 1] = textures[1] + np.array([900.0, 800.0, 0.0, 10.0])
    near_by_colour = (1 - apart) * colours + apart * np.roll(colours, 24)
    same = np.repeat(colours[None], 4, axis=0)
    vote = rank_votes(np.arange(4.0), polyp)
    assert Pls(near_by_colour, near_by_texture, polyp).presence(rgb) == pytest.approx(vote)
    against = Pls(near_by_colour[::-1], near_by_texture, polyp).presence(rgb)
    assert against == pytest.approx((vote + rank_votes(np.arange(4.0)[::-1], polyp)) / 2)
    assert Pls(same, near_by_texture[::-1], polyp).presence(rgb) == pytest.approx(against)


def test_a_frame_four_times_as_large_has_its_locations_at_the_same_places(trained: Pls) -> None:
    rgb = _two_kinds(12)[-2][0]
    small, large = trained(rgb), trained(rgb.repeat(4, axis=0).repeat(4, axis=1))
    for one, other in zip(small, large, strict=True):
        assert other.point_xy == pytest.approx([4 * v + 1.5 for v in one.point_xy], abs=0.5)


def test_a_trained_file_comes_back_equal(trained: Pls, tmp_path: Path) -> None:
    path = trained.save(tmp_path / "pls.npz")
    rgb = bright_disk(200, 160, (100, 80), 30, seed=99)
    assert Pls.load(path).presence(rgb) == pytest.approx(trained.presence(rgb), abs=1e-3)
    short = {"jcd": trained.jcds[:, 1:], "tamura": trained.tamuras, "polyp": trained.polyp}
    with pytest.raises(DamagedInput, match=r"expected numbers of shape \(n, 168\) in 'jcd', found .* 167\)"):
        Pls.load(write_arrays(tmp_path / "short.npz", "pls", short))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DamagedInput):
        Pls.load(path)


def test_both_kinds_of_picture_are_needed() -> None:
    with pytest.raises(InputError, match="4 with and 0 without"):
        train_pls([pair for pair in _two_kinds(4) if pair[1].any()])
