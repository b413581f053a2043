"""Results of a detection study on disk: every frame and detection in Parquet, summaries in CSV and JSON.

`frames.parquet` lists each frame for each method, so that misses and false alarms can be filtered and looked at;
`videos.csv` has one row per method and video and is what `polypscope compare` reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from polypscope.evaluation.detection.groups import video_groups
from polypscope.evaluation.detection.study import DetectionResult
from polypscope.evaluation.fusion_search import Combination, SearchResult
from polypscope.io.paths import write_text
from polypscope.io.tables import write_table

__all__ = ["detections_frame", "frames_frame", "polyps_frame", "summary", "videos_frame", "write_detection_results"]


def frames_frame(result: DetectionResult) -> pl.DataFrame:
    """One row per method and frame in which it took part."""
    truth = result.truth
    videos = np.array(truth.videos, dtype=object)
    parts = []
    for m in result.methods:
        seen = m.detections.took_part[truth.video]
        top = np.full(truth.frame_count, np.nan)
        if m.detections.has_scores:
            np.fmax.at(top, m.detections.frame, m.detections.score)
        columns: dict[str, Any] = {
            "video": videos[truth.video[seen]].astype(str),
            "frame": truth.index[seen],
            "name": np.array(truth.frame_names, dtype=object)[seen].astype(str),
            "polyps": truth.polyp_count[seen],
            "outputs": m.counts.outputs[seen],
            "tp": m.counts.tp[seen],
            "fp": m.counts.fp[seen],
            "fn": m.counts.fn[seen],
            "tn": m.counts.tn[seen],
            "top_score": top[seen],
        }
        if truth.timed:
            columns["pts_s"] = truth.pts_s[seen]
        if m.detections.concentration is not None:
            columns["concentration"] = m.detections.concentration[seen]
        frame = pl.DataFrame(columns).fill_nan(None)
        parts.append(frame.insert_column(0, pl.Series("method", [m.name] * len(frame), dtype=pl.String)))
    return pl.concat(parts, how="diagonal")


def detections_frame(result: DetectionResult) -> pl.DataFrame:
    """One row per detection, with `hit`: whether it lies on a polyp."""
    truth = result.truth
    videos = np.array(truth.videos, dtype=object)
    parts = []
    for m in result.methods:
        rows = m.detections.frame
        parts.append(
            pl.DataFrame(
                {
                    "method": np.full(len(rows), m.name, dtype=object).astype(str),
                    "video": videos[truth.video[rows]].astype(str),
                    "frame": truth.index[rows],
                    "x": m.detections.x,
                    "y": m.detections.y,
                    "score": m.detections.score,
                    "hit": m.matches.hit,
                },
                schema_overrides={"method": pl.String, "video": pl.String},
            ).fill_nan(None)
        )
    return pl.concat(parts)


def videos_frame(result: DetectionResult) -> pl.DataFrame:
    """One row per method and video: counts, ratios, latency, coherence."""
    truth = result.truth
    groups = video_groups(truth)
    rows = []
    for m in result.methods:
        for v, video in enumerate(truth.videos):
            if not m.detections.took_part[v]:
                continue
            counts = dict(zip(("tp", "fp", "tn", "fn", "negatives"), map(int, m.video_counts[v]), strict=True))
            metrics = {name: _number(float(values[v])) for name, values in m.video_metrics.items()}
            patient = truth.patients[v] if truth.patients else video
            row: dict[str, Any] = {"method": m.name, "case": video, "cluster": patient, "group": str(groups[v])}
            rows.append({**row, **counts, **metrics})
    return pl.DataFrame(rows, infer_schema_length=None)


def polyps_frame(result: DetectionResult) -> pl.DataFrame:
    """One row per method, polyp and appearance (0: the polyp as a whole)."""
    rows = [{k: _number(v) for k, v in asdict(t).items()} for m in result.methods for t in m.timings]
    return pl.DataFrame(rows, infer_schema_length=None)


def summary(result: DetectionResult, search: SearchResult | None = None) -> dict[str, Any]:
    """The study as plain JSON values; undefined numbers are null."""
    truth = result.truth
    methods = []
    for m in result.methods:
        curves = m.curves
        best_threshold, best_f1 = curves.best_f1()
        methods.append(
            {
                "name": m.name,
                "detections": len(m.detections.x),
                "videos": int(m.detections.took_part.sum()),
                "groups": [asdict(g) for g in m.groups],
                "timing": None if m.timing is None else asdict(m.timing),
                "alarms": [asdict(a) for a in m.alarms],
                "morphology": [asdict(r) for r in m.morphology],
                "challenges": [asdict(d) for d in m.challenges],
                "concentration": None if m.concentration is None else asdict(m.concentration),
                "curves": {
                    "has_scores": curves.is_curve,
                    "average_precision": curves.average_precision,
                    "presence_auc": curves.presence_auc,
                    "best_f1": best_f1,
                    "best_f1_threshold": best_threshold,
                    "threshold": curves.threshold.tolist(),
                    "counts": curves.counts.tolist(),
                },
            }
        )
    content = {
        "protocol": "MICCAI 2015 polyp detection (Bernal et al., IEEE TMI 36(6), 2017)",
        "disclaimer": "Research software, not a medical device.",
        "spec": asdict(result.spec),
        "truth": {
            "kind": truth.kind,
            "videos": len(truth.videos),
            "frames": truth.frame_count,
            "polyp_frames": int(truth.has_polyp.sum()),
            "polyp_instances": len(truth.polyp_id),
            "timed": truth.timed,
            "identities": truth.identities,
        },
        "notes": list(result.notes),
        "methods": methods,
        "agreement": [asdict(a) for a in result.agreement],
        "combinations": None if search is None else combinations(search),
    }
    plain: dict[str, Any] = _plain(content)
    return plain


def combinations(search: SearchResult) -> dict[str, Any]:
    """A search as plain values: its parameters and every combination."""
    return {
        "sigma": {"value": search.sigma.value, "unit": search.sigma.unit},
        "ties": search.ties,
        "one_vote_per_method": search.one_vote_per_method,
        "rows": [_combination(c) for c in search.combinations],
    }


def _combination(c: Combination) -> dict[str, Any]:
    return {"strategy": c.strategy, "methods": list(c.methods), "group": c.group, **asdict(c.counts), **c.metrics}


def write_detection_results(
    folder: Path, result: DetectionResult, *, search: SearchResult | None = None
) -> Iterable[Path]:
    """Write all tables and `result.json` into `folder`; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    out = [
        write_table(folder / "frames.parquet", frames_frame(result)),
        write_table(folder / "detections.parquet", detections_frame(result)),
        write_table(folder / "videos.csv", videos_frame(result)),
        write_table(folder / "polyps.csv", polyps_frame(result)),
        write_text(folder / "result.json", json.dumps(summary(result, search), indent=1, allow_nan=False) + "\n"),
    ]
    if search is not None:
        rows = [{**_combination(c), "methods": " + ".join(c.methods)} for c in search.combinations]
        table = pl.DataFrame(rows, infer_schema_length=None).fill_nan(None)
        out.append(write_table(folder / "combinations.csv", table))
    return out


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return _number(value)
