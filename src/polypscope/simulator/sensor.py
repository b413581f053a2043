"""From light to picture: exposure, tone, the scope's field-of-view mask, and what spoils real frames.

`clean` exposes and masks; `clinical` adds blur, motion blur, noise, over-exposure, overlay text and JPEG.
Every effect is set once per sequence by the seed; ranges stand in `Sensor.__init__`.
"""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["FovShape", "Sensor", "Style", "fov_mask"]

Style = Literal["clean", "clinical"]
FovShape = Literal["random", "none", "octagon", "circle"]


def fov_mask(rng: np.random.Generator, height: int, width: int, shape: FovShape) -> NDArray[np.bool_]:
    """What the scope shows: bool [H, W]."""
    if shape == "random":
        shape = rng.choice(np.array(["octagon", "circle", "none"]), p=[0.6, 0.25, 0.15]).item()
    inside = np.ones((height, width), bool)
    x = (np.arange(width)[None] + 0.5) / width * 2 - 1
    y = (np.arange(height)[:, None] + 0.5) / height * 2 - 1
    edge_x, edge_y = 1 - rng.uniform(0, 0.12) * (rng.random() < 0.5), 1 - rng.uniform(0, 0.08)
    if shape == "octagon":
        cut = rng.uniform(1.38, 1.68)
        inside = (np.abs(x) <= edge_x) & (np.abs(y) <= edge_y) & (np.abs(x) / edge_x + np.abs(y) / edge_y <= cut)
    elif shape == "circle":
        radius = rng.uniform(1.0, 1.22)
        inside = (x * x + y * y <= radius * radius) & (np.abs(y) <= edge_y) & (np.abs(x) <= 1)
    return inside


class Sensor:
    """Turns linear light [H, W, 3] into 8-bit pictures, frame after frame (exposure follows the scene)."""

    def __init__(self, rng: np.random.Generator, height: int, width: int, style: Style, fov: FovShape, vignette: float):
        self.clinical = style == "clinical"
        self.fov = fov_mask(rng, height, width, fov)
        x = (np.arange(width) - (width - 1) / 2) / (width / 2)
        y = (np.arange(height) - (height - 1) / 2) / (height / 2)
        radius2 = x[None] ** 2 + y[:, None] ** 2
        self._vignette = (self.fov / (1 + vignette * radius2) ** 2).astype(np.float32)
        self._meter = self.fov & (radius2 < 0.8)
        self._target = float(rng.uniform(0.17, 0.27))
        self._gamma = float(rng.uniform(1.9, 2.3))
        self._shoulder = float(rng.uniform(0.55, 0.85))
        self._ceiling = float(rng.uniform(0.7, 1.3))
        self._gain = 0.0
        self._lag = float(rng.uniform(0.1, 0.35))
        over = rng.random() < 0.15
        self._over = float(rng.uniform(1.2, 1.7)) if over else float(rng.uniform(0.85, 1.1))
        sharp = rng.random()
        self._blur_px = float(rng.uniform(0.3, 0.6) if sharp < 0.7 else rng.uniform(0.6, 1.6)) * width / 320
        self._noise = float(rng.uniform(0.4, 3.0))
        self._shutter = float(rng.uniform(0.1, 0.5))
        self.jpeg_quality = int(rng.integers(62, 96))
        self._grain = np.zeros((0, 0, 3), np.float32)
        self._overlay: NDArray[np.uint8] | None = None
        self._panel = (0, 0, 0, 0)
        self._sharpen = float(rng.uniform(0.2, 1.4)) if rng.random() < 0.65 else 0.0
        self._cast = rng.normal(1.0, 0.02, 3).astype(np.float32)
        self._black = float(rng.uniform(0, 10))
        if self.clinical:
            grain = rng.standard_normal((height + 96, width + 96, 3), dtype=np.float32)
            grain = 0.6 * grain + 0.9 * cv2.GaussianBlur(grain, (0, 0), 0.9)
            self._grain = grain - grain.mean()
            if rng.random() < 0.45:
                self._overlay, self._panel = _overlay(rng, self.fov)
        self._curve = self._tone_curve()

    def adapt(self) -> None:
        """Meter the next picture afresh: it does not follow the one before."""
        self._gain = 0.0

    def _tone_curve(self) -> NDArray[np.uint8]:
        """Gamma with a soft shoulder for light 0...4, as a table of 4096 steps."""
        light = np.linspace(0, 4, 4096)
        knee = self._shoulder
        shown = np.where(light < knee, light, knee + (1 - knee) * (1 - np.exp(-(light - knee) / (1 - knee))))
        return np.rint(255 * np.clip(shown, 0, 1) ** (1 / self._gamma)).astype(np.uint8)

    def expose(
        self,
        light: NDArray[np.float32],
        shift_px: tuple[float, float],
        rng: np.random.Generator,
        ignore: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.uint8]:
        """One picture uint8 [H, W, 3]; `shift_px` is how far the scene moved since the last frame.

        `ignore` (bool [H, W]) is left out of the metering: an instrument before the lens must not darken the wall.
        """
        if self.clinical:
            light = light * self._cast
            length = self._shutter * float(np.hypot(*shift_px))
            if length > 1.2:
                light = cv2.filter2D(light, -1, _streak(shift_px, min(length, 24.0)), borderType=cv2.BORDER_REPLICATE)
            light = cv2.GaussianBlur(light, (0, 0), self._blur_px)
        else:
            light = cv2.GaussianBlur(light, (3, 3), 0.55)
        luma = light @ np.array([0.30, 0.59, 0.11], np.float32)
        metered = luma[self._meter if ignore is None else self._meter & ~ignore]
        if len(metered) < 100:
            metered = luma[self._meter]
        mean = float(np.minimum(metered, 3.0 * max(float(np.median(metered)), 1e-9)).mean())
        # Like a processor that protects its highlights: the brighter fifteenth may not all burn out.
        bright = float(np.partition(metered, int(0.93 * len(metered)))[int(0.93 * len(metered))])
        wanted = min(self._target / max(mean, 1e-9), self._ceiling / max(bright, 1e-9))
        self._gain = wanted if self._gain == 0 else self._gain * (wanted / self._gain) ** self._lag
        gain = np.float32(self._gain * (self._over if self.clinical else 1.0) * (4095 / 4))
        index = np.minimum(light * (self._vignette * gain)[..., None], 4095).astype(np.int16)
        picture = self._curve[index]
        if not self.clinical:
            return picture
        if self._sharpen > 0:
            picture = cv2.addWeighted(
                picture, 1 + self._sharpen, cv2.GaussianBlur(picture, (0, 0), 1.2), -self._sharpen, 0
            )
        oy, ox = rng.integers(0, 96, 2)
        height, width = luma.shape
        noisy = picture + self._noise * self._grain[oy : oy + height, ox : ox + width] + self._black
        picture = np.clip(noisy, 0, 255).astype(np.uint8)
        picture[~self.fov] = 0
        if self._overlay is not None:
            # A panel covers the picture, text only brightens it (its edges are soft).
            picture = np.maximum(picture, self._overlay)
            x0, y0, x1, y1 = self._panel
            picture[y0:y1, x0:x1] = self._overlay[y0:y1, x0:x1]
        return picture


