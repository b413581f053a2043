"""A polyp as a card: its size on a scale with the interval, when it was seen, and its best frames with a ruler."""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from html import escape

import numpy as np

from polypscope.pipeline.overlay import colour_of
from polypscope.pipeline.results import BestFrame, PolypResult
from polypscope.records import SizeEstimate

__all__ = ["clock", "polyp_card", "size_words"]

_BIN_WORDS = {"<=5": "diminutive, ≤ 5 mm", "5-10": "small, 5–10 mm", ">=10": "large, ≥ 10 mm"}


def clock(t: float) -> str:
    """Seconds as a person reads them.

    >>> clock(3.26), clock(75), clock(3725)
    ('0:03.3', '1:15', '1:02:05')
    """
    if t < 60:
        return f"0:{t:04.1f}"
    minutes, seconds = divmod(round(t), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def size_words(size: SizeEstimate | None) -> str:
    """A size with its interval.

    >>> size_words(SizeEstimate(6.24, 5, (5.1, 7.6), 0.9, "caliper"))
    '6.2 mm (5.1–7.6)'
    >>> size_words(SizeEstimate(6.24, 5, (5.1, 7.6), 0.9, "caliper", ("occluded",)))
    'at least 6.2 mm'
    """
    if size is None:
        return ""
    if size.partial:
        return f"at least {size.long_mm:.1f} mm"
    interval = "" if size.interval_mm is None else f" ({size.interval_mm[0]:.1f}–{size.interval_mm[1]:.1f})"
    return f"{size.long_mm:.1f} mm{interval}"


def polyp_card(polyp: PolypResult, pictures: int, true_mm: float | None = None) -> str:
    """Markup of one card. pictures: how many of its best frames are embedded."""
    colour = "#{:02x}{:02x}{:02x}".format(*colour_of(polyp.id))
    shots = "".join(_shot(frame, polyp, colour) for frame in polyp.best[:pictures])
    if not shots:
        shots = '<p class="small">Its pictures are in the folder thumbnails, to keep this page small.</p>'
    facts = {
        "first seen": f"{clock(polyp.first_s)} (frame {polyp.first_index})",
        "alarm": f"{clock(polyp.alarm_s)} (frame {polyp.alarm_index})",
        "last seen": f"{clock(polyp.last_s)} (frame {polyp.last_index})",
        "seen in": f"{polyp.frames} frames, {len(polyp.seen)} stretch{'es' if len(polyp.seen) != 1 else ''}",
        "confidence": f"{100 * polyp.confidence:.0f} %",
    }
    if polyp.size is not None:
        facts["short axis"] = f"{polyp.size.short_mm:.1f} mm"
        facts["measured in"] = f"{polyp.measured_frames} frames"
    rows = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
    return (
        f'<article class="polyp" id="polyp-{polyp.id}"><h3><b style="background:{colour}"></b>Polyp {polyp.id}</h3>'
        f"{_size(polyp, true_mm)}<dl>{rows}</dl>"
        f'<div class="shots">{shots}</div></article>'
    )


def _size(polyp: PolypResult, true_mm: float | None) -> str:
    size = polyp.size
    if size is None:
        return f'<p class="size none">not measured<small>{escape(polyp.reason)}</small></p>'
    words, least, interval = _BIN_WORDS[size.bin], "", "no interval"
    if size.partial:
        # An interval would say how far up it may go, which nobody saw.
        words, least, interval = "no frame shows the whole of it", "at least ", "upper limit unknown"
        size = replace(size, interval_mm=None)
    elif size.interval_mm:
        interval = f"{round(100 * size.level)} % interval {size.interval_mm[0]:.1f}–{size.interval_mm[1]:.1f} mm"
    flags = f"<small class=flags>{escape(', '.join(size.flags).replace('_', ' '))}</small>" if size.flags else ""
    truth = f"<small>true size {true_mm:.1f} mm</small>" if true_mm is not None else ""
    return (
        f'<p class="size">{least}{size.long_mm:.1f} mm<small>{interval}</small><small>{words}</small>{truth}{flags}</p>'
        f"{_scale(size, true_mm)}"
    )


def _scale(size: SizeEstimate, true_mm: float | None) -> str:
    """A scale of millimetres with the three bins, the interval, the estimate and, where known, the truth."""
    high = size.interval_mm[1] if size.interval_mm else size.long_mm
    top = max(15.0, 5 * math.ceil(1.1 * max(high, true_mm or 0) / 5))

    def at(mm: float) -> str:
        return f"{100 * min(mm / top, 1):.2f}%"

    marks = "".join(f'<i class="mm" style="left:{at(mm)}"><b>{mm}</b></i>' for mm in range(0, int(top) + 1, 5))
    interval = ""
    if size.interval_mm:
        low, high = size.interval_mm
        interval = f'<i class="interval" style="left:{at(low)};width:calc({at(high)} - {at(low)})"></i>'
    truth = f'<i class="truth" style="left:{at(true_mm)}" title="true size"></i>' if true_mm is not None else ""
    return (
        f'<div class="scale" role="img" aria-label="size on a scale">{marks}'
        f'<i class="bin" style="left:0;width:{at(5)}"></i><i class="bin two" style="left:{at(5)};width:{at(5)}"></i>'
        f'<i class="bin three" style="left:{at(10)};right:0"></i>{interval}'
        f'<i class="point" style="left:{at(size.long_mm)}"></i>{truth}</div>'
    )


def _shot(frame: BestFrame, polyp: PolypResult, colour: str) -> str:
    height, width = frame.picture_shape
    data = base64.b64encode(frame.jpeg).decode("ascii")
    paths = "".join(f'<path d="{_path(points)}" stroke="{colour}"/>' for points in frame.outlines)
    # One number for one polyp; but where only a part of it is in the picture, that part has a size of its own.
    size = frame.size if frame.truncated or polyp.size is None else polyp.size
    ruler = _ruler(frame, size, width, height) if size is not None else ""
    words = [f"{clock(frame.pts_s)}, frame {frame.index}", f"score {frame.score:.2f}"]
    if frame.size is not None:
        words.append(f"this frame alone {frame.size.long_mm:.1f} mm")
    if frame.distance_mm is not None:
        words.append(f"{frame.distance_mm:.0f} mm away")
    if frame.truncated:
        words.append("reaches the edge of the picture")
    caption = escape(", ".join(words))
    return (
        f'<figure class="shot"><div><img src="data:image/jpeg;base64,{data}" width="{width}" height="{height}" '
        f'alt="Polyp {polyp.id} at {clock(frame.pts_s)}"><svg viewBox="0 0 {width} {height}">'
        f"<g class=outline>{paths}</g>{ruler}</svg></div><figcaption>{caption}</figcaption></figure>"
    )


def _path(points: tuple[tuple[float, float], ...]) -> str:
    smooth = np.asarray(points)
    if len(smooth) >= 6:  # the grid of the working image is coarser than the picture
        smooth = 0.25 * np.roll(smooth, 1, 0) + 0.5 * smooth + 0.25 * np.roll(smooth, -1, 0)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in smooth) + "Z"


