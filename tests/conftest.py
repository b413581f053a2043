"""Fixtures for every test: where real data lies, and one way to say that it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is slow, not wrong: properties are judged by what they find, never by how long they took.
settings.register_profile("polypscope", deadline=None)
settings.load_profile("polypscope")

_ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the checkout (or $POLYPSCOPE_SHARED) with real images and reference outputs."""
    folder = Path(os.environ.get("POLYPSCOPE_SHARED", _ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"real data are not at hand ({folder} is absent); set POLYPSCOPE_SHARED to run this test")
    return folder
