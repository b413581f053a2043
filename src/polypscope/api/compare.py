"""Is a difference between methods more than chance?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from polypscope.evaluation.statistics import Comparison

__all__ = ["ComparisonReport", "compare"]

# Smaller is better for these; everything else counts upwards.
_LOWER_IS_BETTER = ("latency", "mae", "rmse", "error", "fp", "fn", "false")


@dataclass(frozen=True, eq=False)
class ComparisonReport:
    """One comparison for each metric, and the folder that holds them."""

    comparisons: tuple[Comparison, ...]
    out: Path


def compare(
    *results: str,
    metric: tuple[str, ...] = ("f1",),
    out: Path = Path("comparison"),
    group: str | None = None,
    better: Literal["auto", "higher", "lower"] = "auto",
    alpha: float = 0.05,
    missing: Literal["auto", "drop-cases", "drop-methods"] = "auto",
    replicates: int = 1000,
    seed: int = 0,
) -> ComparisonReport:
    """Compare methods on the same cases: tests, intervals, rankings, significance map, and what they mean in words.

    Shapiro–Wilk decides between ANOVA with Tukey–Kramer and Kruskal–Wallis with Dunn; Friedman and paired permutation
    tests respect that all methods saw the same cases; rankings by three schemes are drawn anew by a bootstrap of whole
    clusters. Writes comparison.html, comparison.json and run.json.

    Parameters
    ----------
    results
        Folders written by `polypscope evaluate`, or tables (CSV, Parquet) with columns method, case and one column per
        metric; a column cluster (such as the patient) is resampled as a whole, as are the clips of one case.
        NAME=PATH renames the one method of a result.
    metric
        Columns to compare, such as f1, recall, latency_frames, coherence.
    out
        Folder for the results.
    group
        Only cases with this value in the column group; for F1, recall, latency and coherence of a detection study,
        videos without polyps are left out by default, as in the paper.
    better
        Whether higher or lower values are better; by default errors and latencies are lower.
    alpha
        Level of the tests.
    missing
        Where a method lacks a value: leave out the case, or the method (the default for latency, as in the paper).
    replicates
        Bootstrap draws.
    seed
        Of the bootstrap.
    """
    from polypscope.evaluation.statistics import compare as compare_scores
    from polypscope.io.comparison_results import read_scores, write_comparisons
    from polypscope.records.errors import UsageError
    from polypscope.report.comparison import comparison_section
    from polypscope.report.page import write_page
    from polypscope.runtime.console import say
    from polypscope.runtime.runlog import DISCLAIMER, RunLog

    if not results:
        raise UsageError("expected at least one result folder or table, found none; give what `evaluate` wrote.")
    if not 0 < alpha < 1:
        raise UsageError(f"--alpha: expected a level between 0 and 1, found {alpha:g}; give 0.05.")
    with RunLog(out, "compare", {"results": results, "metric": metric, "alpha": alpha, "seed": seed}) as log:
        found = []
        for name in metric:
            scores = read_scores(results, name, group=group)
            lower = better == "lower" or (better == "auto" and any(word in name for word in _LOWER_IS_BETTER))
            drop = missing if missing != "auto" else "drop-methods" if "latency" in name else "drop-cases"
            found.append(
                compare_scores(
                    scores.values,
                    scores.methods,
                    scores.cases,
                    metric=name,
                    clusters=scores.clusters,
                    higher_is_better=not lower,
                    alpha=alpha,
                    missing=drop,
                    replicates=replicates,
                    seed=seed,
                )
            )
            for text in scores.notes:
                log.add_note(text)
        write_comparisons(out / "comparison.json", found)
        title = (
            f"Comparison of {', '.join(found[0].methods)}" if len(found[0].methods) <= 4 else "Comparison of methods"
        )
        write_page(out / "comparison.html", title, [comparison_section(c) for c in found])
        log.record(methods=list(found[0].methods), cases=len(found[0].cases))
    for comparison in found:
        say("\n".join(comparison.summary()) + "\n")
    say(f"Report: {out / 'comparison.html'}")
    say(DISCLAIMER)
    return ComparisonReport(tuple(found), out)
