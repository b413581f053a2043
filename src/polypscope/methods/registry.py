"""The methods by name. To add one: write its file, add it here, and give it a row in tests/methods/test_registry.py.

A method's module is imported when the method is asked for: numba and OpenCV are not needed to list names.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polypscope.records.errors import UsageError

if TYPE_CHECKING:
    from polypscope.methods.method import Method

__all__ = ["METHODS", "Entry", "load_method"]


@dataclass(frozen=True)
class Entry:
    """One method: what it is in a line, its paper, and the class that runs it, as `module:class`."""

    summary: str
    paper: str
    runs: str


METHODS: dict[str, Entry] = {
    "cvc-clinic": Entry(
        "hand-crafted: valleys around a protruding surface vote for its centre (WM-DOVA)",
        "Bernal et al. 2015, WM-DOVA maps for accurate polyp highlighting in colonoscopy",
        "polypscope.methods.cvc_clinic:CvcClinic",
    ),
}


def load_method(name: str) -> Method:
    """The method of this name, ready to run; capitals and underscores do not matter."""
    key = name.lower().replace("_", "-")
    if key not in METHODS:
        near = difflib.get_close_matches(key, METHODS, n=1)
        hint = f"did you mean {near[0]}?" if near else "choose one of these:"
        listed = "\n".join(f"  {one:<12} {entry.summary}" for one, entry in METHODS.items())
        raise UsageError(f"--method: expected a known method, found {name!r}; {hint}\n{listed}")
    module, _, attribute = METHODS[key].runs.partition(":")
    method: Method = getattr(importlib.import_module(module), attribute)()
    return method
