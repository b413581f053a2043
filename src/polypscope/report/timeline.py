"""The timeline of a video as markup: one lane for each polyp, one for what was left out, a ruler of time.

Lanes are boxes placed by percentages, not a picture, so that text stays readable on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from polypscope.pipeline.overlay import colour_of
from polypscope.pipeline.results import Results
from polypscope.report.polyp_cards import clock, size_words

__all__ = ["timeline"]

Spans = Sequence[tuple[float, float]]
_STEPS_S = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)


def timeline(results: Results, known: Sequence[tuple[str, Spans]], words: Mapping[str, str]) -> str:
    """Markup of the timeline. known: further lanes with a name (where the truth is known). words: of the flags."""
    total = max(results.duration_s, 1e-6)
    lanes = []
    for name, spans in known:
        bars = "".join(
            _bar(a, b, total, "true", f"{name}: visible {clock(a)}–{clock(b)}") for a, b in _merge(spans, total)
        )
        lanes.append(_lane(escape(name), bars))
    for polyp in results.polyps:
        colour = "#{:02x}{:02x}{:02x}".format(*_ink(polyp.id))
        size = size_words(polyp.size)
        title = f"Polyp {polyp.id}, {size or 'not measured'}"
        bars = "".join(
            _bar(a, b, total, "seen", f"{title}: {clock(a)}–{clock(b)}", colour) for a, b in _merge(polyp.seen, total)
        )
        bars += (
            f'<i class="alarm" style="left:{_percent(polyp.alarm_s, total)}" title="alarm {clock(polyp.alarm_s)}"></i>'
        )
        for frame in polyp.best[:1]:
            at = _percent(frame.pts_s, total)
            bars += f'<i class="best" style="left:{at}" title="best frame {clock(frame.pts_s)}"></i>'
        lanes.append(_lane(f'<a href="#polyp-{polyp.id}">polyp {polyp.id}</a>', bars, size))
    out = "".join(
        _bar(a, b, total, f"flag {escape(flag)}", f"{words.get(flag, flag)}: {clock(a)}–{clock(b)}")
        for flag, spans in results.flag_spans.items()
        for a, b in _merge(spans, total)
    )
    out += "".join(
        f'<i class="cut" style="left:{_percent(t, total)}" title="scene cut {clock(t)}"></i>'
        for t in results.cuts_s[:400]
    )
    lanes.append(_lane("left out", out))
    keys = "".join(
        f'<span><b class="{kind}"></b>{text}</span>'
        for kind, text in [
            *([("true", "truth: the polyp is in the picture")] if known else []),
            ("alarm", "alarm starts"),
            ("best", "best frame"),
            *((f"flag {escape(flag)}", escape(words.get(flag, flag))) for flag in results.flag_spans),
            *([("cut", "scene cut")] if results.cuts_s else []),
        ]
    )
    return (
        f'<div class="timeline" role="img" aria-label="{escape(_spoken(results), quote=True)}">{_axis(total)}'
        f'{"".join(lanes)}</div><p class="keys">{keys}</p>'
    )


def _spoken(results: Results) -> str:
    told = [f"polyp {p.id} from {clock(p.first_s)} to {clock(p.last_s)}" for p in results.polyps]
    return "Timeline: " + ("; ".join(told) or "no polyp")


def _ink(polyp: int) -> tuple[int, int, int]:
    """The polyp's colour, dark enough for a bar on white paper."""
    r, g, b = colour_of(polyp)
    return (90, 100, 115) if (r, g, b) == (255, 255, 255) else (int(r * 0.8), int(g * 0.8), int(b * 0.8))


def _percent(t: float, total: float) -> str:
    return f"{100 * min(max(t / total, 0), 1):.3f}%"


def _merge(spans: Spans, total: float) -> list[tuple[float, float]]:
    """Stretches that no screen could tell apart, joined: an hour of video makes no more boxes than a minute."""
    merged: list[tuple[float, float]] = []
    for a, b in spans:
        if merged and a - merged[-1][1] < total / 800:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return merged


def _bar(a: float, b: float, total: float, kind: str, title: str, colour: str = "") -> str:
    width = f"max(2px,{100 * (b - a) / total:.3f}%)"
    paint = f";background:{colour}" if colour else ""
    style = f"left:{_percent(a, total)};width:{width}{paint}"
    return f'<i class="{kind}" style="{style}" title="{escape(title, quote=True)}"></i>'


def _lane(name: str, bars: str, note: str = "") -> str:
    return (
        f'<div class="lane"><span class="name">{name}</span><div class="track">{bars}</div>'
        f'<span class="say">{note}</span></div>'
    )


def _axis(total: float) -> str:
    step = next((s for s in _STEPS_S if total / s <= 10), _STEPS_S[-1])
    marks = []
    n = 0
    while n * step <= total:
        odd = " odd" if n % 2 else ""
        # A number at the very end would stick out of the page.
        number = f"<b>{_mark(n * step)}</b>" if n * step <= 0.93 * total else ""
        marks.append(f'<i class="tick{odd}" style="left:{_percent(n * step, total)}">{number}</i>')
        n += 1
    return _lane("", "".join(marks)).replace('class="lane"', 'class="lane axis"')


def _mark(t: float) -> str:
    """A moment on the ruler; only steps of less than a second need tenths."""
    return clock(t) if t % 1 or t >= 60 else f"0:{round(t):02d}"
