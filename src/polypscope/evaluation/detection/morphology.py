"""Results by Paris morphology (Bernal et al., Tables IX and X), with the spelling of classes made uniform.

Only frames with polyps count. A polyp belongs to its class; a false positive belongs to every class that is visible
in its frame, since nothing tells which polyp it would have been meant for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.counts import Counts
from polypscope.evaluation.detection.matching import Matches
from polypscope.evaluation.detection.tables import DetectionTable, TruthTable
from polypscope.evaluation.detection.timing import PolypTiming
from polypscope.records.errors import RecordError

__all__ = ["PARIS_CLASSES", "MorphologyResult", "morphology_results", "normalise_paris"]

PARIS_CLASSES = ("0-Ip", "0-Isp", "0-Is", "0-IIa", "0-IIb", "0-IIc", "0-III")
_SHORT = {"IP": "Ip", "ISP": "Isp", "IPS": "Isp", "IS": "Is", "IIA": "IIa", "IIB": "IIb", "IIC": "IIc", "III": "III"}


def normalise_paris(text: str) -> str:
    """The one spelling of a Paris class, compounds included; raises on anything else.

    >>> [normalise_paris(t) for t in ("0-ISp", "Isp", "0–Is p", "type 0-IIa + c", "0-IIa+0-Is", "iii")]
    ['0-Isp', '0-Isp', '0-Isp', '0-IIa+IIc', '0-IIa+Is', '0-III']
    """
    cleaned = re.sub(r"[\s_]", "", text.strip()).upper().removeprefix("PARIS").removeprefix("TYPE")
    cleaned = re.sub(r"[‐-―−]", "-", cleaned)
    parts: list[str] = []
    for part in re.split(r"[+/]", cleaned):
        part = re.sub(r"^[0O]-?", "", part)
        if part in ("A", "B", "C") and parts and parts[0].startswith("II"):
            part = "II" + part  # the short form 0-IIa+c
        if part not in _SHORT:
            raise RecordError.of(
                "Paris class",
                expected=f"one of {', '.join(PARIS_CLASSES)} or a compound such as 0-IIa+IIc",
                found=repr(text),
                hint="correct the label",
            )
        parts.append(_SHORT[part])
    return "0-" + "+".join(parts)


@dataclass(frozen=True)
class MorphologyResult:
    """One method on one Paris class. `latency_frames` is the mean over found polyps of the class (NaN for stills)."""

    method: str
    paris: str
    polyps: int
    instances: int
    counts: Counts
    precision: float
    recall: float
    f1: float
    latency_frames: float
    latency_s: float
    found: int


def morphology_results(
    truth: TruthTable, detections: DetectionTable, matches: Matches, timings: list[PolypTiming]
) -> list[MorphologyResult]:
    """One row for each class that occurs, in the order of the classification; empty without labels."""
    labels = np.array([label or "" for label in truth.paris], dtype=object)
    seen = detections.took_part[truth.video[truth.polyp_frame]] if len(labels) else np.zeros(0, dtype=np.bool_)
    frames = truth.polyp_frame
    false = np.bincount(detections.frame[~matches.hit], minlength=truth.frame_count)
    whole = [t for t in timings if t.appearance == 0]
    tracks = truth.tracks
    out = []
    for paris in sorted({str(label) for label in labels if label}, key=_order):
        rows: NDArray[np.bool_] = np.asarray((labels == paris) & seen, dtype=np.bool_)
        tp = int(matches.detected[rows].sum())
        fp = int(false[np.unique(frames[rows])].sum())
        counts = Counts(tp=tp, fp=fp, tn=0, fn=int(rows.sum()) - tp, negatives=0)
        of_class = [t for t in whole if t.paris == paris and truth.kind == "videos"]
        latencies = np.array([(t.latency_frames, t.latency_s) for t in of_class if t.found]).reshape(-1, 2)
        out.append(
            MorphologyResult(
                method=detections.name,
                paris=paris,
                polyps=len(np.unique(tracks[rows])),
                instances=int(rows.sum()),
                counts=counts,
                precision=counts.precision(),
                recall=counts.recall(),
                f1=counts.f1(),
                latency_frames=float(latencies[:, 0].mean()) if len(latencies) else nan,
                latency_s=float(latencies[:, 1].mean()) if len(latencies) else nan,
                found=len(latencies),
            )
        )
    return out


def _order(paris: str) -> tuple[int, int, str]:
    first = "0-" + paris.removeprefix("0-").split("+")[0]
    return (1 if "+" in paris else 0, PARIS_CLASSES.index(first) if first in PARIS_CLASSES else 99, paris)
