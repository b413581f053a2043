"""The methods by name. To add one: write its file and add it here; tests/methods/test_registry.py runs them all.

A method's module is imported when the method is asked for: numba and OpenCV are not needed to list names.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polypscope.records.errors import UsageError

if TYPE_CHECKING:
    from polypscope.methods.method import Method

__all__ = ["METHODS", "Entry", "find_trainer", "load_method"]


@dataclass(frozen=True)
class Entry:
    """One method: what it is in a line, its paper, and the class that runs it, as `module:class`.

    trains: the function that trains it, as `module:function`; empty for a method that learns nothing. The class of one
    that learns has `load(path)` and `save(path)`.
    """

    summary: str
    paper: str
    runs: str
    trains: str = ""


METHODS: dict[str, Entry] = {
    "cvc-clinic": Entry(
        "hand-crafted: valleys around a protruding surface vote for its centre (WM-DOVA)",
        "Bernal et al. 2015, WM-DOVA maps for accurate polyp highlighting in colonoscopy",
        "polypscope.methods.cvc_clinic:CvcClinic",
    ),
    "etis-larib": Entry(
        "hybrid: round shapes of a polyp's size, then their texture (Hough, Haralick, boosting); is trained first",
        "Silva et al. 2014, Toward embedded detection of polyps in WCE images",
        "polypscope.methods.etis_larib:EtisLarib",
        "polypscope.methods.etis_larib:train_etis_larib",
    ),
    "pls": Entry(
        "hybrid: presence by similar pictures (JCD, Tamura), places by elliptical contrast; is trained first",
        "Bernal et al. 2017, team PLS of the challenge; no paper of its own",
        "polypscope.methods.pls:Pls",
        "polypscope.methods.pls:train_pls",
    ),
    "asu": Entry(
        "hybrid: edges of polyps vote for what they surround (forests), small CNNs judge it; is trained first",
        "Tajbakhsh et al. 2016, Automated polyp detection in colonoscopy videos using shape and context information",
        "polypscope.methods.asu:Asu",
        "polypscope.methods.asu_training:train_asu",
    ),
}


def load_method(name: str, trained: Path | None = None) -> Method:
    """The method of this name, ready to run; capitals and underscores do not matter.

    trained: the file that training wrote, for a method that learns.
    """
    key = _known(name, METHODS)
    entry = METHODS[key]
    if entry.trains and trained is None:
        raise UsageError(
            f"--trained: expected a trained file, since {key} learns from pictures, found none; train one with "
            f"`polypscope train` and a recipe of kind 'detector', as recipes/{key}.toml."
        )
    if trained is not None and not entry.trains:
        raise UsageError(f"--trained: expected a method that learns, found {key}, which does not; leave it out.")
    runs = _imported(entry.runs)
    method: Method = runs() if trained is None else runs.load(trained)
    return method


def find_trainer(name: str) -> Callable[..., Any]:
    """The function that trains the method of this name, on (frame, mask) pairs."""
    learners = {key: entry for key, entry in METHODS.items() if entry.trains}
    trainer: Callable[..., Any] = _imported(learners[_known(name, learners)].trains)
    return trainer


def _known(name: str, methods: dict[str, Entry]) -> str:
    key = name.lower().replace("_", "-")
    if key not in methods:
        near = difflib.get_close_matches(key, methods, n=1)
        hint = f"did you mean {near[0]}?" if near else "choose one of these:"
        listed = "\n".join(f"  {one:<12} {entry.summary}" for one, entry in methods.items())
        raise UsageError(f"--method: expected a known method, found {name!r}; {hint}\n{listed}")
    return key


def _imported(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
