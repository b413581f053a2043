"""The models of a run: what sees, what ranges, and a text that says which weights they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polypscope.pipeline.see import Ranger, Seer
from polypscope.runtime.cards import WEIGHTS, load_card
from polypscope.runtime.depth import DEFAULT_DEPTH, DepthEstimator
from polypscope.runtime.segmenter import Segmenter

__all__ = ["Models", "load_models"]


@dataclass(frozen=True)
class Models:
    """threshold: the probability from which a pixel belongs to a polyp, as the segmenter's card says.

    ranger is None when no depth head goes with this segmenter; then nothing is measured, and the report says so.
    """

    seer: Seer
    ranger: Ranger | None
    identity: str
    threshold: float


def load_models(name: str | Path | None = None, *, threads: int = 2) -> Models:
    """Open the shipped models, or the segmenter that is named (a shipped name or the path of an ONNX file)."""
    segmenter = Segmenter.load(name, threads=threads)
    card = segmenter.card
    identity = f"{card.name} {card.sha256[:12]}"
    ranger = _depth_for(segmenter, threads)
    if ranger is not None:
        identity += f" + {ranger.card.name} {ranger.card.sha256[:12]}"
    return Models(segmenter, ranger, identity, card.threshold)


def _depth_for(segmenter: Segmenter, threads: int) -> DepthEstimator | None:
    """The depth head that reads this segmenter's features, if there is one: beside its file, or among the shipped."""
    folders = [segmenter.card.weights_path.parent, WEIGHTS]
    for path in dict.fromkeys(folder / f"{DEFAULT_DEPTH}.json" for folder in folders):
        if path.is_file() and load_card(path).reads(segmenter.card):
            return DepthEstimator.load(segmenter, path, threads)
    return None
