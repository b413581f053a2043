"""The models that ship, and those that were exported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ModelInfo", "ModelList", "info", "list_models"]


@dataclass(frozen=True)
class ModelList:
    """Cards (`runtime.cards.ModelCard`) of the shipped weights."""

    cards: tuple[Any, ...]


@dataclass(frozen=True)
class ModelInfo:
    """One card (`runtime.cards.ModelCard`)."""

    card: Any


def list_models() -> ModelList:
    """List the weights that ship, with their size, input and best-known scores."""
    from polypscope.runtime.cards import list_cards
    from polypscope.runtime.console import say, show_table
    from polypscope.runtime.runlog import DISCLAIMER
    from polypscope.runtime.segmenter import DEFAULT_SEGMENTER, DEFAULT_STILLS

    cards = tuple(list_cards())
    show_table(
        "Shipped models",
        ("name", "kind", "input", "MB", "streaming", "mean Dice"),
        [
            (
                card.name + (" (interim)" if card.interim else ""),
                card.kind,
                f"{card.input.width}×{card.input.height}",
                f"{card.bytes / 1e6:.1f}",
                "yes" if card.streaming else "no",
                ", ".join(f"{s.data} {s.value:.3f}" for s in card.scores if s.metric == "mean Dice"),
            )
            for card in cards
        ],
    )
    say(f"Of the segmenters this one runs unless --model names another: {DEFAULT_SEGMENTER}.")
    say(f"`polypscope predict` looks at single pictures with {DEFAULT_STILLS}, unless it is to be fast.")
    say("`polypscope models info NAME` shows a whole card.")
    say(DISCLAIMER)
    return ModelList(cards)


def info(name: str) -> ModelInfo:
    """Show a model's whole card: data, licences, recipe, scores and what it fails on.

    Parameters
    ----------
    name
        Name of a shipped model, or path of an exported .onnx file or its card.
    """
    from polypscope.runtime.cards import find_card
    from polypscope.runtime.console import say, show_table
    from polypscope.runtime.runlog import DISCLAIMER

    card = find_card(name)
    card.check_file()
    say(f"{card.name}: {card.summary}")
    if card.interim:
        say("Interim weights: a stand-in until better ones ship.")
    show_table(
        "Card",
        ("field", "value"),
        [
            ("kind", card.kind),
            ("architecture", card.architecture),
            (
                "input",
                f"{card.input.width}×{card.input.height} RGB, ({'value'} - {card.input.mean:g}) / {card.input.std:g}",
            ),
            ("streaming", "yes" if card.streaming else "no"),
            ("threshold", card.threshold),
            ("weights", f"{card.storage}, computed in {'int8' if card.storage == 'int8' else 'float32'}"),
            ("file", f"{card.file}, {card.bytes / 1e6:.1f} MB, SHA-256 {card.sha256[:16]}… (checked)"),
            ("licence", card.licence),
            ("recipe", card.recipe),
            ("training time", card.training_time),
            ("speed", card.speed),
        ],
    )
    if card.data:
        rows = [(item.name, item.images, item.licence, item.citation) for item in card.data]
        show_table("Trained on", ("data", "images", "licence", "citation"), rows)
    if card.scores:
        rows = [
            (s.data, s.metric, round(s.value, 4), s.images, s.protocol, "yes" if s.used_to_choose else "no")
            for s in card.scores
        ]
        show_table("Scores", ("data", "metric", "value", "images", "protocol", "used to choose"), rows)
    for title, lines in (("Fails on", card.fails_on), ("Notes", card.notes)):
        if lines:
            say(f"{title}:")
            for line in lines:
                say(f"  - {line}")
    say(DISCLAIMER)
    return ModelInfo(card)
