"""The report of one analysed video: what was found, when, how large, how sure, what could not be measured and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polypscope.pipeline.results import PolypResult, Results
from polypscope.report.page import Facts, Fold, Note, Paragraph, Raw, Section, _asset, page, write_page
from polypscope.report.polyp_cards import clock, polyp_card, size_words
from polypscope.report.tables import Column, Table
from polypscope.report.timeline import timeline

__all__ = ["FLAG_WORDS", "TrueMatch", "analysis_page", "write_analysis"]

_PICTURE_BUDGET = 11_000_000  # bytes of JPEG inside the page: with base64 and the rest it stays below 20 MB

FLAG_WORDS = {
    "frozen": "frozen image, nothing new to see",
    "dark": "too dark",
    "outside": "not mucosa: outside the body or a screen",
    "overexposed": "overexposed",
    "blurred": "blurred",
}
_LEFT_OUT = ("frozen", "dark", "outside")

LIMITS = (
    "It may miss polyps and may mark folds, bubbles, stool or instruments. Nothing here replaces looking.",
    "Sizes come from a depth network that was trained on simulated colons. On real recordings they were not validated; "
    "their intervals hold for data like those they were calibrated on.",
    "A size is that of the visible outline. A polyp that is partly outside the picture or behind a fold is larger.",
    "Confidence is the segmenter's score over the best half of the frames, not a probability of disease.",
    "One track is meant to be one polyp; a polyp that is met again after a long time may get a second number.",
)


@dataclass(frozen=True)
class TrueMatch:
    """A polyp that is known to be in the video (simulated), and the number under which it was found, if it was."""

    id: int
    size_mm: float
    paris: str
    first_s: float
    last_s: float
    seen: tuple[tuple[float, float], ...]
    found_as: tuple[int, ...]
    latency_frames: int | None


def write_analysis(
    path: Path,
    results: Results,
    *,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    truth: Sequence[TrueMatch] | None = None,
    speed: str = "",
) -> Path:
    """Write report.html."""
    title, sections, lead = analysis_page(results, settings=settings, notes=notes, truth=truth, speed=speed)
    return write_page(path, title, sections, lead=lead)


def analysis_page(
    results: Results,
    *,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    truth: Sequence[TrueMatch] | None = None,
    speed: str = "",
) -> tuple[str, list[Section], str]:
    """Title, sections and lead of the report."""
    sections = [Section("Summary", _summary(results, truth, speed))]
    if truth is not None:
        sections.append(Section("Truth beside estimate", _truth(results, truth)))
    known = () if truth is None else tuple((f"true {t.id}", t.seen) for t in truth)
    sections.append(Section("Timeline", [Raw(timeline(results, known, FLAG_WORDS))]))
    sections.append(Section("Polyps", _cards(results, truth)))
    sections.append(Section("Not measured, and why", _unmeasured(results)))
    sections.append(Section("Left out", _left_out(results, notes)))
    sections.append(Section("Settings", [_settings(settings)]))
    sections.append(
        Section("Limits of use", [Note("Read this before you use a number of this page.", LIMITS, "warning")])
    )
    return f"Analysis of {results.source}", sections, _lead(results)


def _lead(results: Results) -> str:
    count = len(results.polyps)
    found = "No polyp was found" if count == 0 else f"{count} polyp{'s were' if count > 1 else ' was'} found"
    height, width = results.shape
    return f"{found} in {clock(results.duration_s)} of video ({results.frames} frames of {width}×{height} analysed)."


def _summary(results: Results, truth: Sequence[TrueMatch] | None, speed: str) -> list[Any]:
    sized = [p for p in results.polyps if p.size is not None]
    bins = Counter(p.size.bin for p in sized if p.size is not None and not p.size.partial)
    in_part = sum(p.size.partial for p in sized if p.size is not None)
    facts = {"Polyps found": str(len(results.polyps))}
    if sized:
        largest = max(sized, key=lambda p: p.size.long_mm if p.size else 0)
        facts["Largest"] = size_words(largest.size)
        facts["≤ 5 · 5–10 · ≥ 10 mm"] = f"{bins['<=5']} · {bins['5-10']} · {bins['>=10']}"
        if in_part:
            facts["Never seen whole"] = str(in_part)
    elif results.polyps:
        facts["Measured"] = "none"
    facts["Video"] = clock(results.duration_s)
    left_out = sum(results.flag_counts.get(flag, 0) for flag in _LEFT_OUT)
    facts["Frames left out"] = f"{100 * left_out / results.frames:.1f} %" if results.frames else "–"
    if truth is not None:
        facts["True polyps found"] = f"{sum(bool(t.found_as) for t in truth)} of {len(truth)}"
    if speed:
        facts["Speed"] = speed
    parts: list[Any] = [Raw(f"<style>{_asset('analysis.css')}</style>"), Facts(facts)]
    if not results.polyps:
        parts.append(Paragraph("No alarm was raised. The timeline shows which stretches were analysed."))
    return parts


def _truth(results: Results, truth: Sequence[TrueMatch]) -> list[Any]:
    by_id = {p.id: p for p in results.polyps}
    rows = []
    for t in truth:
        found = [by_id[n] for n in t.found_as if n in by_id]
        main = max(found, key=lambda p: p.frames) if found else None
        size = None if main is None else main.size
        interval = None if size is None else size.interval_mm
        rows.append(
            {
                "true": f"true {t.id}",
                "paris": t.paris,
                "size": t.size_mm,
                "found": ", ".join(f"polyp {p.id}" for p in found) or "missed",
                "estimate": None if size is None else (size.long_mm, *interval) if interval else size.long_mm,
                "error": "–" if size is None else f"{size.long_mm - t.size_mm:+.1f}",
                "inside": "–" if interval is None else "yes" if interval[0] <= t.size_mm <= interval[1] else "no",
                "latency": t.latency_frames,
            }
        )
    matched = {n for t in truth for n in t.found_as}
    false = [p for p in results.polyps if p.id not in matched]
    table = Table(
        [
            # What matters first: a narrow screen shows the first columns and scrolls to the others.
            Column("true", "polyp"),
            Column("size", "true size", digits=1, unit="mm"),
            Column("estimate", "estimate", digits=1, unit="mm"),
            Column("inside", "truth in interval"),
            Column("error", "error", unit="mm"),
            Column("found", "found as"),
            Column("latency", "latency", digits=0, unit="frames"),
            Column("paris", "Paris"),
        ],
        rows,
        caption="The video is simulated, so the truth is exact. Latency counts from the first frame in which the polyp "
        "covers a thousandth of the picture to its alarm.",
    )
    extra = ", ".join(f"polyp {p.id} at {clock(p.first_s)}" for p in false)
    return [table, Paragraph(f"False alarms: {extra}." if false else "No false alarm was raised.")]


def _cards(results: Results, truth: Sequence[TrueMatch] | None) -> list[Any]:
    if not results.polyps:
        return [Paragraph("None.")]
    true_mm = {n: t.size_mm for t in truth or () for n in t.found_as}
    embedded = _within_budget(results.polyps)
    cards = [polyp_card(p, embedded[p.id], true_mm.get(p.id)) for p in results.polyps]
    switch = '<label class="switch"><input type="checkbox" id="marks" checked> outline and ruler</label>'
    script = (
        "<script>document.getElementById('marks').addEventListener('change',"
        "e=>document.body.classList.toggle('bare',!e.target.checked))</script>"
    )
    words = Paragraph(
        "Rulers show a polyp's size as all its frames together give it; the line under a picture says what that frame "
        "alone gives."
    )
    some = [words] if any(p.size is not None for p in results.polyps) else []
    return [*some, Raw(switch), *map(Raw, cards), Raw(script)]


def _within_budget(polyps: Sequence[PolypResult]) -> dict[int, int]:
    """How many pictures of each polyp go into the page: everyone's best first, then seconds, then thirds."""
    chosen = {p.id: 0 for p in polyps}
    left = _PICTURE_BUDGET
    for rank in range(max((len(p.best) for p in polyps), default=0)):
        for p in polyps:
            if rank < len(p.best) and chosen[p.id] == rank and len(p.best[rank].jpeg) <= left:
                left -= len(p.best[rank].jpeg)
                chosen[p.id] += 1
    return chosen


