"""What a person must know of a data set before using it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DatasetCard"]


@dataclass(frozen=True)
class DatasetCard:
    """Facts about a data set.

    frames: published number of images or frames (None where it varies). layout: the folders that `root` must hold.
    shipped_weights: whether its licence lets weights trained on it be passed on.
    """

    name: str
    title: str
    kind: str
    frames: int | None
    licence: str
    citation: str
    obtain: str
    layout: str
    shipped_weights: bool
    remarks: str = ""
