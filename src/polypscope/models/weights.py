"""Loading weights that others published: names are mapped, shapes are compared, and the report says what matched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polypscope.io.paths import require_file
from polypscope.records.errors import ModelError

NameMap = Iterable[tuple[str, str]]
"""(our prefix, their prefix) pairs; the first that fits is used."""


@dataclass(frozen=True)
class MatchReport:
    """What a checkpoint gave a model."""

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    wrong_shape: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Every parameter and statistic of the model was in the file."""
        return not self.missing and not self.wrong_shape

    def __str__(self) -> str:
        def some(names: tuple[str, ...]) -> str:
            return f" ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" if names else ""

        return (
            f"{len(self.matched)} tensors matched; {len(self.missing)} missing{some(self.missing)}; "
            f"{len(self.wrong_shape)} of another shape{some(self.wrong_shape)}; "
            f"{len(self.unused)} in the file unused{some(self.unused)}"
        )


def load_checkpoint(path: Path, what: str) -> Mapping[str, Any]:
    """What a file of torch holds by name, of which nothing but data is read; `what` says what it should be."""
    path = require_file(path, what)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # of a file that is no checkpoint, torch's readers raise nearly anything
        raise ModelError(
            f"{path}: expected a {what}, found a damaged file or one that is no checkpoint; check the path."
        ) from error
    if not isinstance(content, Mapping):
        raise ModelError(f"{path}: expected a {what}, found {type(content).__name__}; check the path.")
    return content


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Tensors of a `.pth` or `.pt` file by name; a wrapper such as {"state_dict": …} and `module.` are taken off."""
    content = load_checkpoint(path, "torch checkpoint")
    for key in ("state_dict", "model", "net"):
        if isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not content:
        raise ModelError(f"{path}: expected named tensors, found none; give a state dict.")
    return {str(name).removeprefix("module."): value for name, value in content.items() if isinstance(value, Tensor)}


def load_mapped(model: nn.Module, tensors: Mapping[str, Tensor], names: NameMap = ()) -> MatchReport:
    """Copy what fits into the model and report the rest.

    Singleton axes may differ (their Conv3d 1x1x1 is our Conv2d 1x1); nothing else may.
    """
    ours = model.state_dict()
    pairs = tuple(names)
    matched, missing, wrong, used = [], [], [], set()
    for name, target in ours.items():
        theirs = _their_name(name, pairs)
        if theirs not in tensors:
            missing.append(name)
            continue
        used.add(theirs)
        source = tensors[theirs]
        if [n for n in source.shape if n != 1] != [n for n in target.shape if n != 1]:
            wrong.append(f"{name}: {tuple(target.shape)}, found {tuple(source.shape)}")
            continue
        target.copy_(source.reshape(target.shape))
        matched.append(name)
    if not matched:
        raise ModelError("Checkpoint: expected tensors of this model, found none whose name and shape fit.")
    return MatchReport(tuple(matched), tuple(missing), tuple(sorted(set(tensors) - used)), tuple(wrong))


def _their_name(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for ours, theirs in pairs:
        if name.startswith(ours):
            return theirs + name[len(ours) :]
    return name
