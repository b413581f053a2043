"""The tables of the detection study in the form of Bernal et al.: VI, VII, V, VIII, IX, X, XI, XII, and ours beyond."""

from __future__ import annotations

from typing import Any

from polypscope.evaluation.detection.challenges import CHALLENGES
from polypscope.evaluation.detection.groups import GROUP_TITLES, GROUPS
from polypscope.evaluation.detection.study import DetectionResult
from polypscope.evaluation.fusion import STRATEGIES
from polypscope.evaluation.fusion_search import SearchResult
from polypscope.report.tables import Column, Table

__all__ = [
    "agreement_table",
    "alarm_table",
    "challenge_tables",
    "concentration_table",
    "curve_table",
    "group_tables",
    "macro_table",
    "morphology_table",
    "search_table",
    "summary_table",
    "temporal_table",
]

_STRATEGY_TITLES = {"union": "Best union", "saliency": "Best saliency", "voting": "Best saliency voting"}


def _percent(key: str, heading: str, group: str = "") -> Column:
    return Column(key, heading, digits=1, best="high", group=group)


def group_tables(result: DetectionResult, search: SearchResult | None = None, *, metric: str = "f1") -> list[Table]:
    """Table VI for stills; Table VII, one table per group of videos, for videos. Best combinations below."""
    stills = result.truth.kind == "stills"
    tables = []
    for group in GROUPS[:1] if stills else GROUPS:
        rows: list[dict[str, Any]] = []
        for m in result.methods:
            found = m.group(group)
            if found is not None:
                part = m.detections.took_part
                name = m.name if part.all() else f"{m.name} ({int(part.sum())} of {len(part)} videos)"
                rows.append(_count_row(name, vars(found.counts), found.micro, group))
        if search is not None:
            # A group without polyps has no F1: there the paper ranks by specificity.
            by = "specificity" if group == "no_polyp" else metric
            for strategy in STRATEGIES:
                ranked = search.ranked(strategy, by, group=group)
                if ranked:
                    best = ranked[0]
                    title = f"{_STRATEGY_TITLES[strategy]} ({', '.join(best.methods)})"
                    rows.append({**_count_row(title, vars(best.counts), best.metrics, group), "_class": "ours"})
        if not rows:
            continue
        columns = [Column("method"), Column("tp", "TP"), Column("fp", "FP", best="low")]
        columns += [Column("fn", "FN", best="low")] if stills else [Column("tn", "TN"), Column("fn", "FN", best="low")]
        columns += [_percent("precision", "Prec"), _percent("recall", "Rec")]
        columns += [] if stills else [_percent("specificity", "Spec")]
        columns += [_percent("f1", "F1"), _percent("f2", "F2")]
        columns += [] if stills else [_percent("frame_specificity", "Frame spec")]
        caption = (
            "Still frame analysis, ratios in % (Table VI in form)"
            if stills
            else f"{GROUP_TITLES[group]}, ratios in % (Table VII in form)"
        )
        tables.append(Table(columns, rows, caption=caption, label=f"detection-{group}"))
    return tables


def _count_row(name: str, counts: dict[str, int], metrics: dict[str, float], group: str) -> dict[str, Any]:
    # Without a polyp precision, recall and F are not printed, as in the paper: specificity carries the cost.
    hidden = ("precision", "recall", "f1", "f2") if group == "no_polyp" else ()
    shown = {k: None if k in hidden else 100 * v for k, v in metrics.items()}
    tp_fn = {"tp": None, "fn": None} if group == "no_polyp" else {}
    return {"method": name, **{k: counts[k] for k in ("tp", "fp", "tn", "fn")}, **tp_fn, **shown}


def macro_table(result: DetectionResult) -> Table:
    """Means over videos beside the pooled values."""
    names = (("precision", "Prec"), ("recall", "Rec"), ("specificity", "Spec"), ("f1", "F1"))
    rows = []
    for m in result.methods:
        g = m.group("all")
        if g is not None:
            row: dict[str, Any] = {"method": m.name}
            for key, _ in names:
                row[f"micro_{key}"], row[f"macro_{key}"] = 100 * g.micro[key], 100 * g.macro[key]
                row[f"n_{key}"] = g.macro_videos[key]
            rows.append(row)
    columns = [Column("method")]
    for key, heading in names:
        columns += [_percent(f"micro_{key}", "pooled", heading), _percent(f"macro_{key}", "per video", heading)]
        columns += [Column(f"n_{key}", "videos", group=heading)]
    return Table(
        columns,
        rows,
        caption="Pooled over frames (micro) and mean over videos (macro), all videos, in %",
        label="detection-macro",
        notes=(
            "A ratio can be undefined in a video, which is then left out of its mean; “videos” counts the rest. A "
            "method that fires in a video without polyps gets precision and F1 of 0 there.",
        ),
    )


