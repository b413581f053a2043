"""Synthetic scenes with known content for the pipeline's tests: a moving reddish wall with red-white discs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from polypscope.pipeline.findings import Findings, Found
from polypscope.records import BinaryMask, Box, Detection, Frame, ProbabilityMap

# A green and a blue that no wall has: the colour seer finds them, and they do not look alike.
DISC_RGB = (120, 200, 90)
OTHER_RGB = (60, 50, 200)


def wall(seed: int, shape: tuple[int, int] = (240, 320)) -> np.ndarray:
    """A large reddish texture to move a window over, uint8 (2H, 2W, 3)."""
    rng = np.random.default_rng(seed)
    height, width = shape
    noise = cv2.GaussianBlur(rng.normal(size=(2 * height, 2 * width)).astype(np.float32), (0, 0), 6)
    noise = noise / noise.std()
    texture = np.stack([150 + 30 * noise, 80 + 22 * noise, 60 + 18 * noise], axis=-1)
    return np.clip(texture, 25, 255).astype(np.uint8)


def window(texture: np.ndarray, step: int, shape: tuple[int, int], speed: float = 2.0) -> np.ndarray:
    """What a camera sees that moves over the texture along a slow curve."""
    height, width = shape
    x = int(width * (0.5 + 0.45 * np.sin(speed * step / 60)))
    y = int(height * (0.5 + 0.45 * np.cos(speed * step / 80)))
    return np.ascontiguousarray(texture[y : y + height, x : x + width])


def with_disc(
    rgb: np.ndarray, x: float, y: float, radius: float, colour: tuple[int, int, int] = DISC_RGB
) -> np.ndarray:
    """The same picture with a disc that the colour seer takes for a polyp."""
    rgb = rgb.copy()
    cv2.circle(rgb, (round(x), round(y)), round(radius), colour, -1)
    return rgb


def procedure(frames: int, shape: tuple[int, int] = (120, 160), seed: int = 0, fps: float = 25.0) -> Iterator[Frame]:
    """A procedure with two polyps: the first from frame 5 to 45 with a gap of 6, the second from 70 on."""
    texture = wall(seed, shape)
    for n in range(frames):
        rgb = window(texture, n, shape)
        if 5 <= n < 45 and not 20 <= n < 26:
            rgb = with_disc(rgb, 50 + 0.5 * n, 60, 14)
        if n >= 70:
            rgb = with_disc(rgb, 110 - 0.3 * (n - 70), 40, 10, OTHER_RGB)
        yield Frame(n, n / fps, rgb)


class ColourSeer:
    """A real, tiny segmenter of the discs above, with a memory: the map is a running mean over frames."""

    def __init__(self) -> None:
        self._mean: np.ndarray | None = None

    def step(self, rgb: np.ndarray) -> ProbabilityMap:
        green = rgb[..., 1:].max(axis=-1).astype(np.float32) - rgb[..., 0]
        now = np.clip(0.5 + green / 80, 0, 1).astype(np.float32)
        self._mean = now if self._mean is None else (0.3 * self._mean + 0.7 * now).astype(np.float32)
        return ProbabilityMap(self._mean)

    def reset(self) -> None:
        self._mean = None

    def state(self) -> Mapping[str, Any]:
        return {} if self._mean is None else {"mean": self._mean}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._mean = state.get("mean")


def found_at(x: float, y: float, size: float = 30, score: float = 0.98, hue: int = 7) -> Found:
    """A detection of a square around (x, y); `hue` chooses its colour bin."""
    histogram = [0] * 36
    histogram[hue] = 200
    histogram[(hue + 1) % 36] = 55
    mask = np.zeros((240, 320), bool)
    mask[int(max(y - size / 2, 0)) : int(y + size / 2) + 1, int(max(x - size / 2, 0)) : int(x + size / 2) + 1] = True
    box = Box(x - size / 2, y - size / 2, size, size)
    return Found(Detection((float(x), float(y)), score, box, BinaryMask(mask)), tuple(histogram), False)


def stream(*frames: list[Found] | None, cut_at: int | None = None, flags: dict[int, tuple[str, ...]] | None = None):
    """Findings at 25 fps from lists of detections (None: an empty frame)."""
    for n, found in enumerate(frames):
        yield Findings(n, n / 25, (flags or {}).get(n, ()), n == cut_at, (0.0, 0.0), 1.0, tuple(found or ()))


@dataclass(frozen=True)
class SceneInfo:
    """What a source says of itself."""

    name: str
    width: int
    height: int
    fps: float | None = 25.0
    frame_count: int | None = None


class SceneSource:
    """A source of frames that are made when asked for."""

    def __init__(self, frames: Callable[[], Iterator[Frame]], shape: tuple[int, int], count: int | None = None) -> None:
        self.info = SceneInfo("scene", shape[1], shape[0], 25.0, count)
        self.notes: tuple[str, ...] = ()
        self._frames = frames

    def __iter__(self) -> Iterator[Frame]:
        return self._frames()
