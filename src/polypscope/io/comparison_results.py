"""Scores of several methods from what evaluations wrote, and comparisons back to disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from polypscope.evaluation.statistics import Comparison
from polypscope.io.paths import write_text
from polypscope.io.tables import read_table
from polypscope.records.errors import InputError, MissingInput, UsageError

__all__ = ["Scores", "read_scores", "write_comparisons"]

# Metrics that need a polyp; the paper compares them on videos with polyps only.
_NEED_POLYPS = ("f1", "f2", "precision", "recall", "latency_frames", "latency_s", "coherence")


@dataclass(frozen=True, eq=False)
class Scores:
    """`values` (cases, methods), NaN where a method has no value; `clusters` (cases,)."""

    values: NDArray[np.float64]
    methods: tuple[str, ...]
    cases: tuple[str, ...]
    clusters: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_scores(results: Sequence[str], metric: str, *, group: str | None = None) -> Scores:
    """Gather one metric from result folders (videos.csv, clips.csv) or tables with columns method, case and metric."""
    parts = []
    notes = []
    for text in results:
        name, equals, rest = text.partition("=")
        path = Path(rest) if equals and not Path(text).exists() else Path(text)
        table = read_table(_table_of(path), columns=("method", "case"))
        numeric = [c for c in table.columns if table[c].dtype.is_numeric()]
        if metric not in numeric:
            raise UsageError(
                f"{path}: expected a column of numbers {metric!r}, found {', '.join(numeric) or 'none'}; choose with "
                "--metric."
            )
        if equals and path != Path(text):
            if table["method"].n_unique() != 1:
                raise UsageError(f"{text}: a name can be given to a result of one method, this one has several.")
            table = table.with_columns(pl.lit(name).alias("method"))
        if group is not None:
            if "group" not in table.columns:
                raise UsageError(f"{path}: expected a column 'group' for --group {group}, found none; leave it out.")
            table = table.filter(pl.col("group") == group)
        elif "group" in table.columns and metric in _NEED_POLYPS:
            table = table.filter(pl.col("group") != "no_polyp")
            notes.append(f"{path}: videos without polyps are left out of {metric}")
        if "clip" in table.columns and "cluster" not in table.columns:
            # A segmentation result: clips are compared, and the clips of one case are resampled together.
            unit = pl.concat_str([c for c in ("subset", "case", "clip") if c in table.columns], separator="/")
            table = table.with_columns(pl.col("case").alias("cluster"), unit.alias("case"))
        if "cluster" not in table.columns:
            table = table.with_columns(pl.col("case").alias("cluster"))
        parts.append(table.select(pl.col("method", "case", "cluster").cast(pl.String), pl.col(metric).cast(pl.Float64)))
    joined = pl.concat(parts)
    twice = joined.group_by("method", "case").len().filter(pl.col("len") > 1).sort("method", "case")
    if len(twice):
        method, case, _ = twice.row(0)
        raise InputError(
            f"method {method!r} has two values for case {case!r}; rename one result with NAME=PATH, or give each once."
        )
    methods = tuple(dict.fromkeys(joined["method"]))
    cases = tuple(dict.fromkeys(joined["case"]))
    cluster_of = dict(zip(joined["case"], joined["cluster"], strict=True))
    values = np.full((len(cases), len(methods)), np.nan)
    rows, columns = {c: i for i, c in enumerate(cases)}, {m: i for i, m in enumerate(methods)}
    for method, case, _, value in joined.iter_rows():
        if value is not None:
            values[rows[case], columns[method]] = value
    return Scores(values, methods, cases, tuple(str(cluster_of[c]) for c in cases), tuple(dict.fromkeys(notes)))


def _table_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in ("videos.csv", "cases.csv", "clips.csv"):
        if (path / name).is_file():
            return path / name
    raise MissingInput(f"{path}: expected a result folder with videos.csv, found none; give what `evaluate` wrote.")


def write_comparisons(path: Path, comparisons: Sequence[Comparison]) -> Path:
    """Write comparisons as JSON; undefined numbers are null."""
    content = [
        {
            "metric": c.metric,
            "higher_is_better": c.higher_is_better,
            "alpha": c.alpha,
            "methods": c.methods,
            "cases": c.cases,
            "clusters": c.clusters,
            "dropped_cases": c.dropped_cases,
            "dropped_methods": c.dropped_methods,
            "scores": c.scores.tolist(),
            "means": {name: asdict(interval) for name, interval in c.means.items()},
            "normality": asdict(c.normality),
            "omnibus": asdict(c.omnibus),
            "friedman": dict(zip(("test", "statistic", "p"), c.friedman, strict=True)),
            "significance": c.significance.tolist(),
            "paired": [
                {"first": a, "second": b, **asdict(test), "p_holm": c.paired_p[a, b]}
                for (a, b), test in c.paired.items()
            ],
            "rankings": [
                {
                    "scheme": r.scheme,
                    "rank": r.rank.tolist(),
                    "low": r.low.tolist(),
                    "high": r.high.tolist(),
                    "frequency": r.frequency.tolist(),
                    "kendall_tau": r.kendall_tau,
                }
                for r in c.rankings
            ],
            "summary": c.summary(),
        }
        for c in comparisons
    ]
    return write_text(path, json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
