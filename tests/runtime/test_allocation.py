"""Freed memory stays with the process: the system need not hand out and clear the same pages again."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from polypscope.runtime.allocation import keep_pages
from polypscope.runtime.segmenter import Segmenter
megabytes, pieces, *limits = (int(word) for word in sys.argv[1:])
for limit in limits:
    if limit < 0:
        Segmenter.load()
    else:
        assert keep_pages(limit * 2**20 if limit else None)
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for turn in range(3):
    if turn == 1:
        before = faults()
    taken = [np.ones(megabytes * 2**18, np.float32) for _ in range(pieces)]
    del taken
print(faults() - before)
"""


GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")


def _faults(*words: int) -> int:
    # A process each, since the setting lasts as long as the process.
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not GLIBC, reason="only glibc can be told to keep freed memory")
@pytest.mark.parametrize(
    ("megabytes", "pieces", "limits", "kept"),
    [
        (384, 1, (0,), True),  # without a limit
        (384, 1, (0, 64), True),  # which a later limit does not take back
        (8, 4, (128,), True),  # maps of a frame
        (8, 20, (64,), False),  # more than may be kept
        (8, 4, (-1,), True),  # by whoever loads a segmenter
    ],
)
def test_pages_are_asked_for_once(megabytes: int, pieces: int, limits: tuple[int, ...], kept: bool) -> None:
    given_back = _faults(megabytes, pieces)
    # Two turns of 32 MiB or more are 16,384 pages of 4 KiB, or 32 of 2 MiB.
    assert given_back >= 32
    assert (_faults(megabytes, pieces, *limits) < 0.1 * given_back) == kept
