"""Per-pixel records: binary mask, probability map, depth map. What a map means is its type, not a comment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from polypscope.records.checks import finite, frozen_array, positive, same_shape
from polypscope.records.errors import RecordError

__all__ = ["BinaryMask", "DepthKind", "DepthMap", "ProbabilityMap"]


@dataclass(frozen=True, eq=False, slots=True)
class BinaryMask:
    """Which pixels belong to a polyp: bool array (H, W), read-only.

    >>> BinaryMask(np.eye(3, dtype=bool)).area_px
    3
    """

    values: NDArray[np.bool_]

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "values",
            frozen_array("BinaryMask.values", self.values, dtype=bool, ndim=2, hint="compare with a threshold first"),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def area_px(self) -> int:
        """Number of true pixels."""
        return int(np.count_nonzero(self.values))


@dataclass(frozen=True, eq=False, slots=True)
class ProbabilityMap:
    """How likely each pixel is polyp: float32 array (H, W) in [0, 1], read-only."""

    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        values = frozen_array(
            "ProbabilityMap.values", self.values, dtype=np.float32, ndim=2, hint="divide 8-bit maps by 255"
        )
        low, high = float(values.min()), float(values.max())
        if not (low >= 0.0 and high <= 1.0):  # also catches NaN
            raise RecordError.of(
                "ProbabilityMap.values",
                expected="values in [0, 1]",
                found=f"{low:g} to {high:g}",
                hint="apply a sigmoid or divide by the maximum",
            )
        object.__setattr__(self, "values", values)

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    def at_least(self, threshold: float) -> BinaryMask:
        """The mask of pixels whose probability reaches `threshold`.

        >>> ProbabilityMap(np.array([[0.2, 0.5]], np.float32)).at_least(0.5).values.tolist()
        [[False, True]]
        """
        threshold = finite("threshold", threshold, hint="give a probability")
        return BinaryMask(self.values >= np.float32(threshold))


class DepthKind(StrEnum):
    """What a depth value means."""

    Z_MM = "z_mm"  # millimetres along the optical axis
    RAY_MM = "ray_mm"  # millimetres along the viewing ray
    RELATIVE = "relative"  # any positive scale: compare only after alignment


@dataclass(frozen=True, eq=False, slots=True)
class DepthMap:
    """Distance of every pixel: float32 array (H, W); NaN means "no value". `sigma` is one standard deviation.

    >>> DepthMap(np.full((2, 2), 30, np.float32), DepthKind.Z_MM).valid.all()
    np.True_
    """

    values: NDArray[np.float32]
    kind: DepthKind
    sigma: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        hint = "convert to float32 millimetres, NaN where there is no value"
        values = frozen_array("DepthMap.values", self.values, dtype=np.float32, ndim=2, hint=hint)
        # The extremes that ignore NaN tell without a temporary array whether there is anything to count.
        if np.fmin.reduce(values, axis=None) <= 0 or np.fmax.reduce(values, axis=None) == np.inf:
            with np.errstate(invalid="ignore"):
                bad = int(np.count_nonzero(np.isinf(values) | (values <= 0)))
            raise RecordError.of(
                "DepthMap.values",
                expected="depths above 0, or NaN for no value",
                found=f"{bad} zero, negative or infinite values",
                hint=hint,
            )
        object.__setattr__(self, "values", values)
        if not isinstance(self.kind, DepthKind):
            raise RecordError.of(
                "DepthMap.kind", expected="a DepthKind", found=repr(self.kind), hint="say what it means"
            )
        if self.sigma is not None:
            sigma = frozen_array("DepthMap.sigma", self.sigma, dtype=np.float32, ndim=2)
            same_shape("DepthMap.sigma", sigma.shape, "values", values.shape)
            if np.fmin.reduce(sigma, axis=None) < 0:
                raise RecordError.of("DepthMap.sigma", expected="values from 0 on", found="negative values")
            object.__setattr__(self, "sigma", sigma)

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Where there is a value."""
        return ~np.isnan(self.values)

    def scaled(self, factor: float) -> DepthMap:
        """The map with every distance multiplied; what is uncertain stays as uncertain, relative to it.

        >>> float(DepthMap(np.full((2, 2), 30, np.float32), DepthKind.Z_MM).scaled(1.1).values[0, 0])
        33.0
        """
        by = np.float32(positive("factor", factor))
        return DepthMap(self.values * by, self.kind, None if self.sigma is None else self.sigma * by)
