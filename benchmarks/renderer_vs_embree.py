"""Our rasteriser against embree, same shading, same process, frame by frame in turn.

    python benchmarks/renderer_vs_embree.py [--frames 30] [--triangles 200000]

RGB + depth + mask at 320×320 over a colon with polyps, one thread, processor time. Needs embreex (extra dev).
"""

from __future__ import annotations

import argparse
import os
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import cv2  # noqa: E402
import numpy as np  # noqa: E402

from polypscope.simulator import sequence  # noqa: E402
from polypscope.simulator.renderer import Hits, _project_pinhole, cast  # noqa: E402
from polypscope.simulator.shading import shade  # noqa: E402

cv2.setNumThreads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--triangles", type=int, default=195_000)
    arguments = parser.parse_args()

    from embreex.mesh_construction import TriangleMesh
    from embreex.rtcore_scene import EmbreeScene

    made = sequence(7, 1, frames=arguments.frames, negatives=0.0, triangles=arguments.triangles, fov_shape="none")
    surface, lens, tissue = made.stretch.surface, made.lens, made.tissue
    labels = np.append(surface.labels, 0)
    origin = surface.vertices.mean(0)
    scene = EmbreeScene()
    TriangleMesh(scene, (surface.vertices - origin).astype(np.float32), surface.faces)
    unit = (lens.rays / np.linalg.norm(lens.rays, axis=-1, keepdims=True)).reshape(-1, 3)

    def finish(hits: Hits, points: np.ndarray, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        light = shade(hits, lens, tissue, points, pose)
        assert light.shape == (320, 320, 3)
        return hits.depth_mm(lens), labels[hits.face]

    def ours(pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hits = Hits.empty(lens.camera)
        return finish(hits, cast(hits, lens, surface.vertices, surface.faces, pose), pose)

    def embree(pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        directions = (unit @ pose[:3, :3].T).astype(np.float32)
        start = np.broadcast_to((pose[:3, 3] - origin).astype(np.float32), directions.shape)
        found = scene.run(np.ascontiguousarray(start), directions, output=1)
        shape = (lens.camera.height, lens.camera.width)
        distance = (found["tfar"] * unit[:, 2]).reshape(shape).astype(np.float32)
        hits = Hits(found["primID"].reshape(shape).astype(np.int32), distance)
        # The shading wants vertices in the camera frame; embree is given them at the price that ours pays.
        camera, rotation = lens.camera, np.ascontiguousarray(pose[:3, :3])
        points, _ = _project_pinhole(
            surface.vertices, rotation, np.ascontiguousarray(pose[:3, 3]), camera.fx, camera.fy, camera.cx, camera.cy
        )
        return finish(hits, points, pose)

    spent = {"ours": [], "embree": []}
    errors, overlap, union = [], 0, 0
    ours(made.poses[0])
    embree(made.poses[0])
    for pose in made.poses:
        results = {}
        for name, draw in (("ours", ours), ("embree", embree)):
            start = time.process_time()
            results[name] = draw(pose)
            spent[name].append(time.process_time() - start)
        (depth, mask), (other, other_mask) = results["ours"], results["embree"]
        jump = np.abs(cv2.Laplacian(other, cv2.CV_32F)) > 0.5
        errors.append(np.abs(depth - other)[~jump].mean())
        overlap += int(((mask > 0) & (mask == other_mask)).sum())
        union += int(((mask > 0) | (other_mask > 0)).sum())
    a, b = (1000 * float(np.median(spent[name])) for name in ("ours", "embree"))
    print(f"{len(surface.faces)} triangles, 320x320, {len(made.poses)} frames, one thread, median processor time")
    print(f"ours   {a:6.1f} ms per frame")
    print(f"embree {b:6.1f} ms per frame")
    print(f"ratio  {b / a:6.2f} (embree / ours; the aim is 1.3 or more)")
    print(
        f"depth differs by {np.mean(errors):.2e} mm on average away from edges; mask IoU {overlap / max(union, 1):.5f}"
    )


if __name__ == "__main__":
    main()