def summary_table(result: DetectionResult) -> Table:
    """Table XII: detection rate, latency, recall, F1 and temporal coherence."""
    rows = []
    for m in result.methods:
        t, g = m.timing, m.group("all")
        if t is None or g is None:
            continue
        rows.append(
            {
                "method": m.name,
                "rate": 100 * t.detection_rate,
                "found": f"{t.found}/{t.polyps}",
                "latency": t.latency_frames_mean,
                "latency_sd": t.latency_frames_sd,
                "seconds": t.latency_s_mean,
                "median_s": t.median_time_to_detection_s,
                "recall": 100 * g.micro["recall"],
                "f1": 100 * g.micro["f1"],
                "coherence": 100 * t.coherence_mean,
                "coherence_sd": 100 * t.coherence_sd,
            }
        )
    columns = [
        Column("method"),
        _percent("rate", "DR"),
        Column("found", "found"),
        Column("latency", "mean", digits=1, best="low", group="Latency (frames)"),
        Column("latency_sd", "SD", digits=1, group="Latency (frames)"),
        Column("seconds", "mean", digits=2, best="low", group="Latency (s)"),
        Column("median_s", "median", digits=2, best="low", group="Latency (s)"),
        _percent("recall", "Rec"),
        _percent("f1", "F1"),
        _percent("coherence", "mean", "Temporal coherence"),
        Column("coherence_sd", "SD", digits=1, group="Temporal coherence"),
    ]
    return Table(
        columns,
        rows,
        caption="Summary, shares in % (Table XII in form)",
        label="detection-summary",
        notes=(
            "Latency means leave out polyps that were never found, as the paper does; the median does not: it comes "
            "from the survival curve, in which they are censored.",
        ),
    )


def temporal_table(result: DetectionResult) -> Table:
    """Table XI(a), and re-appearances beyond it."""
    rows = []
    for m in result.methods:
        t = m.timing
        if t is not None:
            rows.append(
                {
                    "method": m.name,
                    "pairs": 100 * t.coherence_mean,
                    "pairs_sd": 100 * t.coherence_sd,
                    "recall": 100 * t.sequence_recall_mean,
                    "recall_sd": 100 * t.sequence_recall_sd,
                    "again": f"{t.reappearances_found}/{t.reappearances}",
                    "again_latency": t.reappearance_latency_frames_mean,
                    "fragments": t.fragments_per_found_appearance,
                }
            )
    columns = [
        Column("method"),
        _percent("pairs", "mean", "Consecutive frames"),
        Column("pairs_sd", "SD", digits=1, group="Consecutive frames"),
        _percent("recall", "mean", "Within sequence"),
        Column("recall_sd", "SD", digits=1, group="Within sequence"),
        Column("again", "found", group="Re-appearances"),
        Column("again_latency", "latency (frames)", digits=1, best="low", group="Re-appearances"),
        Column("fragments", "Fragments per appearance", digits=1, best="low"),
    ]
    return Table(columns, rows, caption="Temporal coherence, in % (Table XI(a) in form)", label="detection-temporal")


def concentration_table(result: DetectionResult) -> Table | None:
    """Table XI(b); None when no method handed in maps."""
    rows = [
        {"method": m.name, "mean": 100 * c.mean, "sd": 100 * c.sd, "frames": c.frames}
        for m in result.methods
        if (c := m.concentration) is not None
    ]
    columns = [Column("method"), _percent("mean", "mean"), Column("sd", "SD", digits=1), Column("frames")]
    title = "Concentration ratio: share of a map's energy inside the polyp, in % (Table XI(b) in form)"
    return Table(columns, rows, caption=title, label="detection-concentration") if rows else None


def morphology_table(result: DetectionResult) -> Table | None:
    """Tables IX and X; None without Paris labels."""
    rows = []
    classes: dict[str, str] = {}
    for m in result.methods:
        row: dict[str, Any] = {"method": m.name}
        for r in m.morphology:
            classes.setdefault(r.paris, f"{r.paris} ({r.polyps} polyps, {r.instances} images)")
            row |= {f"{r.paris} p": 100 * r.precision, f"{r.paris} r": 100 * r.recall, f"{r.paris} f": 100 * r.f1}
            row[f"{r.paris} l"] = r.latency_frames
        rows.append(row)
    if not classes:
        return None
    columns = [Column("method")]
    for paris, title in classes.items():
        columns += [_percent(f"{paris} {k}", h, title) for k, h in (("p", "Prec"), ("r", "Rec"), ("f", "F1"))]
        if result.truth.kind == "videos":
            columns.append(Column(f"{paris} l", "Lat", digits=1, best="low", unit="frames", group=title))
    which = "X" if result.truth.kind == "stills" else "IX"
    return Table(
        columns,
        rows,
        caption=f"Paris morphology, in %; only frames with a polyp count (Table {which} in form)",
        label="detection-paris",
    )


