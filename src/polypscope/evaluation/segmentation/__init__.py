"""Scores of segmented polyps: plain overlaps, and the SUN-SEG, still-image and PolypSense3D protocols."""

from polypscope.evaluation.segmentation.overlap import Counts, count, dice, iou, mean_dice, mean_iou

__all__ = ["Counts", "count", "dice", "iou", "mean_dice", "mean_iou"]
