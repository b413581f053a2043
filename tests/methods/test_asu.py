"""ASU: the whole on drawn pictures and on real ones, and its files."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from scenes_of_mucosa import bright_disk, flat, mucosa

from polypscope.io.images import read_rgb
from polypscope.io.masks import read_mask
from polypscope.methods.asu import CHANNELS, Asu, Proposals, score, strongest
from polypscope.methods.asu_training import train_asu
from polypscope.methods.edge_votes import Candidate
from polypscope.methods.trained import write_arrays
from polypscope.records.errors import DamagedInput, InputError, MissingInput


def _drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A disk among parallel folds: edges everywhere, but only the disk is surrounded by its own."""
    rng = np.random.default_rng(seed)
    x0, y0 = rng.uniform(70, 190), rng.uniform(60, 120)
    y, x = np.mgrid[:180, :260].astype(np.float32)
    mask = np.hypot(x - x0, y - y0) < 30
    disk = bright_disk(260, 180, (x0, y0), 30, seed=seed)
    stripes = mucosa(260, 180, seed=seed, shade=1 + 0.25 * np.sin(x / 11 + seed))
    near = np.hypot(x - x0, y - y0) < 38
    return np.where(near[..., None], disk, stripes), mask


@pytest.fixture(scope="module")
def trained() -> Asu:
    empty = np.zeros((180, 260), bool)
    x = np.mgrid[:180, :260][1].astype(np.float32)
    folds = [(mucosa(260, 180, seed=60 + s, shade=1 + 0.25 * np.sin(x / 11 + s)), empty) for s in range(6)]
    return train_asu([*(_drawn(seed) for seed in range(9)), *folds])


def test_a_disk_among_folds_is_found_and_folds_are_not(trained: Asu) -> None:
    hits, ratios = [], []
    for seed in range(100, 108):
        rgb, mask = _drawn(seed)
        look = trained.look(rgb)
        assert look.energy is not None
        ratios.append(look.energy[mask].mean() / look.energy[~mask].mean())
        if look.detections:
            best = look.detections[0]
            x, y = best.point_xy
            hits.append(bool(mask[int(y), int(x)]))
            assert best.box is not None
            assert best.box.contains(x, y)
            assert 30 < best.box.width < 120
    assert sum(hits) >= 6
    assert min(ratios) > 3
    x = np.mgrid[:180, :260][1].astype(np.float32)
    assert trained(mucosa(260, 180, seed=90, shade=1 + 0.25 * np.sin(x / 11 + 2.5))) == ()
    assert trained(flat(200, 150)) == ()


def test_the_mean_of_both_networks_counts(trained: Asu) -> None:
    patches = np.random.default_rng(0).integers(0, 255, (3, 36, 36, 6)).astype(np.uint8)
    alone = [trained.networks[name].probability(patches[..., part]) for name, part in CHANNELS.items()]
    assert score(trained.networks, patches) == pytest.approx((alone[0] + alone[1]) / 2)
    assert list(CHANNELS) == ["colour", "shape"]


def test_a_place_inside_a_better_box_is_dropped() -> None:
    places = [Candidate(x, 20, 1.0, (0, 0, 1, 1)) for x in (20, 28, 60, 62)]
    boxes = np.array([[x - 10, 10, x + 10, 30] for x in (20, 28, 60, 62)], float)
    seen = Proposals(places, boxes, np.zeros((4, 36, 36, 6), np.uint8))
    scores = np.array([0.7, 0.9, 0.3, 0.1], np.float32)
    assert strongest(seen, scores, 0.2) == [1, 2]
    assert strongest(seen, scores, 0.0) == [1, 2]
    assert strongest(seen, scores, 0.5) == [1]


def test_a_trained_file_comes_back_equal_and_others_are_refused(trained: Asu, tmp_path: Path) -> None:
    path = trained.save(tmp_path / "a.npz")
    again = Asu.load(path)
    for seed in (7, 101):
        rgb, _ = _drawn(seed)
        one, other = trained.look(rgb), again.look(rgb)
        assert [(d.point_xy, d.score, d.box) for d in one.detections] == [
            (d.point_xy, d.score, d.box) for d in other.detections
        ]
        assert one.energy is not None
        assert np.array_equal(one.energy, other.energy)
    with pytest.raises(MissingInput):
        Asu.load(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DamagedInput, match="found something else"):
        Asu.load(tmp_path / "text.npz")
    write_arrays(tmp_path / "other.npz", "pls", {})
    with pytest.raises(InputError, match="trained for asu, found pls"):
        Asu.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("first_feature", lambda a: a + 10_000, "expected features below 220"),
        ("second_feature", lambda a: a + 160, "expected features below 160"),
        ("second_feature", lambda a: a[:-1], "expected numbers of shape"),
        ("first_child", lambda a: 0 * a, "every way ends in a leaf"),
        ("first_child", lambda a: a + len(a), "every way ends in a leaf"),
        ("second_root", lambda a: a - 1, "every way ends in a leaf"),
        ("second_share", lambda a: a * 2, "every way ends in a leaf"),
        ("first_share", lambda a: a[:, :4], "expected numbers of shape"),
        ("colour_0", lambda a: a[..., :8], "expected numbers of shape"),
        ("shape_6", lambda a: a.T, "expected numbers of shape"),
        ("shape_9", lambda a: a + np.nan, "expected finite numbers"),
        ("colour_deviation", lambda a: 0 * a, "deviations above 0"),
        ("growth", lambda a: a[:1], "expected numbers of shape"),
        ("report_from", lambda a: a + 2, "expected a threshold from 0 to 1"),
    ],
)
def test_a_file_with_other_numbers_is_refused(trained: Asu, name: str, change, sentence: str, tmp_path: Path) -> None:
    with np.load(trained.save(tmp_path / "good.npz"), allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files if key != "method"}
    bad = write_arrays(tmp_path / "bad.npz", "asu", {**arrays, name: change(arrays[name])})
    with pytest.raises(DamagedInput, match=sentence) as error:
        Asu.load(bad)
    assert "\n" not in str(error.value)
    assert "rain it again" in str(error.value)


def test_training_without_polyps_is_refused() -> None:
    with pytest.raises(InputError, match="at least 3 pictures with a polyp, found 0"):
        train_asu([(mucosa(120, 90), np.zeros((90, 120), bool))] * 4)


def test_real_polyps_get_more_energy_than_their_surroundings(shared: Path) -> None:
    """Learned from a few real pictures, tried on others of another hospital: far better than a random point."""
    kvasir, other = shared / "data" / "kvasir-seg", shared / "data" / "polypgen" / "C1"

    def pairs(root: Path, every: int, most: int) -> list[tuple[np.ndarray, np.ndarray]]:
        files = sorted((root / "images").iterdir())[::every][:most]
        masks = {path.stem.removesuffix("_mask"): path for path in (root / "masks").iterdir()}
        out = [(read_rgb(path), read_mask(masks[path.stem]).values) for path in files]
        return [(rgb, mask) for rgb, mask in out if 0.02 < mask.mean() < 0.5]

    method = train_asu(pairs(kvasir, 20, 40), epochs=1)
    inside, share = [], []
    started = time.process_time()
    tried = pairs(other, 6, 24)
    for rgb, mask in tried:
        energy = method.look(rgb).energy
        assert energy is not None
        row, column = np.unravel_index(int(energy.argmax()), energy.shape)
        inside.append(bool(mask[row, column]))
        share.append(mask.mean())
    assert np.mean(inside) > 2 * np.mean(share)
    assert (time.process_time() - started) / len(tried) < 0.6
