"""A sequence is deterministic, its truth fits its pictures, and the camera stays inside the lumen."""

from dataclasses import replace

import numpy as np
import pytest

from polypscope.records import DepthKind
from polypscope.records.errors import UsageError
from polypscope.simulator import Settings, sequence
from polypscope.simulator.scope import LEAST_CLEARANCE_MM, Lumen, NoRoom
from polypscope.simulator.sequence import _prepare
from polypscope.simulator.surface import vertex_normals

TINY = {"frames": 6, "width": 64, "height": 64, "triangles": 12_000}


@pytest.fixture(scope="module")
def clinical():
    made = sequence(seed=3, index=1, style="clinical", negatives=0.0, **TINY)
    return made, list(made)


def test_reading_twice_gives_the_same_bytes(clinical):
    made, frames = clinical
    for first, again in zip(frames, made, strict=True):
        assert first.jpeg == again.jpeg
        assert np.array_equal(first.frame.rgb, again.frame.rgb)
        assert np.array_equal(first.truth.instances, again.truth.instances)
    other = next(iter(sequence(seed=4, index=1, style="clinical", **TINY)))
    assert not np.array_equal(other.frame.rgb, frames[0].frame.rgb)


def test_truth_fits(clinical):
    made, frames = clinical
    known = {p.id for p in made.polyps}
    assert known
    for item in frames:
        assert item.truth.depth.kind is DepthKind.Z_MM
        assert np.array_equal(np.isfinite(item.truth.depth.values), made.fov)
        assert not item.truth.instances[~made.fov].any()
        assert set(np.unique(item.truth.instances)) - {0} == {p.id for p in item.truth.polyps}
        assert np.allclose(item.pose[:3, :3] @ item.pose[:3, :3].T, np.eye(3), atol=1e-9)
        assert np.linalg.det(item.pose[:3, :3]) == pytest.approx(1.0)
    assert any(item.truth.has_polyp for item in frames)


@pytest.mark.parametrize("index", range(4))
def test_the_camera_never_leaves_the_lumen(index):
    made = sequence(seed=9, index=index, **{**TINY, "frames": 80})
    surface = made.stretch.surface
    lumen = Lumen(surface.vertices, vertex_normals(surface.vertices, surface.faces))
    distance, _ = lumen.clearance(made.poses[:, :3, 3])
    assert distance.min() > 1.0


@pytest.mark.parametrize(("seed", "index"), [(14, 5), (15, 0)])
def test_where_limbs_of_the_colon_cross_another_place_is_drawn(seed, index):
    settings = Settings(**{**TINY, "frames": 300}, polyps="sampled")
    with pytest.raises(NoRoom, match="expected room"):
        _prepare(settings, seed, index, 0)
    made, again = sequence(seed, index, settings), sequence(seed, index, settings)
    assert np.array_equal(made.poses, again.poses)
    assert made.lumen.clearance(made.poses[:, :3, 3])[0].min() >= LEAST_CLEARANCE_MM


def test_a_negative_sequence_has_no_polyp():
    made = sequence(seed=3, negatives=1.0, **TINY)
    assert made.polyps == ()
    assert not any(item.truth.has_polyp for item in made)


@pytest.mark.parametrize(
    "change",
    [
        {"frames": 0},
        {"width": 4},
        {"fov_deg": 200.0},
        {"fov_deg": (90.0, 60.0)},
        {"negatives": 2.0},
        {"lens": "mirror"},
    ],
    ids=str,
)
def test_impossible_settings_are_one_sentence(change):
    with pytest.raises(UsageError, match=r"expected .* found"):
        Settings(**change)


def test_chosen_frames_are_those_of_the_whole_but_for_their_exposure(clinical):
    made, frames = clinical
    kept = list(made.only([2, 3, 5]))
    assert len(made.only([2, 3, 5])) == 3
    for item, number in zip(kept, (2, 3, 5), strict=True):
        assert item.frame.index == number
        np.testing.assert_array_equal(item.pose, frames[number].pose)
        np.testing.assert_array_equal(item.truth.instances, frames[number].truth.instances)
        np.testing.assert_array_equal(item.truth.depth.values, frames[number].truth.depth.values)
    first = next(iter(made.only([0])))
    np.testing.assert_array_equal(first.frame.rgb, frames[0].frame.rgb)  # here nothing came before
    assert [item.frame.index for item in made.only(np.array([4, -1]))] == [4, 5]


def test_a_chosen_frame_is_blurred_by_its_own_motion_and_metered_where_it_is():
    # A passage of 260 mm: far frames differ in brightness, and a leap between them would smear them over.
    made = sequence(seed=5, index=2, style="clinical", negatives=0.0, **{**TINY, "frames": 300, "width": 160})
    alone = [next(iter(made.only([number]))).frame.rgb for number in (40, 280)]
    together = [item.frame.rgb for item in made.only([40, 280])]
    for one, other in zip(alone, together, strict=True):
        assert np.abs(one.astype(int) - other).mean() < 2.0  # grain is drawn anew


def test_relit_is_the_same_scene_under_other_light():
    made = sequence(seed=3, index=1, negatives=0.0, **TINY)
    other = made.relit(np.random.default_rng(0))
    a, b = next(iter(made)), next(iter(other))
    np.testing.assert_array_equal(a.truth.depth.values, b.truth.depth.values)
    np.testing.assert_array_equal(a.truth.instances, b.truth.instances)
    assert np.abs(a.frame.rgb.astype(int) - b.frame.rgb).mean() > 3
    assert other.look.mm_per_px == other.tissue.wall.mm_per_px != made.look.mm_per_px
    assert other.tissue.parameters[0] == np.float32(other.look.roughness)
    assert (other.look.base, other.look.texture_seed) == (made.look.base, made.look.texture_seed)
    np.testing.assert_array_equal(next(iter(made)).frame.rgb, a.frame.rgb)  # the first is as it was


@pytest.mark.parametrize(("moved", "same"), [(0, True), (199, False)])
def test_only_the_pose_before_a_frame_blurs_it(moved, same):
    made = sequence(seed=5, index=2, style="clinical", negatives=0.0, **{**TINY, "frames": 300})
    other = replace(made, poses=made.poses.copy())
    other.poses[moved] = made.poses[120]
    a, b = (next(iter(one.only([200]))).frame.rgb for one in (made, other))
    assert np.array_equal(a, b) is same
