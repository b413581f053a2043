"""Training pictures: decoded once into an array on disk, drawn by weight, augmented as a pure function of a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from polypscope.training.augment import AugmentSpec, augment
from polypscope.training.sources import Picture


def decoded(pictures: Sequence[Picture], side_px: int, folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All pictures as memory-mapped (N, side, side, 3) and (N, side, side) arrays, decoded on first use."""
    identity = "\n".join(picture.key for picture in pictures) + str(side_px)
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    images_path, masks_path = folder / f"{key}.images.npy", folder / f"{key}.masks.npy"
    if not masks_path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        images = np.lib.format.open_memmap(images_path, "w+", np.uint8, (len(pictures), side_px, side_px, 3))
        masks = np.empty((len(pictures), side_px, side_px), np.uint8)
        for index, picture in enumerate(pictures):
            images[index] = cv2.resize(picture.rgb(), (side_px, side_px), interpolation=cv2.INTER_AREA)
            masks[index] = cv2.resize(picture.mask(), (side_px, side_px), interpolation=cv2.INTER_AREA)
        images.flush()
        partial = masks_path.with_suffix(".part.npy")
        np.save(partial, masks)
        partial.rename(masks_path)  # renamed last, so that its presence means that both are whole
    return np.load(images_path, mmap_mode="r"), np.load(masks_path, mmap_mode="r")


@dataclass(frozen=True)
class Draw:
    """What one training picture is made of: which item (-1: a simulated frame), at which size, with which seed."""

    item: int
    donor: int
    size: int
    seed: int


class Stills(Dataset[tuple[Tensor, Tensor]]):
    """Augmented pictures from decoded arrays, indexed by `Draw`."""

    def __init__(self, images: NDArray[np.uint8], masks: NDArray[np.uint8], spec: AugmentSpec) -> None:
        self.images, self.masks, self.spec = images, masks, spec

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, draw: Draw) -> tuple[Tensor, Tensor]:
        """RGB (3, S, S) uint8 and mask (1, S, S) uint8."""
        cv2.setNumThreads(0)
        rng = np.random.default_rng(draw.seed)
        donor = (self.images[draw.donor], self.masks[draw.donor])
        rgb, mask = augment(
            np.asarray(self.images[draw.item]), np.asarray(self.masks[draw.item]), draw.size, rng, self.spec, donor
        )
        return torch.from_numpy(np.ascontiguousarray(rgb)).permute(2, 0, 1), torch.from_numpy(mask)[None]


class Batches(Sampler[list[Draw]]):
    """Batches of one epoch, a pure function of (seed, epoch); every batch has one size drawn from `sizes`.

    With `rank` and `world`, each process gets its own equal share of the epoch. The last `simulated` draws of every
    batch are simulated frames; the epoch's length counts the others.
    """

    def __init__(
        self,
        weights: NDArray[np.float64],
        batch: int,
        sizes: Sequence[int],
        seed: int,
        length: int | None = None,
        rank: int = 0,
        world: int = 1,
        simulated: int = 0,
    ) -> None:
        self.weights, self.sizes, self.seed = weights / weights.sum(), tuple(sizes), seed
        self.batch, self.simulated = batch - simulated, simulated
        self.length = length or len(weights)
        self.rank, self.world = rank, world
        self.epoch = 0

    def __len__(self) -> int:
        return self.length // (self.batch * self.world)

    def __iter__(self) -> Iterator[list[Draw]]:
        rng = np.random.default_rng((self.seed, self.epoch))
        items = _balanced_draw(self.weights, self.length, rng)
        donors = rng.choice(len(self.weights), self.length, p=self.weights)
        seeds = rng.integers(0, 2**62, self.length)
        for index in range(len(self)):
            size = int(rng.choice(self.sizes))
            start = (index * self.world + self.rank) * self.batch
            chosen = range(start, start + self.batch)
            real = [Draw(int(items[i]), int(donors[i]), size, int(seeds[i])) for i in chosen]
            rendered = [Draw(-1, -1, size, int(seed)) for seed in rng.integers(0, 2**62, self.simulated * self.world)]
            yield real + rendered[self.rank :: self.world]


def _balanced_draw(weights: NDArray[np.float64], length: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Items in proportion to their weight with the least repetition: whole parts surely, fractions by chance."""
    expected = weights * length
    counts = np.floor(expected).astype(np.int64)
    rest = length - int(counts.sum())
    if rest:
        fraction = expected - counts + 1e-12
        counts[rng.choice(len(weights), rest, replace=False, p=fraction / fraction.sum())] += 1
    return rng.permutation(np.repeat(np.arange(len(weights)), counts))
