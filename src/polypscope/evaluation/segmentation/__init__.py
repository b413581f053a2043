"""Scores of segmented polyps: plain overlaps, and the SUN-SEG, still-image and PolypSense3D protocols."""

from polypscope.evaluation.segmentation.clips import (
    ClipScores,
    FramePair,
    PairedClip,
    Result,
    Summary,
    evaluate,
    score_clip,
)
from polypscope.evaluation.segmentation.frame import FrameScore, score_frame
from polypscope.evaluation.segmentation.overlap import Counts, count, dice, iou, mean_dice, mean_iou
from polypscope.evaluation.segmentation.spec import POLYPSENSE3D, STILLS, SUNSEG, Spec, protocol

__all__ = [
    "POLYPSENSE3D",
    "STILLS",
    "SUNSEG",
    "ClipScores",
    "Counts",
    "FramePair",
    "FrameScore",
    "PairedClip",
    "Result",
    "Spec",
    "Summary",
    "count",
    "dice",
    "evaluate",
    "iou",
    "mean_dice",
    "mean_iou",
    "protocol",
    "score_clip",
    "score_frame",
]
