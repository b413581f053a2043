"""What a simulated data set looks like at a glance: a contact sheet and a short clip."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.io.depth import read_depth
from polypscope.io.images import read_grey, read_rgb, write_image
from polypscope.io.video_writer import VideoWriter
from polypscope.records import Frame

__all__ = ["write_preview"]

Picture = NDArray[np.uint8]
_TILE_PX = 256
_MOST_ROWS = 8
_CLIP_FRAMES = 250


def write_preview(root: Path, names: list[str]) -> tuple[Path, Path]:
    """Write `preview.png` (picture, depth, outline with size in mm) and `preview.mp4`; returns both paths."""
    chosen = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, min(_MOST_ROWS, len(names))).astype(int))]
    rows = [_row(root / name) for name in chosen]
    sheet, clip = root / "preview.png", root / "preview.mp4"
    write_image(sheet, np.vstack([_header(rows[0].shape[1]), *rows]))
    with VideoWriter(clip, fps=25.0) as writer:
        count = 0
        for name in chosen:
            facts = _facts(root / name)
            for i in range(min(int(facts["frames"]), max(1, _CLIP_FRAMES // len(chosen)))):
                writer.write(Frame(count, count / 25.0, _side_by_side(root / name, facts, i)))
                count += 1
    return sheet, clip


def _facts(folder: Path) -> dict:  # type: ignore[type-arg]
    return dict(json.loads((folder / "sequence.json").read_text(encoding="utf-8")))


def _read(folder: Path, facts: dict, index: int) -> tuple[Picture, NDArray[np.float32], Picture]:  # type: ignore[type-arg]
    rgb = read_rgb(folder / "rgb" / f"{index:06d}.{facts['rgb_extension']}")
    depth = read_depth(folder / "depth" / f"{index:06d}.png", unit_mm=facts["depth_unit_mm"]).values
    return rgb, depth, read_grey(folder / "masks" / f"{index:06d}.png").astype(np.uint8)


def _coloured(depth: NDArray[np.float32]) -> Picture:
    """Depth from 0 to 100 mm by the square root, near = red; black where there is none."""
    share = np.sqrt(np.clip(np.nan_to_num(depth, nan=0.0) / 100.0, 0, 1))
    picture = cv2.applyColorMap((255 * (1 - share)).astype(np.uint8), cv2.COLORMAP_TURBO)[..., ::-1].copy()
    picture[~np.isfinite(depth)] = 0
    return picture


def _outlined(rgb: Picture, mask: Picture, facts: dict) -> Picture:  # type: ignore[type-arg]
    picture = _tile(rgb)
    large = cv2.resize(mask, (picture.shape[1], picture.shape[0]), interpolation=cv2.INTER_NEAREST)
    for polyp in facts["polyps"]:
        contours, _ = cv2.findContours(
            (large == polyp["id"]).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE
        )
        if not contours:
            continue
        cv2.drawContours(picture, contours, -1, (60, 255, 80), 1)
        x, y, w, _ = cv2.boundingRect(np.concatenate(contours))
        text = f"{polyp['size_mm']:.2f} mm {polyp['paris']}"
        place = (min(max(x + w // 2 - 45, 2), picture.shape[1] - 110), max(y - 6, 12))
        cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.42, (0, 0, 0), 3, cv2.LINE_AA)
        cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.42, (255, 255, 255), 1, cv2.LINE_AA)
    return picture


def _tile(picture: Picture) -> Picture:
    scale = _TILE_PX / picture.shape[0]
    size = (round(picture.shape[1] * scale), _TILE_PX)
    return np.ascontiguousarray(
        cv2.resize(picture, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    )


def _side_by_side(folder: Path, facts: dict, index: int) -> Picture:  # type: ignore[type-arg]
    rgb, depth, mask = _read(folder, facts, index)
    return np.hstack([_tile(rgb), _tile(_coloured(depth)), _outlined(rgb, mask, facts)])


def _row(folder: Path) -> Picture:
    """Two frames of a sequence: a third and two thirds of the way, or where polyps are largest."""
    facts = _facts(folder)
    count = int(facts["frames"])
    areas = [
        int((read_grey(folder / "masks" / f"{i:06d}.png") > 0).sum()) for i in range(0, count, max(1, count // 12))
    ]
    best = int(np.argmax(areas)) * max(1, count // 12) if any(areas) else count // 3
    other = (best + count // 2) % count
    return np.hstack([_side_by_side(folder, facts, i) for i in (best, other)])


def _header(width: int) -> Picture:
    band = np.full((26, width, 3), 32, np.uint8)
    for i in range(6):
        text = ("picture", "depth 0-100 mm (near = red)", "polyps: outline, size, Paris")[i % 3]
        cv2.putText(
            band, text, (i * width // 6 + 6, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (230, 230, 230), 1, cv2.LINE_AA
        )
    return band
