"""Tiny copies of every data set, made of generated pictures in the layout of the real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from polypscope.io.depth import write_depth
from polypscope.io.images import write_image
from polypscope.io.masks import write_instances
from polypscope.io.paths import write_text
from polypscope.io.video_writer import VideoWriter
from polypscope.records import Camera, DepthKind, DepthMap, Frame

SHAPE = (24, 32)


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (*SHAPE, 3), dtype=np.uint8)


def mask(seed: int, value: int = 255) -> np.ndarray:
    out = np.zeros(SHAPE, np.uint8)
    out[4 : 10 + seed % 5, 6 : 14 + seed % 7] = value
    return out


def pair(images: Path, masks: Path | None, name: str, seed: int, suffixes: tuple[str, str] = (".png", ".png")) -> None:
    write_image(images / f"{name}{suffixes[0]}", picture(seed))
    if masks is not None:
        write_image(masks / f"{name}{suffixes[1]}", mask(seed))


def stills(root: Path) -> Path:
    for i in (1, 2, 10):
        pair(root / "images", root / "masks", str(i), i, (".jpg", ".png"))
    return root


def etis(root: Path) -> Path:
    for i in (1, 2):
        write_image(root / "ETIS-LaribPolypDB" / f"{i}.tif", picture(i))
        write_image(root / "Ground Truth" / f"p{i}.tif", mask(i))
    return root


def clinic(root: Path) -> Path:
    for number, frames in ((1, (1, 2, 3)), (2, (26, 27))):
        for i in frames:
            folder = root / f"seq{number:02d}"
            pair(folder / "images", folder / "masks", f"{i:03d}", i)
    return root


def clinic_original(root: Path) -> Path:
    for i in (1, 2, 26, 612):
        pair(root / "Original", root / "Ground Truth", str(i), i, (".tif", ".tif"))
    return root


def polypgen(root: Path) -> Path:
    for centre in ("C1", "C3"):
        for i in (1, 2):
            pair(root / centre / "images", root / centre / "masks", f"{centre}_{i}", i + 10 * int(centre[1]))
    write_image(root / "C1" / "masks" / "C1_2.png", np.zeros(SHAPE, np.uint8))
    return root


def polypgen_original(root: Path) -> Path:
    folder = root / "data_C6"
    write_image(folder / "images_C6" / "a.jpg", picture(1))
    write_image(folder / "masks_C6" / "a_mask.jpg", mask(1))
    return root


def train_test(root: Path) -> Path:
    for i in (1, 2):
        pair(root / "TrainDataset" / "image", root / "TrainDataset" / "mask", str(i), i)
    for name in ("CVC-300", "Kvasir"):
        folder = root / "TestDataset" / name
        pair(folder / "images", folder / "masks", "149", len(name))
    return root


def sun_seg(root: Path) -> Path:
    seed = 0
    for split, clips in (
        ("TrainDataset", ("case1_1", "case1_3", "case10_1")),
        ("TestEasyDataset/Seen", ("case1_2",)),
        ("TestHardDataset/Unseen", ("case2_1",)),
    ):
        images, annotations, classes = [], [], []
        for clip in clips:
            for i in (1, 2, 10):
                seed += 1
                name = f"case_M_2018_0U62_1_005_001-1_a2_ayy_image{i:04d}"
                write_image(root / split / "Frame" / clip / f"{name}.jpg", picture(seed))
                for label in ("GT", "Edge", "Scribble", "Polygon"):
                    write_image(root / split / label / clip / f"{name}.png", mask(seed))
                key = f"{clip}-a2-image{i:04d}"
                images.append({"id": key, "width": SHAPE[1], "height": SHAPE[0], "case_name": clip, "file_name": name})
                annotations.append({"id": key, "bbox": [6, 4, 8, 6]})
                classes.append(f"{name}.jpg\tlow_grade_adenoma")
        write_text(
            root / split / "Detection" / "bbox_annotation.json",
            json.dumps({"images": images, "annotation": annotations}),
        )
        write_text(root / split / "Classification" / "classification.txt", "\0" + "\r\n".join(classes) + "\0")
    for i in (1, 2):
        write_image(root / "NegativeDataset" / "Frame" / "case1_1" / f"{i}.jpg", picture(100 + i))
    return root


def asu_mayo(root: Path) -> Path:
    for name, first in (("wp_2", 1), ("np_5", None), ("wp_19", 0)):
        with VideoWriter(root / f"{name}.mp4", crf=10) as writer:
            for i in range(4):
                writer.write(Frame(i, i / 25, np.full((*SHAPE, 3), 40 * i + len(name) * (first or 3), np.uint8)))
        if first is not None:
            for i in range(4):
                write_image(
                    root / "GT" / name / f"{name}_{i + first}.tif", mask(i) if i > 1 else np.zeros(SHAPE, np.uint8)
                )
    return root


def polypsense3d(root: Path) -> Path:
    for number in (0, 1):
        folder = root / f"seq{number:05d}"
        rows = []
        for i in range(3):
            seed = 3 * number + i
            write_image(folder / "rgb" / f"{i:06d}.png", picture(seed))
            write_instances(folder / "masks" / f"{i:06d}.png", mask(seed, 1 if i else 0).astype(np.uint16))
            write_depth(
                folder / "depth" / f"{i:06d}.png", DepthMap(np.full(SHAPE, 12.5 + i, np.float32), DepthKind.Z_MM)
            )
            rows.append(f"{i},{i / 20},1,0,0,{i},0,1,0,0,0,0,1,{5 * i}")
        header = "index,pts_s,r00,r01,r02,tx,r10,r11,r12,ty,r20,r21,r22,tz"
        write_text(folder / "poses.csv", "\n".join([header, *rows]) + "\n")
        write_text(folder / "camera.json", Camera.from_fov(SHAPE[1], SHAPE[0], 90).to_json())
        sequence = {
            "format": "polypsense3d",
            "layout_version": 1,
            "name": folder.name,
            "source": "virtual",
            "subject": "colon-7",
            "frames": 3,
            "rate_hz": 20.0,
            "depth_unit_mm": 0.01,
            "polyps": [{"id": 1, "size_mm": 8.4, "paris": "0-Is", "segment": "transverse"}],
        }
        write_text(folder / "sequence.json", json.dumps(sequence))
    return root


def folder_pairs(root: Path) -> Path:
    for case, clip in (("a", "1"), ("a", "2"), ("b", "1")):
        for i in range(2):
            where = Path(case) / clip
            pair(root / "images" / where, root / "masks" / where, str(i), i + 10 * int(clip) + 100 * ord(case))
    return root


# name in the registry -> (maker, cases, clips, frames, frames with a polyp)
FIXTURES: dict[str, tuple[Callable[[Path], Path], int, int, int, int]] = {
    "sun-seg": (sun_seg, 5, 6, 17, 15),
    "asu-mayo": (asu_mayo, 3, 3, 12, 4),
    "cvc-clinicdb": (clinic, 2, 2, 5, 5),
    "kvasir-seg": (stills, 1, 1, 3, 3),
    "cvc-300": (stills, 1, 1, 3, 3),
    "cvc-colondb": (stills, 1, 1, 3, 3),
    "etis-larib": (etis, 1, 1, 2, 2),
    "polypgen": (polypgen, 2, 2, 4, 3),
    "train-test": (train_test, 3, 3, 4, 4),
    "polypsense3d": (polypsense3d, 1, 2, 6, 4),
    "folder": (folder_pairs, 2, 3, 6, 6),
}