def _unmeasured(results: Results) -> list[Any]:
    reasons = Counter(p.reason for p in results.polyps if p.size is None)
    doubtful = [p for p in results.polyps if p.size is not None and p.size.flags]
    parts: list[Any] = []
    if reasons:
        hints = {
            "no camera was given": "sizes in mm need the camera: give --camera camera.json (made by `polypscope "
            "calibrate`) or --fov DEGREES",
            "the model has no depth": "sizes in mm need a depth model, and none is installed",
        }
        items = []
        for reason, count in reasons.most_common():
            ids = ", ".join(str(p.id) for p in results.polyps if p.size is None and p.reason == reason)
            items.append(f"Polyp{'s' if count > 1 else ''} {ids}: {hints.get(reason, reason)}.")
        parts.append(Note("Without a size:", items))
    if doubtful:
        items = [f"Polyp {p.id}: {', '.join(p.size.flags).replace('_', ' ')}." for p in doubtful if p.size]
        parts.append(Note("With a size to be trusted less:", items))
    return parts or [
        Paragraph("Every polyp was measured without a remark." if results.polyps else "Nothing to measure.")
    ]


def _left_out(results: Results, notes: Sequence[str]) -> list[Any]:
    rows = [
        {
            "what": FLAG_WORDS.get(flag, flag),
            "frames": count,
            "share": 100 * count / max(results.frames, 1),
            "then": "not analysed" if flag in _LEFT_OUT else "analysed, trusted less",
        }
        for flag, count in results.flag_counts.items()
    ]
    columns = [
        Column("what", "reason"),
        Column("frames", digits=0),
        Column("share", digits=1, unit="%"),
        Column("then", "consequence"),
    ]
    parts: list[Any] = [
        Table(columns, rows, copyable=False) if rows else Paragraph("Every frame was usable."),
        Paragraph(
            "In every frame the border around the field of view, on-screen text and inset pictures are left out. "
            f"{len(results.cuts_s) or 'No'} scene cut{'' if len(results.cuts_s) == 1 else 's'}"
            + (f" at {', '.join(clock(t) for t in results.cuts_s[:12])}" if results.cuts_s else "")
            + (" …" if len(results.cuts_s) > 12 else "")
            + "."
        ),
    ]
    if notes:
        parts.append(Note("About the source:", notes, "warning"))
    return parts


def _settings(settings: Mapping[str, Any]) -> Fold:
    rows = [{"name": name, "value": "–" if value is None else str(value)} for name, value in settings.items()]
    table = Table([Column("name", "setting"), Column("value")], rows, copyable=False)
    return Fold("Everything this result depends on", [table])


def render(results: Results, **options: Any) -> str:
    """The page as text."""
    title, sections, lead = analysis_page(results, **options)
    return page(title, sections, lead=lead)
