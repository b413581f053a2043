"""The MICCAI 2015 detection study (Bernal et al., IEEE TMI 36(6), 2017) as pure functions over records."""

from polypscope.evaluation.detection.challenges import CHALLENGES, Labels
from polypscope.evaluation.detection.counts import METRICS, Counts, FrameCounts
from polypscope.evaluation.detection.groups import GROUP_TITLES, GROUPS, GroupResult
from polypscope.evaluation.detection.matching import Criterion, Matches, match
from polypscope.evaluation.detection.morphology import normalise_paris
from polypscope.evaluation.detection.study import (
    OFFICIAL,
    DetectionResult,
    DetectionSpec,
    MethodResult,
    evaluate_detection,
)
from polypscope.evaluation.detection.tables import (
    DetectionTable,
    TruthTable,
    TruthTableBuilder,
    detection_table,
    truth_table,
)

__all__ = [
    "CHALLENGES",
    "GROUPS",
    "GROUP_TITLES",
    "METRICS",
    "OFFICIAL",
    "Counts",
    "Criterion",
    "DetectionResult",
    "DetectionSpec",
    "DetectionTable",
    "FrameCounts",
    "GroupResult",
    "Labels",
    "Matches",
    "MethodResult",
    "TruthTable",
    "TruthTableBuilder",
    "detection_table",
    "evaluate_detection",
    "match",
    "normalise_paris",
    "truth_table",
]
