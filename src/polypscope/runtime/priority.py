"""Which threads may wait: the network comes first, and what is read or drawn beside it fills the gaps."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

__all__ = ["stand_back"]


def stand_back() -> None:
    """Let the calling thread, and threads that it starts, run when others of this process leave a core idle.

    The network's threads wait for each other hundreds of times a frame, so that one of them being put off by a decoder
    holds up the other as well. Linux only; elsewhere, and where the system forbids it, nothing happens.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(10, os.getpriority(os.PRIO_PROCESS, thread)))
