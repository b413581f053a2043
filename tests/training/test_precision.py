"""16-bit floats only where they are asked for or native."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra")

from polypscope.training import precision  # noqa: E402
from polypscope.training.precision import has_bfloat16, reduced  # noqa: E402

CPUINFO = Path("/proc/cpuinfo")


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("asked", "sixteen"), [("float32", False), ("bfloat16", True), ("auto", None)])
def test_networks_compute_in_what_was_asked_for_or_is_native(
    asked: str, sixteen: bool | None, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: native)  # one machine has one kind of processor
    expected = native if sixteen is None else sixteen
    layer = torch.nn.Linear(2, 2)
    with reduced(asked):
        assert layer(torch.ones(1, 2)).dtype == (torch.bfloat16 if expected else torch.float32)


@pytest.mark.skipif(not CPUINFO.is_file(), reason="only Linux lists a processor's instructions in /proc/cpuinfo")
def test_the_processor_is_asked() -> None:
    flags = CPUINFO.read_text()
    assert has_bfloat16() == ("avx512_bf16" in flags or "amx_tile" in flags)
