"""Windows of consecutive frames for networks that take clips, with the augmentation of the PNS+ paper."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from polypscope.io.paths import list_files, list_folders
from polypscope.records.errors import MissingInput
from polypscope.training.config import Source
from polypscope.training.data import Draw, Pair, read_mask, read_rgb

LAYOUTS = {"pairs": ("images", "masks"), "sun-seg": ("Frame", "GT")}


@dataclass(frozen=True)
class Window:
    """The clip's first frame (the anchor), then consecutive frames."""

    pairs: tuple[Pair, ...]


def list_windows(source: Source, length: int) -> list[Window]:
    """All windows of `length` consecutive frames of every clip of a source, each with its anchor.

    A SUN-SEG folder has `Frame/<clip>/` and `GT/<clip>/`; a folder of pairs is one clip in natural order. A clip that
    is shorter than a window is left out.
    """
    pictures, masks = LAYOUTS[source.layout]
    if source.layout == "sun-seg":
        clips = [(folder, source.root / masks / folder.name) for folder in list_folders(source.root / pictures)]
    else:
        clips = [(source.root / pictures, source.root / masks)]
    windows = []
    for folder, truth in clips:
        by_stem = {path.stem: path for path in list_files(truth)}
        frames = list_files(folder)
        for path in frames:
            if path.stem not in by_stem:
                raise MissingInput(f"Training data: expected a mask for {path} in {truth}, found none.")
        pairs = [(path, by_stem[path.stem]) for path in frames]
        for start in range(len(pairs) - length + 1):
            windows.append(Window((pairs[0], *pairs[start : start + length])))
    if not windows:
        raise MissingInput(f"Training data: expected clips of at least {length} frames in {source.root}, found none.")
    return windows


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """Windows as tensors: rgb (1 + T, 3, H, W) and masks (T, 1, H, W), both uint8, indexed by `Draw`."""

    def __init__(self, windows: list[Window], size: tuple[int, int]) -> None:
        self.windows, self.size = windows, size

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, draw: Draw) -> tuple[Tensor, Tensor]:
        """One random crop of 0 to 7 pixels a side and one flip for the whole window, as published."""
        cv2.setNumThreads(0)
        rng = np.random.default_rng(draw.seed)
        top, bottom, left, right = (int(v) for v in rng.integers(0, 8, 4))
        flip = rng.random() < 0.5
        height, width = self.size

        def shaped(picture: np.ndarray) -> Tensor:
            rows, columns = picture.shape[:2]
            cut = picture[top : rows - bottom, left : columns - right]
            small = cv2.resize(cut, (width, height), interpolation=cv2.INTER_LINEAR)
            return torch.from_numpy(np.ascontiguousarray(small[:, ::-1] if flip else small))

        pairs = self.windows[draw.item].pairs
        rgb = torch.stack([shaped(read_rgb(image)).permute(2, 0, 1) for image, _ in pairs])
        masks = torch.stack([shaped(read_mask(mask))[None] for _, mask in pairs[1:]])
        return rgb, masks
