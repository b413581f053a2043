"""Simulated clips as training data: rendered once into shards on disk, for the memory, the depth head and the
simulation-only segmenter.

Training colons come from data-set seeds from `FIRST_SEED` on and training polyps are sampled anew for every sequence,
so that lower seeds and the thirty polyp models stay unseen.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.geometry.cameras import project, rays
from polypscope.records import Camera
from polypscope.records.errors import MissingInput
from polypscope.runtime.jobs import run_jobs
from polypscope.simulator import sequence
from polypscope.simulator.sequence import Settings, SimulatedFrame, SimulatedSequence

FIRST_SEED = 5000
FIRST_VIEWS = 6000
SIDE_PX = 352
DEPTH_SIDE_PX = 88
RAY_SIDE_PX = 22
SHAPES = ((320, 320), (352, 288), (384, 288), (360, 320), (416, 240))


@dataclass(frozen=True)
class Shard:
    """Clips of one sequence, as arrays.

    rgb: uint8 [C, T, 352, 352, 3]; mask: uint8 [C, T, 352, 352], 0 or 255; ray_mm: float16 [C, T, 88, 88], distance
    along the viewing ray, NaN without value; directions: float32 [22, 22, 3], unit viewing rays of the squeezed
    picture.
    """

    rgb: NDArray[np.uint8]
    mask: NDArray[np.uint8]
    ray_mm: NDArray[np.float16]
    directions: NDArray[np.float32]

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".part.npz")
        np.savez(partial, rgb=self.rgb, mask=self.mask, ray_mm=self.ray_mm, directions=self.directions)
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Shard:
        """A saved shard; its arrays are mapped from the file, so that of a single frame little more than it is read."""
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            arrays = {info.filename: _mapped(path, file, info) for info in archive.infolist()}
        return cls(*(arrays[f"{name}.npy"] for name in ("rgb", "mask", "ray_mm", "directions")))


def _mapped(path: Path, file: BinaryIO, info: zipfile.ZipInfo) -> NDArray[Any]:
    """An array of an uncompressed .npz file; changes to it stay in memory."""
    file.seek(info.header_offset + 26)
    name_length, extra_length = struct.unpack("<HH", file.read(4))
    file.seek(name_length + extra_length, os.SEEK_CUR)
    np.lib.format.read_magic(file)
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    return np.memmap(path, dtype, "c", file.tell(), shape, "F" if by_columns else "C")


def ray_directions(camera: Camera, side_px: int = RAY_SIDE_PX) -> NDArray[np.float32]:
    """Unit viewing rays [side, side, 3] of the camera's picture squeezed to side × side."""
    field = rays(camera.resized(side_px, side_px))
    return (field / np.linalg.norm(field, axis=-1, keepdims=True)).astype(np.float32)


def render_shards(
    folder: Path, wanted: Iterable[int], say: Callable[[str], None] = print, jobs: int = -1, *, views: bool = False
) -> list[Path]:
    """The shards of these sequences, rendered if they are not there yet; one that cannot be made is named and left out.

    They hold short clips (`render_shard`) or, with `views`, single frames (`render_views`).
    """
    render = render_views if views else render_shard
    folder.mkdir(parents=True, exist_ok=True)
    paths = {index: _shard_path(folder, index) for index in wanted}
    missing = [index for index, path in paths.items() if not path.exists()]
    if missing:
        say(f"rendering {len(missing)} sequences into {folder}, a second or two each on one core")
    work = partial(_render, render, folder)
    for failure in run_jobs(work, missing, jobs=jobs, label="rendering", unit="sequences").failures:
        say(f"sequence {failure.name} left out: {failure.sentence}")
    return [path for path in paths.values() if path.exists()]


def shard_paths(folder: Path) -> list[Path]:
    """Rendered shards, in order."""
    paths = sorted(folder.glob("[0-9]*[0-9].npz"))
    if not paths:
        raise MissingInput(f"Simulated clips: expected rendered shards in {folder}, found none; see `render_shards`.")
    return paths


def _shard_path(folder: Path, index: int) -> Path:
    return folder / f"{index:05d}.npz"


def _render(render: Callable[[int], Shard], folder: Path, index: int) -> Path:
    path = _shard_path(folder, index)
    render(index).save(path)
    return path


def write_stills(shards: Path, out: Path, least_share: float = 0.002) -> int:
    """Write frames of all shards as a folder of pictures and masks for `polypscope train`; returns how many.

    Frames whose polyps cover less than `least_share` of the picture are left out: nobody could see them.
    """
    for name in ("images", "masks"):
        (out / name).mkdir(parents=True, exist_ok=True)
    written = 0
    for path in shard_paths(shards):
        shard = Shard.load(path)
        for clip in range(shard.rgb.shape[0]):
            for frame in (0, shard.rgb.shape[1] - 1):
                mask = shard.mask[clip, frame]
                if 0 < (mask > 127).mean() < least_share:
                    continue
                stem = f"{path.stem}-{clip}-{frame}"
                cv2.imwrite(str(out / "images" / f"{stem}.jpg"), shard.rgb[clip, frame][..., ::-1], [1, 95])
                cv2.imwrite(str(out / "masks" / f"{stem}.png"), np.where(mask > 127, 255, 0).astype(np.uint8))
                written += 1
    return written


