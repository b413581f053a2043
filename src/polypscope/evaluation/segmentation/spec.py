"""The protocols as data: every quirk of a published evaluation is a named field, so that none is hidden in code.

`SUNSEG` is the toolbox of Ji et al., "Video Polyp Segmentation: A Deep Learning Perspective" (2022), as it runs, which
is not always as the paper is printed (the paper's Dice has a union where the code has a sum, for example). `STILLS` is
how papers on still images report Kvasir-SEG, CVC-ClinicDB and their kind, after PraNet's evaluation. `POLYPSENSE3D` is
the table of that benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polypscope.records.errors import RecordError, UsageError

CURVES = ("E", "F", "Sen", "Spe", "Dice", "IoU")
"""Measures with one value for each of 256 thresholds; index j is the threshold (255 - j) / 255, strictest first."""

TOOLBOX = (
    "Smeasure", "wFmeasure", "MAE", "adpEm", "meanEm", "maxEm", "adpFm", "meanFm", "maxFm", "meanSen", "maxSen",
    "meanSpe", "maxSpe", "meanDice", "maxDice", "meanIoU", "maxIoU",
)  # fmt: skip
"""The toolbox's own list, by its own names and in its own order."""

PAPER_SIX = ("Smeasure", "meanEm", "wFmeasure", "meanFm", "maxDice", "meanSen")
"""What the SUN-SEG paper prints."""

BINARY = ("mDice", "mIoU", "recall", "precision", "F1")
"""Measures of the prediction cut at one threshold, per image; `pooled…` are the same over all pixels at once."""
POOLED = ("pooledDice", "pooledIoU", "pooledRecall", "pooledPrecision")

OURS = ("boundaryF", "hausdorff95_px", "flicker")
"""Beyond the published protocols: agreement of outlines, and change of IoU between consecutive frames."""

LOWER_IS_BETTER = frozenset({"MAE", "hausdorff95_px", "flicker"})

_CURVE_OF = {"Em": "E", "Fm": "F", "Sen": "Sen", "Spe": "Spe", "Dice": "Dice", "IoU": "IoU"}


@dataclass(frozen=True)
class Spec:
    """How frames are compared and averaged. The defaults are the SUN-SEG toolbox's.

    Preparation
        truth_above: truth is what is brighter than this (128 itself is background).
        resize_prediction: a prediction of another size is resized to the truth, bilinear, 8 bits; else it is an error.
        stretch_prediction: grey levels are stretched to min 0, max 1; a constant map is left as it is.
    Thresholds
        float_thresholds: Dice, IoU, Sen and Spe compare the float level with `linspace(1, 0, 256)`, so that 66 of the
            256 levels of a full-range map miss their own threshold; False compares truncated levels, as E and F do.
        zero_without_overlap: Dice, IoU, Sen and Spe are all 0 where nothing overlaps, specificity included; False
            computes specificity as its formula says.
    Measures
        f_beta2, weighted_f_beta2, s_alpha: the weights of F, weighted F and S.
        weighted_f_of_empty_truth: what a frame without truth scores.
        e_over_n_minus_1: E divides by N - 1, so that it can exceed 1; False divides by N.
        s_nan_is_zero: S is 0 where its formula is undefined (a one-pixel object, a centroid in the last row or
            column); False gives NaN.
        s_constant_quadrant_as_summed: where the truth is pure and the prediction constant in a quadrant, rounding of
            numpy's mean decides between 0 and 1; False gives 1, as exact arithmetic would.
    Binary and own measures
        binary_at: the unstretched prediction is positive from this level (of 0 to 1) on.
        empty_pair: what mDice and its kind score when truth and prediction are both empty.
        outlines: compute boundary F and Hausdorff-95.
        boundary_tolerance: of the image diagonal, rounded up to whole pixels.
    Averaging
        drop_first, drop_last: frames left out at the ends of each sorted clip.
        average: "clips": frames, then clips, so that each clip counts once; "frames": each frame counts once.
        reduce_after_averaging: the mean or maximum over thresholds is taken of the averaged curve; False takes it of
            each frame and averages those.
        decimals: of the printed table.
        headline: the measures to print first.
    """

    name: str = "sunseg"
    truth_above: int = 128
    resize_prediction: bool = True
    stretch_prediction: bool = True
    float_thresholds: bool = True
    zero_without_overlap: bool = True
    f_beta2: float = 0.3
    weighted_f_beta2: float = 1.0
    s_alpha: float = 0.5
    weighted_f_of_empty_truth: float = 0.0
    e_over_n_minus_1: bool = True
    s_nan_is_zero: bool = True
    s_constant_quadrant_as_summed: bool = True
    binary_at: float = 0.5
    empty_pair: float = 1.0
    outlines: bool = True
    boundary_tolerance: float = 0.008
    drop_first: int = 1
    drop_last: int = 1
    average: Literal["clips", "frames"] = "clips"
    reduce_after_averaging: bool = True
    decimals: int = 3
    headline: tuple[str, ...] = PAPER_SIX

    def __post_init__(self) -> None:
        if not 0 <= self.truth_above <= 254:
            raise RecordError.of("Spec.truth_above", expected="a grey level from 0 to 254", found=str(self.truth_above))
        if not 0.0 < self.binary_at <= 1.0:
            raise RecordError.of("Spec.binary_at", expected="a level in (0, 1]", found=str(self.binary_at))
        if self.drop_first < 0 or self.drop_last < 0:
            found = f"{self.drop_first} and {self.drop_last}"
            raise RecordError.of("Spec.drop_first and drop_last", expected="0 or more frames", found=found)
        unknown = [name for name in self.headline if name not in ALL_MEASURES]
        if unknown:
            raise RecordError.of("Spec.headline", expected=f"names of {', '.join(ALL_MEASURES)}", found=str(unknown))


ALL_MEASURES = (*TOOLBOX, *BINARY, *POOLED, *OURS)

SUNSEG = Spec()
STILLS = Spec(
    name="stills",
    drop_first=0,
    drop_last=0,
    average="frames",
    headline=("meanDice", "meanIoU", "wFmeasure", "Smeasure", "meanEm", "maxEm", "MAE"),
)
POLYPSENSE3D = Spec(
    name="polypsense3d",
    stretch_prediction=False,
    drop_first=0,
    drop_last=0,
    average="frames",
    decimals=4,
    headline=(*BINARY, *POOLED),
)
PROTOCOLS = {spec.name: spec for spec in (SUNSEG, STILLS, POLYPSENSE3D)}


def protocol(name: str) -> Spec:
    """The protocol of that name.

    >>> protocol("stills").average
    'frames'
    """
    if name not in PROTOCOLS:
        raise UsageError(f"protocol: expected one of {', '.join(PROTOCOLS)}, found {name!r}; choose one of them.")
    return PROTOCOLS[name]


def curve_of(measure: str) -> tuple[str, str] | None:
    """The curve behind a measure and how it is reduced, or None.

    >>> curve_of("maxDice"), curve_of("meanEm"), curve_of("MAE")
    (('Dice', 'max'), ('E', 'mean'), None)
    """
    for how in ("mean", "max"):
        curve = _CURVE_OF.get(measure.removeprefix(how)) if measure.startswith(how) else None
        if curve:
            return curve, how
    return None
