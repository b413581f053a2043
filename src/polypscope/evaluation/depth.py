"""Depth against truth: the field's metrics, per image and then averaged, for every alignment by name.

RMSE, MAE (mm), AbsRel, SqRel (mm), log10, RMSE log and δ < 1.25, 1.25², 1.25³, over all pixels, those of polyps, and
those within 100 mm. Alignments: "none" (metric, as predicted), "median" (each frame scaled by the ratio of medians),
"trajectory" (one least-squares scale per sequence, fitted on the per-frame means as in SimCol3D). Sparse truth (forceps
contacts) goes through the same code: a few pixels instead of all.

Not to be confused: PPSNet's `a1` is |relative error| < 0.1, not δ < 1.25; Depth Anything's evaluation leaves out images
with under 10 valid pixels (`Spec.least_pixels`), which matters for sparse points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from polypscope.records import DepthKind, DepthMap
from polypscope.records.checks import same_shape
from polypscope.records.errors import RecordError

__all__ = [
    "ALIGNMENTS",
    "DENSE",
    "METRICS",
    "REGIONS",
    "SPARSE",
    "DepthFrame",
    "DepthResult",
    "Spec",
    "evaluate",
    "metrics",
]

Alignment = Literal["none", "median", "trajectory"]
Region = Literal["all", "polyp", "near"]
Array = NDArray[np.float64]

ALIGNMENTS: Final[tuple[Alignment, ...]] = ("none", "median", "trajectory")
REGIONS: Final[tuple[Region, ...]] = ("all", "polyp", "near")
METRICS: Final = ("rmse", "mae", "absrel", "sqrel", "log10", "rmselog", "delta1", "delta2", "delta3")


@dataclass(frozen=True, slots=True)
class Spec:
    """The protocol: which pixels count and how few of them a frame may have."""

    least_pixels: int = 10
    near_mm: float = 100.0
    farthest_mm: float = np.inf


DENSE: Final = Spec()
SPARSE: Final = Spec(least_pixels=1)


@dataclass(frozen=True, eq=False, slots=True)
class DepthFrame:
    """Truth and prediction of one frame; `polyp` marks the polyp's pixels, if known."""

    sequence: str
    index: int
    truth: DepthMap
    predicted: DepthMap
    polyp: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class DepthResult:
    """One row per frame, alignment and region; `summary` averages them over frames."""

    rows: tuple[Mapping[str, object], ...]
    skipped: tuple[str, ...]

    @property
    def summary(self) -> list[dict[str, object]]:
        """Mean over frames of each metric, for every alignment and region that has any."""
        out: list[dict[str, object]] = []
        for alignment in ALIGNMENTS:
            for region in REGIONS:
                rows = [r for r in self.rows if r["alignment"] == alignment and r["region"] == region]
                if rows:
                    means = {m: float(np.mean([float(r[m]) for r in rows])) for m in METRICS}  # type: ignore[arg-type]
                    scale = float(np.median([float(r["scale"]) for r in rows]))  # type: ignore[arg-type]
                    out.append({"alignment": alignment, "region": region, "frames": len(rows), **means, "scale": scale})
        return out

    def value(self, metric: str, alignment: Alignment = "none", region: Region = "all") -> float:
        """One number of the summary."""
        for row in self.summary:
            if row["alignment"] == alignment and row["region"] == region:
                return float(row[metric])  # type: ignore[arg-type]
        raise RecordError.of("depth result", expected=f"frames for {alignment}, {region}", found="none")


def metrics(true_mm: Array, predicted_mm: Array) -> dict[str, float]:
    """All metrics of paired depths (n,), both above zero.

    >>> found = metrics(np.array([10.0, 20.0]), np.array([11.0, 20.0]))
    >>> round(found["absrel"], 3), round(found["rmse"], 3), found["delta1"]
    (0.05, 0.707, 1.0)
    """
    error = predicted_mm - true_mm
    log_ratio = np.log(predicted_mm) - np.log(true_mm)
    ratio = np.exp(np.abs(log_ratio))
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
        "absrel": float(np.mean(np.abs(error) / true_mm)),
        "sqrel": float(np.mean(error**2 / true_mm)),
        "log10": float(np.mean(np.abs(log_ratio)) / np.log(10.0)),
        "rmselog": float(np.sqrt(np.mean(log_ratio**2))),
        **{f"delta{k}": float(np.mean(ratio < 1.25**k)) for k in (1, 2, 3)},
    }


def evaluate(frames: Iterable[DepthFrame], spec: Spec = DENSE) -> DepthResult:
    """Score predicted depth; frames of one sequence may come in any order, but all of them are needed for its scale."""
    taken: list[tuple[DepthFrame, Array, Array, NDArray[np.bool_] | None, NDArray[np.bool_]]] = []
    skipped = []
    for frame in frames:
        same_shape("predicted depth", frame.predicted.shape, "the true depth", frame.truth.shape)
        if frame.truth.kind is DepthKind.RELATIVE:
            raise RecordError.of("true depth", expected="millimetres", found="relative depth")
        if frame.predicted.kind is not DepthKind.RELATIVE and frame.predicted.kind is not frame.truth.kind:
            raise RecordError.of(
                "predicted depth",
                expected=f"the truth's kind {frame.truth.kind.value}",
                found=frame.predicted.kind.value,
                hint="convert with geometry.cameras.to_z or to_ray",
            )
        valid = frame.truth.valid & frame.predicted.valid
        with np.errstate(invalid="ignore"):
            valid &= frame.truth.values <= spec.farthest_mm
        if np.count_nonzero(valid) < spec.least_pixels:
            skipped.append(f"{frame.sequence} frame {frame.index}: under {spec.least_pixels} pixels with both depths")
            continue
        true = frame.truth.values[valid].astype(np.float64)
        predicted = frame.predicted.values[valid].astype(np.float64)
        polyp = None if frame.polyp is None else frame.polyp[valid]
        taken.append((frame, true, predicted, polyp, true <= spec.near_mm))
    scales = _trajectory_scales([(f.sequence, t, p) for f, t, p, _, _ in taken])
    rows: list[Mapping[str, object]] = []
    for frame, true, predicted, polyp, near in taken:
        relative = frame.predicted.kind is DepthKind.RELATIVE
        factors: dict[Alignment, float] = {
            "median": float(np.median(true) / np.median(predicted)),
            "trajectory": scales[frame.sequence],
        }
        if not relative:
            factors = {"none": 1.0, **factors}
        regions: dict[Region, NDArray[np.bool_]] = {"all": np.ones(len(true), bool), "near": near}
        if polyp is not None:
            regions["polyp"] = polyp
        for alignment, scale in factors.items():
            for region, which in regions.items():
                if np.count_nonzero(which) >= spec.least_pixels:
                    found = metrics(true[which], scale * predicted[which])
                    rows.append(
                        {
                            "sequence": frame.sequence,
                            "index": frame.index,
                            "alignment": alignment,
                            "region": region,
                            "pixels": int(np.count_nonzero(which)),
                            "scale": scale,
                            **found,
                        }
                    )
    return DepthResult(tuple(rows), tuple(skipped))


def _trajectory_scales(items: Sequence[tuple[str, Array, Array]]) -> dict[str, float]:
    """One scale per sequence: least squares of true on predicted per-frame mean depths."""
    means: dict[str, list[tuple[float, float]]] = {}
    for sequence, true, predicted in items:
        means.setdefault(sequence, []).append((float(true.mean()), float(predicted.mean())))
    out = {}
    for sequence, pairs in means.items():
        t, p = np.array(pairs).T
        out[sequence] = float(np.sum(t * p) / np.sum(p * p))
    return out
