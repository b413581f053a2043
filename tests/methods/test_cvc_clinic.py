"""WM-DOVA: the accumulation against a slow obvious one, and pictures whose answer is known."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from scenes_of_mucosa import bright_disk, flat, mucosa

from polypscope.io.images import read_rgb
from polypscope.io.masks import read_mask
from polypscope.methods.cvc_clinic import CvcClinic, Dova, accumulate
from polypscope.methods.peaks import maxima
from polypscope.methods.valleys import Valleys, find_valleys, without_vessels
from polypscope.records.errors import RecordError

SMALL = Dova(sectors=10, nearest_px=2, farthest_px=8, window=3, jump=0.4, seen=0.3, completeness=1.5)


def _obvious(valleys: Valleys, spec: Dova, *, broken: str = "") -> np.ndarray:
    """One centre at a time, one pixel at a time, one sector at a time; `broken` leaves out a constraint."""
    height, width = valleys.depth.shape
    energy = np.zeros((height, width))
    for cy in range(height):
        for cx in range(width):
            vote, reach = [0.0] * spec.sectors, [0.0] * spec.sectors
            for y in range(height):
                for x in range(width):
                    radius = math.hypot(y - cy, x - cx)
                    if not spec.nearest_px <= radius <= spec.farthest_px:
                        continue
                    turn = math.atan2(y - cy, x - cx) / (2 * math.pi) % 1.0
                    sector = min(int(turn * spec.sectors), spec.sectors - 1)
                    across = (valleys.across_x[y, x] * (x - cx) + valleys.across_y[y, x] * (y - cy)) / radius
                    value = math.sqrt(valleys.depth[y, x]) * (1.0 if broken == "concavity" else across**2)
                    if value > vote[sector]:
                        vote[sector], reach[sector] = value, radius
            total, full = 0.0, 0
            for s in range(spec.sectors):
                around = [vote[(s + k) % spec.sectors] for k in range(-(spec.window // 2), spec.window // 2 + 1)]
                middle = vote[s] if broken == "robustness" else statistics.median(around)
                calm = []
                for other in ((s - 1) % spec.sectors, (s + 1) % spec.sectors):
                    mean = (reach[s] + reach[other]) / 2
                    calm.append(math.exp(-(((reach[s] - reach[other]) / (spec.jump * mean + 1e-6)) ** 2)))
                total += middle * (1.0 if broken == "continuity" else max(calm))
                full += middle > spec.seen
            share = full / spec.sectors
            energy[cy, cx] = total / spec.sectors * (1.0 if broken == "completeness" else share**spec.completeness)
    return energy


def _random_valleys(seed: int, shape: tuple[int, int] = (17, 21)) -> Valleys:
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, math.pi, shape)
    depth = np.where(rng.random(shape) < 0.25, rng.random(shape), 0.0)
    return Valleys(depth.astype(np.float32), np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32))


@pytest.mark.parametrize(
    "spec",
    [SMALL, replace(SMALL, sectors=7, window=5), replace(SMALL, nearest_px=1, farthest_px=5, window=1)],
    ids=["small", "seven sectors", "no window"],
)
def test_accumulation_equals_the_obvious_one(spec: Dova) -> None:
    valleys = _random_valleys(3)
    assert np.allclose(accumulate(valleys, spec), _obvious(valleys, spec), atol=2e-5)


@pytest.mark.parametrize("broken", ["concavity", "completeness", "continuity", "robustness"])
def test_the_comparison_notices_a_missing_constraint(broken: str) -> None:
    valleys = _random_valleys(4)
    assert np.abs(accumulate(valleys, SMALL) - _obvious(valleys, SMALL, broken=broken)).max() > 0.05


def _ring(radius: float, share: float = 1.0, across: bool = True) -> Valleys:
    """A circle of valley around the middle of 41×41 pixels; `across` false turns its directions along the rays."""
    y, x = np.mgrid[-20:21, -20:21].astype(np.float64)
    distance = np.maximum(np.hypot(x, y), 1e-9)
    angle = np.mod(np.arctan2(y, x) / (2 * np.pi), 1.0)
    depth = ((np.abs(distance - radius) < 0.8) & (angle <= share)).astype(np.float32)
    nx, ny = x / distance, y / distance
    if not across:
        nx, ny = -ny, nx
    return Valleys(depth, nx.astype(np.float32), ny.astype(np.float32))


def test_a_whole_circle_gives_all_energy_to_its_centre() -> None:
    spec = Dova(sectors=16, nearest_px=4, farthest_px=15, jump=1.0)
    energy = accumulate(_ring(10), spec)
    assert np.unravel_index(int(energy.argmax()), energy.shape) == (20, 20)
    assert energy[20, 20] == pytest.approx(1.0, abs=0.03)
    assert accumulate(_ring(10, across=False), spec)[20, 20] < 0.01
    assert accumulate(_ring(10, share=0.5), spec)[20, 20] < 0.35 * energy[20, 20]
    assert accumulate(_ring(18), spec)[20, 20] == 0  # beyond the farthest radius


@pytest.mark.parametrize(("width", "height"), [(384, 288), (620, 530), (1280, 1024), (150, 140)])
@pytest.mark.parametrize("place", [(0.35, 0.45), (0.6, 0.55)])
def test_a_bright_disk_with_a_dark_rim_is_found_first(width: int, height: int, place: tuple[float, float]) -> None:
    centre = (place[0] * width, place[1] * height)
    radius = 0.16 * math.sqrt(width * height)
    found = CvcClinic()(bright_disk(width, height, centre, radius))
    assert found
    x, y = found[0].point_xy
    assert math.hypot(x - centre[0], y - centre[1]) < 0.35 * radius
    scores = [d.score for d in found if d.score is not None]
    assert scores == sorted(scores, reverse=True)
    if len(scores) > 1:
        assert scores[0] > 1.5 * scores[1]


@pytest.mark.parametrize("grey", [0, 90, 255])
def test_a_flat_picture_has_nothing(grey: int) -> None:
    look = CvcClinic().look(flat(320, 240, grey))
    assert look.detections == ()
    assert look.energy is not None
    assert float(look.energy.max()) < 0.01


def test_a_black_border_is_no_boundary() -> None:
    """A round view in a black, slightly noisy frame: its edge is the strongest contour, and must not vote."""
    rgb = mucosa(360, 300, seed=2)
    y, x = np.mgrid[:300, :360]
    border = np.hypot(x - 180, y - 150) > 90
    rgb[border] = np.random.default_rng(0).integers(0, 12, (int(border.sum()), 3))
    valleys, _ = CvcClinic().valleys(rgb)
    assert valleys.depth.max() < 0.03
    assert CvcClinic()(rgb) == ()


def test_no_location_lies_outside_the_view() -> None:
    """A black notch reaches the middle of a disk, which valleys still surround."""
    rgb = bright_disk(240, 240, (80, 120), 60)
    rgb[104:136, :96] = 0
    look = CvcClinic().look(rgb)
    assert look.energy is not None
    assert look.energy[104:136, 70:96].max() > 0.9 * look.energy.max()
    assert all(rgb[round(y), round(x)].any() for x, y in (d.point_xy for d in look.detections))


def _surrounded_by(kind: str) -> np.ndarray:
    """Even mucosa, 192×192, with a thin circle of something around its middle."""
    rgb = mucosa(192, 192, seed=1)
    distance = np.hypot(*(np.mgrid[:192, :192] - 96))
    ring = np.abs(distance - 36) < 2
    if kind == "shadow":
        rgb[ring] = (0.6 * rgb[ring]).astype(np.uint8)
    if kind == "vessel":
        rgb[ring, 1:] = (0.6 * rgb[ring, 1:]).astype(np.uint8)
    if kind == "highlights":
        for turn in np.arange(14) * 2 * np.pi / 14:
            centre = (int(96 + 36 * np.cos(turn)), int(96 + 36 * np.sin(turn)))
            cv2.circle(rgb, centre, 4, (250, 245, 240), -1)
    return rgb


@pytest.mark.parametrize("kind", ["vessel", "highlights"])
def test_what_is_no_shadow_hardly_votes(kind: str) -> None:
    shadow, other = (CvcClinic().look(_surrounded_by(one)).energy for one in ("shadow", kind))
    assert shadow is not None
    assert other is not None
    assert shadow[96, 96] > 0.5
    assert other.max() < 0.1 * shadow[96, 96]


@pytest.mark.parametrize("angle_deg", [30, 60, 120, 150])
def test_directions_outlive_the_way_to_the_working_size(angle_deg: int) -> None:
    nx, ny = math.cos(math.radians(angle_deg)), math.sin(math.radians(angle_deg))
    y, x = np.mgrid[:192, :192]
    shade = 1 - 0.4 * np.exp(-((((x - 96) * nx + (y - 96) * ny) / 4) ** 2))
    rgb = (shade[..., None] * np.array([185, 105, 80])).astype(np.uint8)
    valleys, _ = CvcClinic().valleys(rgb)
    on_line = valleys.depth > 0.5 * valleys.depth.max()
    assert np.abs(valleys.across_x[on_line] * nx + valleys.across_y[on_line] * ny).min() > 0.99


def test_the_first_location_is_the_highest_place_of_the_map() -> None:
    """In a large frame, where a pixel of the working size is twelve."""
    look = CvcClinic().look(bright_disk(1240, 1000, (480, 440), 168))
    assert look.energy is not None
    row, column = np.unravel_index(int(look.energy.argmax()), look.energy.shape)
    assert look.detections[0].point_xy == pytest.approx((column, row), abs=1.5)


def test_least_and_most_bound_the_locations() -> None:
    two = np.concatenate([bright_disk(160, 130, (80, 65), 24, seed=seed) for seed in (0, 1)], axis=1)
    scores = [d.score for d in CvcClinic(least=0)(two)]
    assert len(scores) > 2
    assert [d.score for d in CvcClinic(least=0, most=2)(two)] == scores[:2]
    assert [d.score for d in CvcClinic(least=0.2)(two)] == [score for score in scores if score and score > 0.2]


def test_a_vessel_is_filled_and_a_shadow_stays() -> None:
    rgb = flat(120, 90, 150)
    rgb[40:43, :, 1:] -= 45  # vessel: dark in green and blue alone
    rgb[60:63] -= 45  # shadow: dark in all
    rgb[20:23, :, 1] -= 45  # dark in green alone
    plain = rgb.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    grey = without_vessels(rgb)
    assert plain[30, 60] - plain[41, 60] > 25
    assert grey[30, 60] - grey[41, 60] < 10
    assert grey[30, 60] - grey[61, 60] > 40
    assert grey[30, 60] - grey[21, 60] > 25


def test_a_valley_is_where_it_is_dark_and_its_direction_is_across() -> None:
    y, x = np.mgrid[:80, :100].astype(np.float32)
    distance = (x - 50) * 0.6 + (y - 40) * 0.8  # from a line through the middle
    valleys = find_valleys(150 - 60 * np.exp(-((distance / 4) ** 2)))
    ridges = find_valleys(150 + 60 * np.exp(-((distance / 4) ** 2)))
    assert valleys.depth[40, 50] > 0.2
    assert valleys.depth[40, 50] > 5 * ridges.depth[40, 50]
    assert abs(valleys.across_x[40, 50] * 0.6 + valleys.across_y[40, 50] * 0.8) > 0.98


def test_a_valley_counts_as_it_is_deep_and_not_where_noise_would_do() -> None:
    distance = np.mgrid[:80, :100].astype(np.float32)[1] - 50
    faint, deep, deeper = (
        float(find_valleys(150 - grey * np.exp(-((distance / 4) ** 2))).depth[40, 50]) for grey in (1.5, 20, 60)
    )
    assert deeper == pytest.approx(3 * deep, rel=0.05)
    assert faint < 1e-3 * deep


def test_maxima_are_apart_and_best_first() -> None:
    energy = np.zeros((60, 80), np.float32)
    for x, y, value in ((20, 20, 0.9), (26, 20, 0.8), (60, 40, 0.5), (70, 10, 0.01)):
        energy[y, x] = value
    assert [(x, y) for x, y, _ in maxima(energy, 10, 5, 0.05)] == [(20, 20), (60, 40)]
    assert maxima(np.full((30, 30), 0.5, np.float32), 45, 5, 0.1)[0][2] == 0.5
    assert len(maxima(np.full((30, 30), 0.5, np.float32), 45, 5, 0.1)) == 1


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(RecordError, match="expected uint8 RGB"):
        CvcClinic()(np.zeros((40, 40), np.uint8))
    with pytest.raises(RecordError, match="odd"):
        Dova(window=4)
    for nearest, farthest in ((0, 5), (5, 5)):
        with pytest.raises(RecordError, match="from 1 to below farthest_px"):
            Dova(nearest_px=nearest, farthest_px=farthest)


def test_real_polyps_are_found_more_often_than_by_guessing(shared: Path) -> None:
    """Every twentieth frame of CVC-ClinicDB; polyps cover a tenth of the picture, so a guess is right that often."""
    method, hits, shares = CvcClinic(), [], []
    for path in sorted((shared / "data" / "cvc-clinicdb").glob("seq*/images/*.jpg"))[::20]:
        mask = read_mask(path.parent.parent / "masks" / f"{path.stem}.png").values
        x, y = method(read_rgb(path))[0].point_xy
        hits.append(bool(mask[int(y), int(x)]))
        shares.append(float(mask.mean()))
    assert len(hits) > 20
    assert np.mean(hits) > 3 * np.mean(shares)


def test_size_of_the_frame_does_not_change_the_answer() -> None:
    rgb = bright_disk(400, 320, (180, 150), 55)
    twice = np.asarray(cv2.resize(rgb, (800, 640), interpolation=cv2.INTER_CUBIC))
    one, two = CvcClinic()(rgb)[0], CvcClinic()(twice)[0]
    assert math.hypot(2 * one.point_xy[0] - two.point_xy[0], 2 * one.point_xy[1] - two.point_xy[1]) < 12
