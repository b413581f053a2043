"""The worst frames of each method, with truth and detections drawn: what to look at after the numbers.

Neighbouring frames look alike, so a run of misses (or of false alarms) is shown once, by its middle frame, and long
runs come first. Pictures are SVG over the frame, or over a plain ground when no images were given.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.evaluation.detection.alarms import find_runs
from polypscope.evaluation.detection.study import DetectionResult, MethodResult
from polypscope.evaluation.detection.tables import TruthTable
from polypscope.report.page import Gallery, Paragraph, Part, Raw, Section, write_page

__all__ = ["Worst", "frame_svg", "worst_frames", "write_detection_gallery"]

ImageReader = Callable[[int], NDArray[np.uint8] | None]
"""From a frame row to its RGB image (H, W, 3), or None where there is none."""


@dataclass(frozen=True)
class Worst:
    """A run of frames with one kind of fault, shown by the frame `row`."""

    row: int
    kind: str
    first: int
    last: int
    frames: int


def worst_frames(result: DetectionResult, method: MethodResult, *, most: int = 12) -> list[Worst]:
    """The longest runs of misses and of false alarms, half of each where there are enough of both."""
    truth, counts = result.truth, method.counts
    faults = {"miss": counts.fn > 0, "false alarm": (counts.fp > 0) & (counts.tp == 0) & (counts.fn == 0)}
    found: dict[str, list[Worst]] = {}
    for kind, active in faults.items():
        runs = find_runs(truth, active)
        lengths = runs.last - runs.first + 1
        # Among runs of one length the surest and most numerous false positives come first.
        surest = np.zeros(truth.frame_count)
        np.maximum.at(surest, method.detections.frame, np.nan_to_num(method.detections.score))
        middle = (runs.first + runs.last) // 2
        order = np.lexsort((runs.first, -surest[middle], -counts.fp[middle], -lengths))
        found[kind] = [
            Worst(
                row=int(runs.first[i] + runs.last[i]) // 2,
                kind=kind,
                first=int(truth.index[runs.first[i]]),
                last=int(truth.index[runs.last[i]]),
                frames=int(lengths[i]),
            )
            for i in order[:most]
        ]
    half = most // 2
    misses, alarms = found["miss"], found["false alarm"]
    take = max(half, most - len(alarms))
    return [*misses[:take], *alarms[: most - min(take, len(misses))]]


def frame_svg(
    truth: TruthTable, method: MethodResult, row: int, image: NDArray[np.uint8] | None = None, *, width_px: int = 440
) -> str:
    """One frame: polyps outlined in white on black, hits as green circles, false positives as orange crosses."""
    height, width = int(truth.height_px[row]), int(truth.width_px[row])
    unit = width / width_px
    parts = []
    if image is None:
        parts.append(f'<rect width="{width}" height="{height}" fill="#2b2f36"/>')
    else:
        parts.append(f'<image width="{width}" height="{height}" href="{_jpeg(image, width_px)}"/>')
    for polyp in range(int(truth.first[row]), int(truth.first[row + 1])):
        x0, y0, mask = truth.regions.mask(polyp)
        outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_TC89_L1)
        for outline in outlines:
            points = " ".join(f"{x + x0 + 0.5:g},{y + y0 + 0.5:g}" for x, y in outline[:, 0])
            for shade, thickness in (("#000", 4.0), ("#fff", 2.0)):
                parts.append(
                    f'<polygon points="{points}" fill="none" stroke="{shade}" stroke-width="{thickness * unit:.2f}"/>'
                )
    table = method.detections
    r = 6 * unit
    for d in range(int(table.first[row]), int(table.first[row + 1])):
        x, y = float(np.clip(table.x[d], 0, width)), float(np.clip(table.y[d], 0, height))
        score = "" if np.isnan(table.score[d]) else f", confidence {table.score[d]:.2f}"
        place = f"({table.x[d]:g}, {table.y[d]:g}){score}"
        if method.matches.hit[d]:
            mark = f'<circle cx="{x:g}" cy="{y:g}" r="{r:.2f}" fill="none"'
            colour, word = "#35d07f", "hit"
        else:
            left, right, top, bottom = (f"{v:.2f}" for v in (x - r, x + r, y - r, y + r))
            mark = f'<path d="M{left} {top}L{right} {bottom}M{left} {bottom}L{right} {top}"'
            colour, word = "#ff9f1c", "false positive"
        under = f'{mark} stroke="#000" stroke-width="{4.5 * unit:.2f}"/>'
        over = f'{mark} stroke="{colour}" stroke-width="{2.2 * unit:.2f}"><title>{word} at {place}</title>'
        parts += [under, over + ("</circle>" if mark.startswith("<circle") else "</path>")]
    name = escape(truth.frame_names[row] if truth.frame_names else str(row), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="frame {name}" '
        f'style="display:block;width:100%;height:auto;border-radius:6px">{"".join(parts)}</svg>'
    )


def _jpeg(image: NDArray[np.uint8], width_px: int) -> str:
    height, width = image.shape[:2]
    small = cv2.resize(image, (width_px, max(1, round(height * width_px / width))), interpolation=cv2.INTER_AREA)
    _, data = cv2.imencode(".jpg", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 82])
    return "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode("ascii")


def write_detection_gallery(
    path: Path, result: DetectionResult, *, most: int = 12, image: ImageReader | None = None, footer: str = ""
) -> Path:
    """Write the page of the worst frames, `most` for each method."""
    truth = result.truth
    sections = []
    for method in result.methods:
        cards: list[Part] = []
        for worst in worst_frames(result, method, most=most):
            picture = frame_svg(truth, method, worst.row, image(worst.row) if image is not None else None)
            where = f"{truth.videos[truth.video[worst.row]]}, frame {truth.index[worst.row]}"
            if truth.kind == "stills":
                where = truth.frame_names[worst.row]
            span = f" · {worst.frames} frames ({worst.first}–{worst.last})" if worst.frames > 1 else ""
            n = method.counts
            counted = f"TP {n.tp[worst.row]}, FP {n.fp[worst.row]}, FN {n.fn[worst.row]}"
            text = escape(f"{worst.kind}: {where}{span} · {counted}")
            cards.append(Raw(f'<figure class="picture">{picture}<figcaption>{text}</figcaption></figure>'))
        parts: list[Part] = [Gallery(cards)] if cards else [Paragraph("No miss and no false alarm.")]
        sections.append(Section(method.name, parts))
    lead = (
        "The longest runs of misses and false alarms, each by its middle frame. White outline: polyp; green circle: "
        "hit; orange cross: false positive."
    )
    if image is None:
        lead += " Frames are drawn on a plain ground; give --images to see them."
    return write_page(path, "Worst frames", sections, lead=lead, footer=footer)
