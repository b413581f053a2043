"""Jobs go on when one fails; run.json is true at every moment."""

from __future__ import annotations

import json

import pytest

from polypscope import DISCLAIMER
from polypscope.records.errors import DamagedInput, OutputError, UsageError
from polypscope.runtime.jobs import run_jobs
from polypscope.runtime.runlog import RunLog


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_item_is_named_and_the_others_go_on(jobs: int) -> None:
    def inverse(n: int) -> float:
        if n == 3:
            raise DamagedInput("three: expected another number, found 3; give 4.")
        return 1 / n

    results = run_jobs(inverse, [1, 0, 2, 3], names=["one", "zero", "two", "three"], jobs=jobs)
    assert results.values == [1.0, None, 0.5, None]
    assert [(f.name, f.sentence) for f in results.failures] == [
        ("zero", "ZeroDivisionError: division by zero"),
        ("three", "three: expected another number, found 3; give 4."),
    ]
    assert results.exit_code == 1


def test_zero_jobs_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--jobs"):
        run_jobs(str, [1], jobs=0)


def test_run_log_says_running_then_done(tmp_path) -> None:
    with RunLog(tmp_path / "out", "predict", {"input": tmp_path, "sizes": (1, 2)}) as log:
        during = json.loads(log.path.read_text())
        log.add_note("a remark")
        log.record(frames=3)
    after = json.loads(log.path.read_text())
    assert during["status"] == "running"
    assert (after["status"], after["notes"], after["frames"]) == ("done", ["a remark"], 3)
    assert after["arguments"] == {"input": str(tmp_path), "sizes": [1, 2]}
    assert after["disclaimer"] == DISCLAIMER


@pytest.mark.parametrize(("error", "status"), [(DamagedInput("bad"), "failed"), (KeyboardInterrupt(), "interrupted")])
def test_run_log_keeps_how_it_ended(tmp_path, error, status) -> None:
    log = RunLog(tmp_path, "x", {})

    def fail() -> None:
        with log:
            raise error

    with pytest.raises(type(error)):
        fail()
    assert json.loads(log.path.read_text())["status"] == status


def test_run_log_without_a_folder_is_one_sentence(tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="choose another"), RunLog(tmp_path / "file" / "out", "x", {}):
        pass
