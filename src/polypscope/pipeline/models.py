"""The models of a run: what sees, what ranges, and a text that says which weights they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polypscope.pipeline.see import Ranger, Seer
from polypscope.runtime.segmenter import Segmenter

__all__ = ["Models", "load_models"]


@dataclass(frozen=True)
class Models:
    """threshold: the probability from which a pixel belongs to a polyp, as the segmenter's card says."""

    seer: Seer
    ranger: Ranger | None
    identity: str
    threshold: float


def load_models(name: str | Path | None = None, *, threads: int = 2) -> Models:
    """Open the shipped models, or the segmenter that is named (a shipped name or the path of an ONNX file)."""
    segmenter = Segmenter.load(name, threads=threads)
    card = segmenter.card
    return Models(segmenter, None, f"{card.name} {card.sha256[:12]}", card.threshold)
