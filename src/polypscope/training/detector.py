"""Training of the challenge's hybrid methods: pictures of a recipe in, one .npz out. No torch is needed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polypscope.methods.registry import find_trainer
from polypscope.runtime.console import track
from polypscope.training.config import DetectorConfig
from polypscope.training.sources import Picture, list_pictures

__all__ = ["train_detector"]


def train_detector(config: DetectorConfig, say: Callable[[str], None] = lambda text: None) -> Path:
    """Train the recipe's method and write `OUT/METHOD.npz`; returns its path."""
    train = find_trainer(config.method)
    pictures = [picture for source in config.train for picture in list_pictures(source, say)[:: config.every]]
    return train(_decoded(pictures), say=say).save(config.out / f"{config.method}.npz")


def _decoded(pictures: list[Picture]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.bool_]]]:
    for picture in track(pictures, "learning", unit="pictures"):
        yield picture.rgb(), picture.mask() >= 128
