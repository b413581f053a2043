"""Memory that is freed stays with the process.

glibc gives large pieces of freed memory back to the system and asks for them anew, and the system fills each page with
zeros. A step of training frees and takes gigabytes, which cost a quarter of its time
(`benchmarks/training_speed.py`); the maps of a single full-HD frame have 27 MB, which can cost nearly as much as the
depth head computes. The setting lasts as long as the process.
"""

from __future__ import annotations

import ctypes

__all__ = ["keep_pages"]

# Names and numbers of glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4
LARGEST_PIECE = 2**25  # glibc takes no larger threshold
EVERYTHING: dict[int, int] = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1, M_TOP_PAD: 2**28}
_everything = False


def keep_pages(most_bytes: int | None = None) -> bool:
    """Let freed memory be used again by this process; False where the C library has no such setting.

    Parameters
    ----------
    most_bytes : how much freed memory may lie at the end of the heap before it is given back; what lies below memory in
        use stays anyway, pieces of more than 32 MiB never do. Everything stays if None, which nothing takes back.
    """
    global _everything
    if _everything:
        return True
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another system, or another C library than glibc
        return False
    some = {M_MMAP_THRESHOLD: LARGEST_PIECE, M_TRIM_THRESHOLD: most_bytes or 0}
    taken = [tell(name, value) == 1 for name, value in (EVERYTHING if most_bytes is None else some).items()]
    _everything = most_bytes is None and all(taken)
    return all(taken)
