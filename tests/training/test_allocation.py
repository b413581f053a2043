"""Freed memory stays with the process: the system need not hand out and clear the same pages again."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from polypscope.training.allocation import keep_pages
if sys.argv[1] == "kept":
    assert keep_pages()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for turn in range(3):
    if turn == 1:
        before = faults()
    np.ones(96 * 2**20, np.float32)
print(faults() - before)
"""


GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")


@pytest.mark.skipif(not GLIBC, reason="only glibc can be told to keep freed memory")
def test_pages_are_asked_for_once() -> None:
    faults = {}
    for way in ("kept", "given back"):  # a process each, since the setting lasts as long as the process
        command = [sys.executable, "-c", PROGRAM, way]
        faults[way] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # Two pieces of 384 MiB are 196,608 pages of 4 KiB, or 384 of 2 MiB.
    assert faults["given back"] > 100
    assert faults["kept"] < 0.1 * faults["given back"]
