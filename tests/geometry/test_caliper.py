"""The caliper on shapes whose size is known exactly: balls, ellipsoids and domes on a wall, cast analytically."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from polypscope.geometry import caliper, cameras, masks
from polypscope.geometry.conformal import Conformal, fit
from polypscope.geometry.relief import relief_of
from polypscope.records import BinaryMask, Camera, DepthKind, DepthMap, SizeEstimate
from polypscope.records.errors import RecordError

CAMERA = Camera.from_fov(200, 200, 78.4)
EXACT = Conformal(1.0, 0.9, 100, "test")


def scene(
    axes_mm: tuple[float, float, float],
    distance_mm: float,
    *,
    elevation_deg: float = 90.0,
    centre_height_mm: float = 0.0,
    spin_deg: float = 0.0,
    camera: Camera = CAMERA,
) -> tuple[BinaryMask, DepthMap]:
    """Mask and depth of an ellipsoid (semi-axes in the wall's frame: along, across, upwards) on a plane wall.

    The camera looks at the ellipsoid's middle from `distance_mm`; `elevation_deg` is its angle above the wall.
    """
    e, a = np.radians([elevation_deg, spin_deg])
    up = np.array([0.0, -np.cos(e), -np.sin(e)])  # the wall's normal in the camera frame
    side = np.array([1.0, 0.0, 0.0])
    ahead = np.cross(up, side)
    along, across = np.cos(a) * side + np.sin(a) * ahead, -np.sin(a) * side + np.cos(a) * ahead
    frame = np.stack([along, across, up])
    middle = np.array([0.0, 0.0, distance_mm])
    r = cameras.rays(camera).reshape(-1, 3)
    scaled = r @ frame.T / np.array(axes_mm)
    origin = -(frame @ middle) / np.array(axes_mm)
    qa, qb, qc = (scaled**2).sum(1), 2 * scaled @ origin, origin @ origin - 1.0
    disc = qb**2 - 4 * qa * qc
    t_ball = np.where(disc > 0, (-qb - np.sqrt(np.maximum(disc, 0))) / (2 * qa), np.inf)
    base = middle - centre_height_mm * up
    with np.errstate(divide="ignore"):
        t_wall = (base @ up) / (r @ up)
    t_wall = np.where(t_wall > 0, t_wall, np.inf)
    t = np.minimum(t_ball, t_wall)
    shape = (camera.height, camera.width)
    z = np.where(np.isfinite(t), t * r[:, 2], np.nan).astype(np.float32).reshape(shape)
    return BinaryMask((t_ball < t_wall).reshape(shape)), DepthMap(z, DepthKind.Z_MM)


@pytest.mark.parametrize("distance", [9.0, 15.0, 30.0, 45.0])
def test_a_ball_shows_its_tangent_circle_and_the_closed_form_restores_it(distance: float) -> None:
    radius = 3.0
    mask, depth = scene((radius, radius, radius), distance, centre_height_mm=radius)
    chord = caliper.largest_chord(mask, depth, CAMERA)
    visible = 2 * radius * np.sqrt(1 - (radius / distance) ** 2)
    pixel_mm = distance / CAMERA.fx
    # A limb falls away steeply, so its depth is known to a few hundredths of the radius only.
    tolerance = 0.9 * pixel_mm + 0.02 * visible
    assert chord.long_mm == pytest.approx(visible, abs=tolerance)
    restored = chord.long_mm * np.exp(chord.features[0])
    assert restored == pytest.approx(2 * radius, abs=1.2 * tolerance)


def test_a_dome_from_above_hides_nothing() -> None:
    mask, depth = scene((4.0, 4.0, 2.0), 20.0)
    estimate = caliper.measure(mask, depth, CAMERA)
    assert estimate.long_mm == pytest.approx(8.0, abs=0.25)
    assert estimate.short_mm == pytest.approx(8.0, abs=0.35)
    assert estimate.flags == ()


@pytest.mark.parametrize("elevation", [35.0, 60.0, 90.0])
@pytest.mark.parametrize("spin", [0.0, 40.0, 90.0])
def test_domes_from_any_side(elevation: float, spin: float) -> None:
    mask, depth = scene((5.0, 3.0, 2.0), 25.0, elevation_deg=elevation, spin_deg=spin)
    estimate = caliper.measure(mask, depth, CAMERA)
    assert estimate.long_mm == pytest.approx(10.0, rel=0.06)
    assert estimate.interval_mm is not None
    assert estimate.interval_mm[0] < 10.0 < estimate.interval_mm[1]


def test_many_domes_stay_within_the_error_budget() -> None:
    generator = np.random.default_rng(4)
    errors, noisy = [], []
    for _ in range(60):
        a = generator.uniform(1.0, 9.0)
        b, c = a * generator.uniform(0.6, 1.0), a * generator.uniform(0.2, 0.9)
        distance = generator.uniform(max(8.0, 2.2 * a), 50.0)
        mask, depth = scene(
            (a, b, c), distance, elevation_deg=generator.uniform(30, 90), spin_deg=generator.uniform(0, 180)
        )
        if mask.area_px < 12:
            continue
        errors.append(caliper.measure(mask, depth, CAMERA).long_mm - 2 * a)
        rough = depth.values * (1 + 0.02 * generator.standard_normal(depth.shape)).astype(np.float32)
        noisy.append(caliper.measure(mask, DepthMap(rough, DepthKind.Z_MM), CAMERA).long_mm - 2 * a)
    assert np.mean(np.abs(errors)) <= 0.40
    assert np.mean(np.abs(noisy)) <= 0.60


@pytest.mark.parametrize("spill_px", [4, 8, 14])
def test_a_mask_that_spills_over_a_limb_does_not_reach_the_wall_far_behind(spill_px: int) -> None:
    mask, depth = scene((3.0, 3.0, 3.0), 20.0, centre_height_mm=15.0)
    spilt = BinaryMask(mask.values | np.roll(mask.values, spill_px, axis=1))
    right = caliper.measure(mask, depth, CAMERA).long_mm
    assert caliper.measure(spilt, depth, CAMERA).long_mm == pytest.approx(right, rel=0.05)


def test_of_a_spilt_mask_the_part_with_depth_is_measured_though_more_of_it_has_none() -> None:
    z = np.full((200, 200), np.nan, np.float32)
    z[90:110, 80:100] = 20.0  # a square of the polyp, then a seam of wall far behind, then nothing
    z[90:110, 100] = 80.0
    mask = np.zeros((200, 200), bool)
    mask[90:110, 80:125] = True
    relief = relief_of(BinaryMask(mask), DepthMap(z, DepthKind.Z_MM), CAMERA)
    assert np.nanmax(relief.points[:, 2]) == pytest.approx(20.0, abs=0.1)
    assert np.ptp(relief.points[:, 0]) == pytest.approx(20 * 20.0 / CAMERA.fx, rel=0.05)


def test_a_part_behind_a_step_counts_while_it_may_belong_to_the_polyp() -> None:
    # Two parts of one outline, the second set back as a head sets back its stalk, or further.
    mask, depth = scene((4.0, 4.0, 1.0), 20.0)
    for back_mm, whole in ((10.0, True), (24.0, False)):
        z = depth.values.copy()
        z[:, 104:] += np.float32(back_mm)
        relief = relief_of(mask, DepthMap(z, DepthKind.Z_MM), CAMERA)
        assert (np.linalg.norm(relief.points, axis=1).max() > 20.0 + 0.5 * back_mm) == whole


def test_size_is_linear_in_depth() -> None:
    mask, depth = scene((4.0, 3.0, 2.0), 22.0, elevation_deg=50.0)
    double = DepthMap(depth.values * np.float32(2.0), DepthKind.Z_MM)
    one, two = caliper.measure(mask, depth, CAMERA), caliper.measure(mask, double, CAMERA)
    assert two.long_mm / one.long_mm == pytest.approx(2.0, rel=1e-5)
    assert two.short_mm / one.short_mm == pytest.approx(2.0, rel=1e-5)


def test_axial_and_ray_depth_give_the_same_size() -> None:
    camera = Camera.from_fov(200, 200, 120.0, "fisheye")
    mask, depth = scene((4.0, 3.0, 2.0), 12.0, elevation_deg=60.0, camera=camera)
    along = cameras.to_ray(camera, depth)
    a, b = caliper.measure(mask, depth, camera), caliper.measure(mask, along, camera)
    assert a.long_mm == pytest.approx(b.long_mm, rel=1e-5)


def test_the_relief_finds_wall_height_and_angle() -> None:
    mask, depth = scene((3.0, 3.0, 3.0), 25.0, elevation_deg=55.0, centre_height_mm=1.0)
    relief = relief_of(mask, depth, CAMERA)
    assert relief.elevation_deg == pytest.approx(55.0, abs=2.0)
    assert relief.apex_mm == pytest.approx(4.0, abs=0.2)
    assert relief.noise < 0.001
    assert relief.holes == 0.0


def flag_cases() -> list[tuple[str, str]]:
    return [
        ("truncated", "shifted"),
        ("too_far", "far"),
        ("oblique", "grazing"),
        ("depth_holes", "holes"),
        ("blurred", "blur"),
    ]


@pytest.mark.parametrize(("flag", "how"), flag_cases())
def test_flags(flag: str, how: str) -> None:
    mask, depth = scene((4.0, 4.0, 2.0), 20.0, elevation_deg=12.0 if how == "grazing" else 60.0)
    camera, rgb = CAMERA, None
    if how == "shifted":
        mask = BinaryMask(mask.values[:, 100:])
        depth = DepthMap(depth.values[:, 100:], DepthKind.Z_MM)
        camera = replace(CAMERA, width=100, cx=CAMERA.cx - 100)
    if how == "far":
        mask, depth = scene((2.0, 2.0, 1.0), 90.0)
    if how == "holes":
        values = depth.values.copy()
        values[:98] = np.nan
        depth = DepthMap(values, DepthKind.Z_MM)
    if how == "blur":
        rgb = np.tile(np.linspace(0, 255, 200).astype(np.uint8)[:, None], (200, 1, 3)).reshape(200, 200, 3)
    found = caliper.measure(mask, depth, camera, rgb=rgb)
    assert flag in found.flags
    assert set(found.flags) <= set(caliper.FLAGS)


def test_a_sharp_texture_is_not_blurred() -> None:
    generator = np.random.default_rng(0)
    mask, _ = scene((4.0, 4.0, 2.0), 20.0)
    rgb = generator.integers(0, 255, (200, 200, 3), dtype=np.uint8)
    assert caliper.blur_of(rgb, mask) < 0.4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m, d: (BinaryMask(np.zeros((200, 200), bool)), d), "empty mask"),
        (lambda m, d: (m, DepthMap(d.values / np.float32(1000), DepthKind.Z_MM)), "looks like metres"),
        (lambda m, d: (m, DepthMap(np.where(m.values, np.nan, d.values), DepthKind.Z_MM)), "30 % of the mask"),
        (lambda m, d: (m, DepthMap(d.values, DepthKind.RELATIVE)), "align"),
        (lambda m, d: (BinaryMask(m.values[:100]), d), "shape of the depth map"),
        (lambda m, d: (BinaryMask(m.values[:100]), DepthMap(d.values[:100], DepthKind.Z_MM)), "intrinsics"),
    ],
)
def test_bad_input_is_said_in_one_sentence(change: object, says: str) -> None:
    mask, depth = scene((4.0, 4.0, 2.0), 20.0)
    bad_mask, bad_depth = change(mask, depth)  # type: ignore[operator]
    with pytest.raises(RecordError) as error:
        caliper.measure(bad_mask, bad_depth, CAMERA)
    assert says in str(error.value)


def estimate(size: float, half_width: float = 0.1, flags: tuple[str, ...] = ()) -> SizeEstimate:
    return SizeEstimate(size, size * 0.8, (size * np.exp(-half_width), size * np.exp(half_width)), 0.9, "test", flags)


def test_combining_ignores_an_outlier_and_truncated_frames() -> None:
    frames = [estimate(8.0), estimate(8.1), estimate(7.9), estimate(8.05), estimate(16.0)]
    frames += [estimate(3.0, flags=("truncated",))] * 10
    found = caliper.combine(frames)
    assert found.long_mm == pytest.approx(8.05, abs=0.15)
    assert found.short_mm == pytest.approx(0.8 * found.long_mm, rel=1e-6)
    assert "truncated" not in found.flags


def test_combining_trusts_narrow_intervals_more() -> None:
    found = caliper.combine([estimate(10.0, 0.02), estimate(12.0, 0.2)])
    assert found.long_mm == pytest.approx(10.02, abs=0.05)
    assert "few_frames" in found.flags


def test_only_truncated_frames_remain_flagged() -> None:
    found = caliper.combine([estimate(5.0, flags=("truncated",))] * 4)
    assert "truncated" in found.flags


def test_of_lower_bounds_the_largest_count() -> None:
    # A polyp that slides out of the picture: every frame shows less of it, and one mask is far too large.
    bounds = [estimate(size, flags=("truncated",)) for size in np.linspace(8.0, 3.0, 19)]
    found = caliper.combine([*bounds, estimate(20.0, flags=("occluded",))])
    assert 7.0 < found.long_mm <= 8.0
    assert {"truncated", "occluded"} <= set(found.flags)  # some frames are the one, some the other, none is whole
    assert "disagreement" not in found.flags  # bounds that differ contradict nothing
    assert caliper.combine([*bounds, *[estimate(9.0)] * 3]).long_mm == pytest.approx(9.0)


def test_frames_that_contradict_each_other_are_flagged() -> None:
    found = caliper.combine([estimate(s, 0.05) for s in (4.0, 4.1, 8.0, 8.2)])
    assert "disagreement" in found.flags


def test_many_frames_average_the_errors_of_views_away_but_not_those_of_a_predicted_scale() -> None:
    def width(frames: int, method: str) -> float:
        low, high = caliper.combine([replace(estimate(8.0), method=method)] * frames).interval_mm
        return float(np.log(high / low))

    assert width(60, "caliper") < 0.9 * width(6, "caliper")
    assert width(60, caliper.PREDICTED) == pytest.approx(width(6, caliper.PREDICTED))


def test_combining_nothing_is_an_error() -> None:
    with pytest.raises(RecordError, match="at least one"):
        caliper.combine([])


def test_conformal_intervals_cover_new_polyps_at_their_level() -> None:
    generator = np.random.default_rng(7)
    coverage = []
    for _ in range(40):
        sigma = generator.uniform(0.02, 0.2, 300)
        true = generator.uniform(2, 20, 300)
        sizes = true * np.exp(0.05 + 1.7 * sigma * generator.standard_normal(300))  # biased and overconfident
        rule = fit(sizes[:150], true[:150], sigma[:150], level=0.9, source="test")
        inside = [
            low <= t <= high
            for t, s, g in zip(true[150:], sizes[150:], sigma[150:], strict=True)
            for low, high in [rule.interval_mm(s, g)]
        ]
        coverage.append(np.mean(inside))
    assert 0.88 <= np.mean(coverage) <= 0.925


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([1.0] * 5, [1.0] * 5, [0.1] * 5), "at least 9 polyps"),
        (([1.0], [0.0], [0.1]), "above 0"),
        (([1.0], [1.0, 2.0], [0.1]), "one length"),
    ],
)
def test_conformal_says_what_it_needs(arguments: tuple[list[float], ...], says: str) -> None:
    with pytest.raises(RecordError, match=says):
        fit(*arguments, level=0.9, source="test")


def test_outline_lies_between_pixels_and_feret_counts_whole_pixels() -> None:
    v, u = np.mgrid[:60, :90]
    ends, width = masks.feret(BinaryMask(((u - 44) / 30.0) ** 2 + ((v - 30) / 12.0) ** 2 <= 1.0))
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(60.0, abs=1.1)
    assert width == pytest.approx(24.0, abs=1.1)


def test_predicted_depth_carries_its_uncertainty_into_the_interval() -> None:
    mask, depth = scene((4.0, 4.0, 2.0), 20.0)
    predicted = DepthMap(depth.values, DepthKind.Z_MM, depth.values * np.float32(0.1))
    exact, found = caliper.measure(mask, depth, CAMERA), caliper.measure(mask, predicted, CAMERA)
    assert exact.interval_mm is not None
    assert found.interval_mm is not None
    assert found.method == caliper.PREDICTED
    assert found.interval_mm[1] / found.interval_mm[0] > 1.1 * exact.interval_mm[1] / exact.interval_mm[0]
    # The rule for a track follows from how its frames were measured.
    one, other = caliper.combine([exact] * 3), caliper.combine([replace(exact, method=caliper.PREDICTED)] * 3)
    assert one.interval_mm != other.interval_mm


def test_only_part_of_a_predicted_relief_lengthens_the_polyp() -> None:
    mask, depth = scene((4.0, 4.0, 2.0), 20.0)
    tilted = (depth.values * np.linspace(0.6, 1.4, 200, dtype=np.float32)[None]).astype(np.float32)
    longer = {}
    for share in (None, np.float32(0.2)):  # exact and predicted maps: the latter carry sigma
        flat, steep = (
            caliper.measure(mask, DepthMap(z, DepthKind.Z_MM, None if share is None else share * z), CAMERA).long_mm
            for z in (depth.values, tilted)
        )
        longer[share is None] = steep / flat - 1
    assert 0.1 * longer[True] < longer[False] < 0.8 * longer[True]


def test_depth_that_bleeds_over_the_edge_of_a_predicted_polyp_does_not_count() -> None:
    mask, depth = scene((4.0, 4.0, 2.0), 20.0)
    rim = mask.values & ~ndimage.binary_erosion(mask.values, iterations=2)
    bled = np.where(rim & (np.arange(200) > 100), 1.15 * depth.values, depth.values).astype(np.float32)
    sigma = 0.2 * depth.values
    clear, blurred, naive = (
        caliper.measure(mask, DepthMap(values, DepthKind.Z_MM, sigma), CAMERA, inset_px=inset).long_mm
        for values, inset in ((depth.values, None), (bled, None), (bled, 0))
    )
    assert blurred == pytest.approx(clear, rel=0.01)
    assert naive > 1.02 * clear


def test_a_fold_in_front_and_the_edge_of_a_round_picture_are_flagged() -> None:
    mask, depth = scene((4.0, 4.0, 2.0), 20.0, elevation_deg=60.0)
    nearer = depth.values.copy()
    nearer[:, :95] = 8.0
    covered = BinaryMask(mask.values & (np.arange(200) >= 95))
    assert "occluded" in caliper.measure(covered, DepthMap(nearer, DepthKind.Z_MM), CAMERA).flags
    round_picture = np.zeros((200, 200), bool)
    round_picture[:, :110] = True
    cut = BinaryMask(mask.values & round_picture)
    assert "truncated" in caliper.measure(cut, depth, CAMERA, field_of_view=round_picture).flags
