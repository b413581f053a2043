"""The camera that took the pictures: intrinsics, lens model and distortion, for one image size."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from polypscope.records.checks import finite, non_negative_int, positive
from polypscope.records.errors import RecordError

__all__ = ["Camera", "Lens"]

Lens = Literal["pinhole", "fisheye"]

# OpenCV's orders: pinhole (k1, k2, p1, p2, k3[, k4, k5, k6]); fisheye (k1, k2, k3, k4).
_DISTORTION_LENGTHS: dict[str, tuple[int, ...]] = {"pinhole": (0, 4, 5, 8), "fisheye": (0, 4)}
_FORMAT = "polypscope-camera"


@dataclass(frozen=True, slots=True)
class Camera:
    """Intrinsics in pixels of an image of `width` × `height`; pixel centres are at whole numbers.

    lens: "pinhole" (radius = f tan θ) or "fisheye" (equidistant, radius = f θ), each with OpenCV's distortion terms.

    >>> round(Camera.from_fov(320, 320, 78.4).fx, 2)
    196.18
    """

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    lens: Lens = "pinhole"
    distortion: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            value = non_negative_int(f"Camera.{name}", getattr(self, name), hint="give the image size in pixels")
            if value == 0:
                raise RecordError.of(f"Camera.{name}", expected="at least 1 pixel", found="0")
            object.__setattr__(self, name, value)
        for name in ("fx", "fy"):
            value_f = positive(f"Camera.{name}", getattr(self, name), hint="give the focal length in pixels")
            object.__setattr__(self, name, value_f)
        for name in ("cx", "cy"):
            object.__setattr__(self, name, finite(f"Camera.{name}", getattr(self, name)))
        if self.lens not in get_args(Lens):
            raise RecordError.of("Camera.lens", expected="'pinhole' or 'fisheye'", found=repr(self.lens))
        values = tuple(finite("Camera.distortion", v) for v in self.distortion)
        lengths = _DISTORTION_LENGTHS[self.lens]
        if len(values) not in lengths:
            raise RecordError.of(
                "Camera.distortion",
                expected=f"{', '.join(map(str, lengths))} coefficients for a {self.lens} lens (OpenCV's order)",
                found=str(len(values)),
            )
        object.__setattr__(self, "distortion", values)

    @classmethod
    def from_fov(cls, width: int, height: int, fov_deg: float, lens: Lens = "pinhole") -> Camera:
        """A camera without distortion whose horizontal field of view is `fov_deg`.

        The image is `width` pixels wide from edge to edge, so the principal point is at (width - 1) / 2.
        """
        fov = positive("fov_deg", fov_deg, hint="give degrees")
        limit = 180.0 if lens == "pinhole" else 360.0
        if fov >= limit:
            raise RecordError.of("fov_deg", expected=f"degrees in (0, {limit:g}) for a {lens} lens", found=f"{fov:g}")
        half = math.radians(fov) / 2
        f = (width / 2) / (math.tan(half) if lens == "pinhole" else half)
        return cls(width, height, f, f, (width - 1) / 2, (height - 1) / 2, lens)

    @property
    def fov_deg(self) -> float:
        """Horizontal field of view in degrees, distortion left out."""
        half = (self.width / 2) / self.fx
        return math.degrees(2 * (math.atan(half) if self.lens == "pinhole" else half))

    def resized(self, width: int, height: int) -> Camera:
        """The same camera after its image was resized to `width` × `height`.

        >>> Camera(100, 50, 80, 80, 49.5, 24.5).resized(200, 100).cx
        99.5
        """
        sx, sy = width / self.width, height / self.height
        return Camera(
            width,
            height,
            self.fx * sx,
            self.fy * sy,
            (self.cx + 0.5) * sx - 0.5,
            (self.cy + 0.5) * sy - 0.5,
            self.lens,
            self.distortion,
        )

    def to_json(self) -> str:
        """A JSON text that `from_json` reads back equal."""
        return json.dumps({"format": _FORMAT, "version": 1, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Camera:
        """Read what `to_json` wrote.

        >>> camera = Camera.from_fov(320, 240, 90, "fisheye")
        >>> Camera.from_json(camera.to_json()) == camera
        True
        """
        try:
            data: Any = json.loads(text)
        except ValueError as error:
            raise RecordError.of("camera JSON", expected="JSON text", found=str(error), hint="check the file") from None
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise RecordError.of(
                "camera JSON",
                expected=f'an object with "format": "{_FORMAT}"',
                found=f"format {data.get('format')!r:.60}" if isinstance(data, dict) else type(data).__name__,
                hint="write it with `polypscope calibrate` or Camera.to_json()",
            )
        fields = set(cls.__slots__)
        unknown = sorted(set(data) - fields - {"format", "version"})
        missing = sorted({"width", "height", "fx", "fy", "cx", "cy"} - set(data))
        if unknown or missing:
            raise RecordError.of(
                "camera JSON",
                expected="width, height, fx, fy, cx, cy and optionally lens and distortion",
                found=f"missing {missing or 'nothing'}, unknown {unknown or 'nothing'}",
            )
        values = {key: value for key, value in data.items() if key in fields}
        if not isinstance(values.get("distortion", []), list):
            raise RecordError.of("camera JSON", expected="distortion as a list", found=repr(values["distortion"])[:60])
        values["distortion"] = tuple(values.get("distortion", ()))
        return cls(**values)
