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
asked = []
for turn in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    taken = [np.ones(megabytes * 2**18, np.float32) for _ in range(pieces)]
    del taken
    asked.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(asked[1:]))
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
        (64, 1, (128,), False),  # a piece of more than 32 MiB: given back wherever it lies
        (8, 4, (-1,), True),  # by whoever loads a segmenter
    ],
)
def test_pages_are_asked_for_once(megabytes: int, pieces: int, limits: tuple[int, ...], kept: bool) -> None:
    # The least of several turns: whether glibc gives back what it was not told to keep hangs on what lies above it,
    # and a page now and then is asked for by something else. A page may be of 2 MiB.
    assert (_faults(megabytes, pieces, *limits) < megabytes * pieces / 2 / 2) == kept
