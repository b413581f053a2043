"""A thread that stands back takes nobody else with it."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from polypscope.runtime.priority import stand_back


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux only")
def test_only_the_calling_thread_and_those_it_starts_stand_back() -> None:
    nice: dict[str, int] = {}

    def read(name: str) -> None:
        nice[name] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def patient() -> None:
        stand_back()
        read("patient")
        child = threading.Thread(target=read, args=("child",))
        child.start()
        child.join()

    read("before")
    thread = threading.Thread(target=patient)
    thread.start()
    thread.join()
    read("after")
    assert nice["after"] == nice["before"]
    assert nice["patient"] == nice["child"] >= max(10, nice["before"])


def test_a_system_that_forbids_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse, raising=False)
    stand_back()
