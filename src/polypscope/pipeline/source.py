"""What the pipeline asks of a source of frames, and reading ahead in a thread so that decoding costs no waiting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

from polypscope.records import Frame
from polypscope.runtime.priority import stand_back

__all__ = ["Info", "Source", "ahead"]

T = TypeVar("T")
_END = object()


class Info(Protocol):
    """What is known of a source before it is read; `polypscope.io.sources.SourceInfo` is one."""

    @property
    def name(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def fps(self) -> float | None: ...
    @property
    def frame_count(self) -> int | None: ...


class Source(Protocol):
    """Frames in order, each time from the first one; `polypscope.io.sources.FrameSource` is one."""

    @property
    def info(self) -> Info: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    def __iter__(self) -> Iterator[Frame]: ...


def ahead(items: Iterator[T], depth: int = 4, *, patient: bool = True) -> Generator[T]:
    """The same items, up to `depth` of them made in advance by a thread; a patient one only fills gaps of the others.

    >>> list(ahead(iter(range(3))))
    [0, 1, 2]
    """
    ready: queue.Queue[Any] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def work() -> None:
        if patient:
            stand_back()
        end: Any = _END
        try:
            for item in items:
                while not stopped.is_set():
                    try:
                        ready.put(item, timeout=0.1)
                        break
                    except queue.Full:
                        continue
                if stopped.is_set():
                    return
        except BaseException as error:
            end = error
        finally:
            if isinstance(items, Generator):
                items.close()  # here and now: another thread must not find it running
        while not stopped.is_set():
            try:
                ready.put((_END, end), timeout=0.1)
                return
            except queue.Full:
                continue

    thread = threading.Thread(target=work, name="read ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, tuple) and len(item) == 2 and item[0] is _END:
                if item[1] is not _END:
                    raise item[1]
                return
            yield item
    finally:
        stopped.set()
        thread.join()