def _streak(shift_px: tuple[float, float], length: float) -> NDArray[np.float32]:
    side = int(np.ceil(length)) | 1
    kernel = np.zeros((side, side), np.float32)
    middle = (side - 1) / 2
    scale = length / 2 / max(float(np.hypot(*shift_px)), 1e-9)
    dx, dy = shift_px[0] * scale, shift_px[1] * scale
    ends = [(round((middle + k * dx) * 16), round((middle + k * dy) * 16)) for k in (-1, 1)]
    cv2.line(kernel, ends[0], ends[1], 1.0, 1, cv2.LINE_AA, 4)
    return kernel / max(float(kernel.sum()), 1e-9)


def _overlay(rng: np.random.Generator, fov: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], tuple[int, int, int, int]]:
    """Text as a processor burns it into the picture: date, time, counters; sometimes a panel. All of it is made up.

    Returns the picture and the corners x0, y0, x1, y1 of the panel.
    """
    height, width = fov.shape
    canvas = np.zeros((height, width, 3), np.uint8)
    scale = 0.26 * height / 320 * rng.uniform(0.9, 1.3)
    grey = int(rng.uniform(140, 245))
    lines = [
        f"{rng.integers(1, 29):02d}/{rng.integers(1, 13):02d}/20{rng.integers(10, 26)}",
        f"{rng.integers(7, 19):02d}:{rng.integers(60):02d}:{rng.integers(60):02d}",
        rng.choice(np.array(["CVP:A1", "SCV-1", "G:N C:1", "Eh:A5 Cm:1", "Comment:"])).item(),
    ]
    x = int(rng.uniform(0, 0.03) * width) + 1
    y0 = int(rng.choice(np.array([0.05, 0.42, 0.8])) * height)
    for i, text in enumerate(lines):
        place = (x, y0 + int((i + 1) * 36 * scale))
        cv2.putText(canvas, text, place, cv2.FONT_HERSHEY_SIMPLEX, scale, (grey,) * 3, 1, cv2.LINE_AA)
    if rng.random() < 0.3:
        side = int(0.22 * width)
        x1, y1 = int(rng.uniform(0, 0.04) * width), height - side - 2
        tone = np.array([20, 150, 60]) if rng.random() < 0.7 else np.array([90, 90, 90])
        cv2.rectangle(canvas, (x1, y1), (x1 + side, y1 + side), tone.tolist(), -1)
        return canvas, (x1, y1, x1 + side + 1, y1 + side + 1)
    return canvas, (0, 0, 0, 0)
