"""The data sets by name. To add one: write its file, add it here, and give it a fixture in the contract test."""

from __future__ import annotations

import difflib

from polypscope.datasets import (
    asu_mayo,
    cvc_300,
    cvc_clinicdb,
    cvc_colondb,
    etis_larib,
    folder,
    kvasir_seg,
    polypgen,
    polypsense3d,
    sun_seg,
    train_test,
)
from polypscope.datasets.dataset import Dataset
from polypscope.records.errors import UsageError

__all__ = ["DATASETS", "get_dataset"]

_MODULES = (
    sun_seg, asu_mayo, cvc_clinicdb, kvasir_seg, cvc_300, cvc_colondb, etis_larib, polypgen, train_test, polypsense3d,
    folder,
)  # fmt: skip

DATASETS: dict[str, Dataset] = {module.DATASET.card.name: module.DATASET for module in _MODULES}


def get_dataset(name: str) -> Dataset:
    """The data set of this name; capitals and underscores do not matter.

    >>> get_dataset("Kvasir_SEG").card.title
    'Kvasir-SEG'
    """
    key = name.lower().replace("_", "-")
    if key not in DATASETS:
        near = difflib.get_close_matches(key, DATASETS, n=1)
        hint = f"did you mean {near[0]}" if near else f"known are {', '.join(DATASETS)}"
        raise UsageError(f"data set: expected a known name, found {name!r}; {hint}.")
    return DATASETS[key]
