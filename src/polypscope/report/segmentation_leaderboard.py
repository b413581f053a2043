"""Printed results of others beside those measured here: facts from the papers' tables, always marked as published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class PublishedScore:
    """One method on one subset, as printed; `table` is the number of the table in the paper."""

    method: str
    subset: str
    table: int
    values: dict[str, float]


@dataclass(frozen=True)
class Published:
    """The published rows of one protocol and where they come from."""

    source: str
    note: str
    scores: tuple[PublishedScore, ...]
    attribute_structure: tuple[PublishedScore, ...] = ()
    clips: Mapping[str, int] = field(default_factory=dict)

    def on(self, subset: str) -> list[PublishedScore]:
        """Rows for a subset, by any of its spellings."""
        return [score for score in self.scores if score.subset == subset_key(subset)]

    def incomparable(self, subset: str, clips: int) -> str:
        """A sentence when the number of clips is not the paper's, so that ranks mean little; else an empty text."""
        full = self.clips.get(subset_key(subset))
        if full is None or full == clips:
            return ""
        return f"{clips} clips were scored here, {full} in the paper: this is not the same test, so ranks mean little."

    def attributes_on(self, subset: str) -> list[PublishedScore]:
        """Structure measure by attribute for a subset."""
        return [score for score in self.attribute_structure if score.subset == subset_key(subset)]


def subset_key(subset: str) -> str:
    """The short name under which a subset's published rows are kept.

    >>> subset_key("TestEasyDataset/Unseen"), subset_key("SUN-SEG-Hard (Seen)"), subset_key("Clinical")
    ('Easy/Unseen', 'Hard/Seen', 'Clinical')
    """
    text = subset.lower()
    level = "Easy" if "easy" in text else "Hard" if "hard" in text else ""
    scene = "Unseen" if "unseen" in text else "Seen" if "seen" in text else ""
    if level and scene:
        return f"{level}/{scene}"
    return subset.split("/")[-1].capitalize() if subset else ""


@cache
def published(protocol: str) -> Published | None:
    """The published rows of a protocol, or None when none are kept."""
    file = resources.files("polypscope.report").joinpath("published", f"{protocol}.json")
    if not file.is_file():
        return None
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    read = lambda key: tuple(
        PublishedScore(row["method"], row["subset"], row["table"], row["values"]) for row in data.get(key, ())
    )
    clips = data.get("clips", {})
    return Published(data["source"], data["note"], read("scores"), read("attribute_structure"), clips)
