"""All architectures by name: a plain function per model, so that a recipe names what it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from polypscope.models.pns_plus_stream import StreamSegmenter
from polypscope.records.errors import UsageError

MODELS: dict[str, Callable[..., nn.Module]] = {
    "pns_plus_stream": StreamSegmenter,
}


def create(name: str, **arguments: Any) -> nn.Module:
    """The model called `name`, freshly initialised."""
    if name not in MODELS:
        raise UsageError(f"Model: expected one of {', '.join(sorted(MODELS))}, found {name!r}.")
    return MODELS[name](**arguments)