def agreement_table(result: DetectionResult) -> Table | None:
    """Table V with the raters' agreement beside it."""
    if not result.agreement:
        return None
    frames = result.truth.frame_count
    rows = [
        {
            "challenge": CHALLENGES[a.challenge],
            "present": a.present,
            "share": 100 * a.present / frames,
            "undecided": a.undecided,
            "unanimous": 100 * a.unanimous,
            "kappa": a.fleiss_kappa,
            "alpha": a.krippendorff_alpha,
        }
        for a in result.agreement
    ]
    columns = [
        Column("challenge"),
        Column("present", "Frames"),
        Column("share", "of all", digits=2, unit="%"),
        Column("undecided"),
        Column("unanimous", digits=1, unit="%"),
        Column("kappa", "Fleiss κ", digits=2),
        Column("alpha", "Krippendorff α", digits=2),
    ]
    return Table(columns, rows, caption="Image challenges by majority (Table V in form)", label="detection-challenges")


def challenge_tables(result: DetectionResult) -> list[Table]:
    """Table VIII: with minus without the challenge in percentage points, one table per metric."""
    titles = {
        "precision": "Polyp frames: precision",
        "recall": "Polyp frames: recall",
        "f1": "Polyp frames: F1",
        "specificity": "Frames without polyp: specificity",
    }
    tables = []
    for metric, title in titles.items():
        rows = []
        for m in result.methods:
            found = [d for d in m.challenges if d.metric == metric]
            if found:
                rows.append({"method": m.name, **{d.challenge: (d.difference_pp, d.low_pp, d.high_pp) for d in found}})
        used = [c for c in CHALLENGES if any(c in row for row in rows)]
        if rows:
            columns = [Column("method"), *(Column(c, CHALLENGES[c], digits=1) for c in used)]
            caption = f"{title}, difference in percentage points (Table VIII in form)"
            tables.append(Table(columns, rows, caption=caption, label=f"detection-challenge-{metric}"))
    return tables


def alarm_table(result: DetectionResult) -> Table | None:
    """Alarm events by shortest duration; None without time stamps."""
    rows = []
    for m in result.methods:
        row: dict[str, Any] = {"method": m.name}
        for a in m.alarms:
            row[f"{a.tau_s} f"] = a.false_alarms_per_minute
            row[f"{a.tau_s} t"] = a.true_alarms
            row[f"{a.tau_s} p"] = f"{a.polyps_alarmed}/{a.polyps}"
        rows.append(row)
    if len(rows[0]) == 1:
        return None
    columns = [Column("method")]
    for tau_s in result.spec.alarm_taus_s:
        group = f"≥ {tau_s:g} s"
        columns.append(Column(f"{tau_s} f", "false per min", digits=2, best="low", group=group))
        columns += [Column(f"{tau_s} t", "true", group=group), Column(f"{tau_s} p", "polyps", group=group)]
    return Table(
        columns,
        rows,
        caption="Alarm events (beyond the paper)",
        label="detection-alarms",
        notes=("A false alarm is a run of frames with output and without any hit; it ends where a polyp is hit.",),
    )


def curve_table(result: DetectionResult) -> Table | None:
    """Areas and operating points of methods with confidences; None without any."""
    rows = []
    for m in result.methods:
        c = m.curves
        if c.is_curve:
            threshold, f1 = c.best_f1()
            row: dict[str, Any] = {"method": m.name, "ap": 100 * c.average_precision, "auc": 100 * c.presence_auc}
            row |= {f"at {r}": 100 * c.recall_at_fp_per_frame(r) for r in (0.01, 0.05, 0.1)}
            rows.append({**row, "f1": 100 * f1, "threshold": threshold})
    columns = [
        Column("method"),
        _percent("ap", "Average precision"),
        _percent("auc", "Presence AUC"),
        *(_percent(f"at {r}", f"≤ {r:g}", "Recall at false positives per frame") for r in (0.01, 0.05, 0.1)),
        _percent("f1", "Best F1"),
        Column("threshold", "at threshold", digits=3),
    ]
    notes = ("The best F1 is chosen on these very frames, so it flatters.",)
    caption = "Methods with confidences, in %"
    return Table(columns, rows, caption=caption, label="detection-curves", notes=notes) if rows else None


def search_table(search: SearchResult, *, metric: str = "f1", top: int = 5, group: str = "all") -> Table:
    """The best combinations of each strategy."""
    rows = []
    for strategy in STRATEGIES:
        for place, c in enumerate(search.ranked(strategy, metric, group=group)[:top], start=1):
            row: dict[str, Any] = {"strategy": strategy, "place": place, "methods": ", ".join(c.methods)}
            rows.append({**row, **vars(c.counts), **{k: 100 * v for k, v in c.metrics.items()}})
    columns = [Column("strategy"), Column("place"), Column("methods")]
    columns += [Column(k, k.upper()) for k in ("tp", "fp", "tn", "fn")]
    columns += [_percent(k, h) for k, h in (("precision", "Prec"), ("recall", "Rec"), ("specificity", "Spec"))]
    columns += [_percent("f1", "F1"), _percent("f2", "F2")]
    return Table(
        columns,
        rows,
        caption=f"Best combinations by {metric.upper()}, ratios in %, σ = {search.sigma}, ties: {search.ties}",
        label="detection-combinations",
        notes=("Chosen among all subsets on these very data, so the best ones flatter themselves.",),
    )
