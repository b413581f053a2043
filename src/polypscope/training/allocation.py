"""Memory that is freed stays with the process.

A step of training frees and takes gigabytes in pieces of many megabytes. glibc gives every such piece back to the
system and asks for it anew, and the system fills each page with zeros: a quarter of a step's time
(`benchmarks/training_speed.py`). The setting lasts as long as the process.
"""

from __future__ import annotations

import ctypes

__all__ = ["keep_pages"]

# Names and numbers of glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
LARGEST = 2**31 - 1


def keep_pages() -> bool:
    """Let freed memory be used again by this process; False where the C library has no such setting."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another system, or another C library than glibc
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: LARGEST, M_TOP_PAD: 2**28}
    taken = [tell(name, value) == 1 for name, value in settings.items()]
    return all(taken)