def _settings(rng: np.random.Generator) -> Settings:
    """Lens, field of view, shape and style of a training sequence."""
    width, height = SHAPES[rng.integers(len(SHAPES))]
    # Cameras have more pixels than the network sees; half of the sequences are rendered finer and reduced.
    finer = 1.5 if rng.random() < 0.5 else 1.0
    fisheye = rng.random() < 0.35
    return Settings(
        frames=120,
        width=round(width * finer),
        height=round(height * finer),
        fov_deg=(60.0, 150.0) if fisheye else (60.0, 140.0),
        lens="fisheye" if fisheye else "pinhole",
        style="clinical" if rng.random() < 0.6 else "clean",
        polyps="sampled",
        negatives=0.1,
        triangles=100_000,
    )


def render_shard(index: int, clips: int = 3, frames: int = 4, seed: int = FIRST_SEED) -> Shard:
    """Render `clips` short clips of training sequence `index`: lens, field of view, shape and style vary with it.

    All clips but the first start where a polyp is in view, if there is one.
    """
    rng = np.random.default_rng([seed, index])
    settings = _settings(rng)
    made = sequence(seed, index, settings)
    pace = int(rng.integers(1, 4))
    last = settings.frames - frames * pace
    shown = np.flatnonzero(_in_view(made)[:last])
    anywhere = rng.choice(last, clips, replace=False)
    aimed = rng.choice(shown, clips) if len(shown) else anywhere
    starts = np.sort([anywhere[0], *aimed[1:]])
    wanted = [int(start) + pace * step for start in starts for step in range(frames)]
    return _shard(made, made.only(wanted), (clips, frames))


def render_views(index: int, views: int = 12, seed: int = FIRST_VIEWS) -> Shard:
    """Render single frames of training sequence `index`, half of them of a polyp, each under light of its own.

    Each sequence runs through a colon of its own. Depth is learnt from many places rather than from many frames of one.
    """
    rng = np.random.default_rng([seed, index])
    made = sequence(seed, index * 4, _settings(rng))
    shown = np.flatnonzero(_in_view(made))
    anywhere = rng.choice(len(made), views, replace=False)
    aimed = rng.choice(shown, views, replace=len(shown) < views) if len(shown) else anywhere
    wanted = np.concatenate([anywhere[: views - views // 2], aimed[views - views // 2 :]])
    items = (next(iter(made.relit(rng).only([frame]))) for frame in wanted)
    return _shard(made, items, (views, 1))


def _shard(made: SimulatedSequence, items: Iterable[SimulatedFrame], shape: tuple[int, int]) -> Shard:
    """Frames of a sequence, squeezed to the network's size."""
    pictures, masks, depths = [], [], []
    directions = rays(made.camera)
    stretch = np.linalg.norm(directions, axis=-1) / directions[..., 2]
    for item in items:
        pictures.append(cv2.resize(item.frame.rgb, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA))
        polyp = (item.truth.instances > 0).astype(np.uint8) * 255
        masks.append(cv2.resize(polyp, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA))
        ray = (item.truth.depth.values * stretch).astype(np.float32)
        depths.append(cv2.resize(ray, (DEPTH_SIDE_PX, DEPTH_SIDE_PX), interpolation=cv2.INTER_NEAREST))
    return Shard(
        np.stack(pictures).reshape(*shape, SIDE_PX, SIDE_PX, 3),
        np.stack(masks).reshape(*shape, SIDE_PX, SIDE_PX),
        np.stack(depths).reshape(*shape, DEPTH_SIDE_PX, DEPTH_SIDE_PX).astype(np.float16),
        ray_directions(made.camera),
    )


def _in_view(made: SimulatedSequence, far_mm: float = 60.0) -> NDArray[np.bool_]:
    """Frames in whose field of view some polyp's apex lies within `far_mm`; walls in between are not looked at."""
    shown = np.zeros(len(made.poses), bool)
    for polyp in made.polyps:
        seen = np.einsum("nji,nj->ni", made.poses[:, :3, :3], polyp.apex - made.poses[:, :3, 3])
        pixels = project(made.camera, seen)
        inside = ((pixels >= 0) & (pixels < (made.camera.width, made.camera.height))).all(1)
        shown |= inside & (seen[:, 2] > 1) & (np.linalg.norm(seen, axis=1) < far_mm)
    return shown
