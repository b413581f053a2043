"""Depth against closed forms (cylinder, sphere) and against embree: mean error at most 1e-3 mm."""

import numpy as np
import pytest

from polypscope.records import Camera
from polypscope.simulator.renderer import Hits, Lens, cast

CAMERAS = [
    Camera.from_fov(64, 48, 78.4),
    Camera.from_fov(48, 64, 110.0),
    Camera(64, 64, 40.0, 43.0, 25.0, 37.5),
    Camera.from_fov(64, 64, 140.0, "fisheye"),
    Camera(64, 64, 30.0, 30.0, 31.0, 32.0, "fisheye", (0.02, -0.01, 0.002, 0.0)),
]
POSES = [((0, 0, 0), (0, 0, 0)), ((6, -4, 2), (0, 0, 0)), ((0, 0, 0), (25, -15, 40)), ((-8, 5, 3), (-35, 20, 100))]


def pose_of(position, angles_deg) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_euler("xyz", angles_deg, degrees=True).as_matrix()
    pose[:3, 3] = position
    return pose


def unit_rays(lens: Lens) -> np.ndarray:
    return lens.rays / np.linalg.norm(lens.rays, axis=-1, keepdims=True)


def depth_of(camera: Camera, pose: np.ndarray, vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, Lens]:
    lens, hits = Lens.of(camera), Hits.empty(camera)
    cast(hits, lens, vertices, faces, pose)
    return hits.depth_mm(lens), lens


def cylinder(radius: float, half: float, around: int) -> tuple[np.ndarray, np.ndarray]:
    """Long thin triangles on purpose: each reaches far behind the camera."""
    t = np.linspace(0, 2 * np.pi, around, endpoint=False)
    ring = np.stack([radius * np.cos(t), radius * np.sin(t)], -1)
    vertices = np.concatenate([np.c_[ring, np.full(around, -half)], np.c_[ring, np.full(around, half)]])
    a, b = np.arange(around), np.roll(np.arange(around), -1)
    faces = np.concatenate([np.stack([a, b + around, b], -1), np.stack([a, a + around, b + around], -1)])
    return vertices, faces.astype(np.int32)


def sphere(radius: float, rows: int = 260) -> tuple[np.ndarray, np.ndarray]:
    theta, phi = np.linspace(1e-4, np.pi - 1e-4, rows), np.linspace(0, 2 * np.pi, 2 * rows, endpoint=False)
    tt, pp = np.meshgrid(theta, phi, indexing="ij")
    vertices = radius * np.stack([np.sin(tt) * np.cos(pp), np.sin(tt) * np.sin(pp), np.cos(tt)], -1).reshape(-1, 3)
    ids = np.arange(rows * 2 * rows).reshape(rows, 2 * rows)
    right = np.roll(ids, -1, 1)
    one = np.stack([ids[:-1], right[:-1], right[1:]], -1).reshape(-1, 3)
    two = np.stack([ids[:-1], right[1:], ids[1:]], -1).reshape(-1, 3)
    return vertices, np.concatenate([one, two]).astype(np.int32)


@pytest.mark.parametrize("camera", CAMERAS, ids=str)
@pytest.mark.parametrize(("position", "angles"), POSES)
def test_cylinder_depth_is_the_closed_form(camera, position, angles):
    radius, half, pose = 20.0, 150.0, pose_of(position, angles)
    depth, lens = depth_of(camera, pose, *cylinder(radius, half, 1500))
    d = unit_rays(lens) @ pose[:3, :3].T
    o = pose[:3, 3]
    a, b, c = (d[..., :2] ** 2).sum(-1), (d[..., :2] * o[:2]).sum(-1), (o[:2] ** 2).sum() - radius**2
    t = (-b + np.sqrt(b * b - a * c)) / np.maximum(a, 1e-12)
    on_wall = np.abs(o[2] + t * d[..., 2]) < half - 1
    z = t * unit_rays(lens)[..., 2]
    seen = on_wall & (z > 0.02)
    assert seen.sum() > 0.2 * seen.size
    error = np.abs(depth - z)[seen]
    assert error.mean() <= 1e-3
    # Elsewhere the open ends show nothing.
    assert np.isnan(depth[np.abs(o[2] + t * d[..., 2]) > half + 1]).all()


@pytest.mark.parametrize("camera", CAMERAS, ids=str)
@pytest.mark.parametrize(("position", "angles"), POSES)
def test_sphere_depth_is_the_closed_form(camera, position, angles):
    radius, pose = 20.0, pose_of(position, angles)
    depth, lens = depth_of(camera, pose, *sphere(radius))
    rays = unit_rays(lens)
    d, o = rays @ pose[:3, :3].T, pose[:3, 3]
    b = d @ o
    t = -b + np.sqrt(b * b - (o @ o - radius**2))
    z = t * rays[..., 2]
    seen = (z > 0.02) & (np.hypot(*np.moveaxis(o + t[..., None] * d, -1, 0)[:2]) > 0.1)
    assert np.abs(depth - z)[seen].mean() <= 1e-3


@pytest.mark.parametrize(("lens_kind", "fov_deg"), [("pinhole", 78.4), ("fisheye", 130.0)])
def test_depth_and_masks_agree_with_embree_on_a_colon_with_polyps(lens_kind, fov_deg):
    embree = pytest.importorskip("embreex.rtcore_scene", reason="embreex is a development extra")
    from embreex.mesh_construction import TriangleMesh

    from polypscope.simulator import sequence

    made = sequence(
        7, 2, frames=6, width=160, height=160, fov_deg=fov_deg, lens=lens_kind, fov_shape="none", negatives=0.0,
        triangles=60_000,
    )  # fmt: skip
    surface = made.stretch.surface
    labels = np.append(surface.labels, 0)
    offset = surface.vertices.mean(0)  # embree works in single precision: keep its numbers small
    scene = embree.EmbreeScene()
    TriangleMesh(scene, (surface.vertices - offset).astype(np.float32), surface.faces)
    rays = unit_rays(made.lens)
    errors, overlap, union = [], 0, 0
    for item in made:
        directions = (rays @ item.pose[:3, :3].T).reshape(-1, 3).astype(np.float32)
        origins = np.tile((item.pose[:3, 3] - offset).astype(np.float32), (len(directions), 1))
        found = scene.run(origins, directions, output=1)
        depth = item.truth.depth.values
        other = (found["tfar"] * rays.reshape(-1, 3)[:, 2]).reshape(depth.shape)
        jump = np.zeros(depth.shape, bool)
        for axis in (0, 1):
            step = np.abs(np.diff(other, axis=axis)) > 1.0
            jump[tuple(slice(0, -1) if k == axis else slice(None) for k in (0, 1))] |= step
            jump[tuple(slice(1, None) if k == axis else slice(None) for k in (0, 1))] |= step
        away = np.isfinite(depth) & ~jump & (other > 0.02)
        assert away.mean() > 0.6
        errors.append(np.abs(depth - other)[away].mean())
        mask, other_mask = item.truth.instances, labels[found["primID"]].reshape(depth.shape)
        overlap += int(((mask > 0) & (mask == other_mask)).sum())
        union += int(((mask > 0) | (other_mask > 0)).sum())
    assert np.mean(errors) <= 1e-3
    assert union > 2000
    assert overlap / union >= 0.999
