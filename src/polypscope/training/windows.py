"""Windows of consecutive frames for networks that take clips, with the augmentation of the PNS+ paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from polypscope.records.errors import MissingInput
from polypscope.training.config import Source
from polypscope.training.data import Draw
from polypscope.training.sources import Picture, list_clips


@dataclass(frozen=True)
class Window:
    """The clip's first frame (the anchor), then consecutive frames."""

    pictures: tuple[Picture, ...]


def list_windows(source: Source, length: int, say: Callable[[str], None] = lambda text: None) -> list[Window]:
    """All windows of `length` consecutive frames of every clip of a source, each with its anchor.

    A part of SUN-SEG has `Frame/<clip>/` and `GT/<clip>/`; a folder of pairs is one clip in natural order; an adapter
    knows its clips. A clip that is shorter than a window is left out.
    """
    windows = [
        Window((clip[0], *clip[start : start + length]))
        for clip in list_clips(source, say)
        for start in range(len(clip) - length + 1)
    ]
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

        pictures = self.windows[draw.item].pictures
        rgb = torch.stack([shaped(picture.rgb()).permute(2, 0, 1) for picture in pictures])
        masks = torch.stack([shaped(picture.mask())[None] for picture in pictures[1:]])
        return rgb, masks