def _ruler(frame: BestFrame, size: SizeEstimate, width: int, height: int) -> str:
    """A ruler beside the outline, along its longest side, divided in millimetres at the polyp's distance."""
    points = np.array([p for line in frame.outlines for p in line])
    if len(points) < 2:
        return ""
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    a, b = (points[i] for i in np.unravel_index(int(distances.argmax()), distances.shape))
    length = float(np.linalg.norm(b - a))
    if length < 12:
        return ""
    along = (b - a) / length
    across = np.array([-along[1], along[0]])
    side = (points - a) @ across
    # The side of the outline that has more room in the picture.
    middle = (a + b) / 2
    offsets = (float(side.max()) + 9, float(side.min()) - 9)
    offset = max(offsets, key=lambda o: _room(middle + across * o, width, height))
    sign = 1 if offset > 0 else -1
    start, stop = a + across * offset, b + across * offset
    lines = [f"M{start[0]:.1f} {start[1]:.1f}L{stop[0]:.1f} {stop[1]:.1f}"]
    per_mm = length / size.long_mm
    step = 1 if per_mm >= 4 else 5
    for mm in range(0, math.floor(size.long_mm) + 1, step):
        foot = start + along * (mm * per_mm)
        tip = foot + across * sign * (9 if mm % 5 == 0 else 5)
        lines.append(f"M{foot[0]:.1f} {foot[1]:.1f}L{tip[0]:.1f} {tip[1]:.1f}")
    lines.append(f"M{stop[0]:.1f} {stop[1]:.1f}l{across[0] * sign * 9:.1f} {across[1] * sign * 9:.1f}")
    # Far enough that the number, about 72 by 18 pixels, stays clear of the ticks whatever their direction.
    clear = 15 + 36 * abs(across[0]) + 10 * abs(across[1])
    text = (start + stop) / 2 + across * sign * clear + (0, 6)
    x = min(max(float(text[0]), 34), width - 34)
    y = min(max(float(text[1]), 16), height - 8)
    path = "".join(lines)
    return (
        f'<g class="ruler"><path class="halo" d="{path}"/><path d="{path}"/>'
        f'<text x="{x:.1f}" y="{y:.1f}">{size.long_mm:.1f} mm</text></g>'
    )


def _room(point: np.ndarray, width: int, height: int) -> float:
    x, y = point
    return float(min(x, y, width - x, height - y))
