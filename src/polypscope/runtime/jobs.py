"""Independent jobs side by side: one machine through joblib's processes, a cluster through its Ray backend.

A failing job is reported with its name and its sentence; the others go on.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from polypscope.records.errors import MissingExtra, PolypscopeError, UsageError

__all__ = ["Failure", "JobResults", "run_jobs"]

Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Failure:
    """A job that failed: its name, one sentence, and the traceback for --debug."""

    name: str
    sentence: str
    trace: str


@dataclass
class JobResults(Generic[Value]):
    """Values in the order of the items (None where a job failed), and the failures."""

    values: list[Value | None]
    failures: list[Failure] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when any job failed."""
        return 1 if self.failures else 0

    @property
    def good(self) -> list[Value]:
        """Values of the jobs that succeeded."""
        return [value for value in self.values if value is not None]


def _guarded(function: Callable[[Any], Any], index: int, item: Any) -> tuple[int, Any, tuple[str, str] | None]:
    try:
        return index, function(item), None
    except PolypscopeError as error:
        return index, None, (str(error), traceback.format_exc())
    except Exception as error:  # a job must not take the others with it
        return index, None, (f"{type(error).__name__}: {error}", traceback.format_exc())


def run_jobs(
    function: Callable[[Item], Value],
    items: Sequence[Item],
    *,
    names: Iterable[str] | None = None,
    jobs: int = 1,
    label: str = "working",
    unit: str = "items",
    cluster: str | None = None,
) -> JobResults[Value]:
    """Call `function` once for each item and gather the results in order.

    jobs: processes; 1 runs in this process, -1 uses every core. cluster: address of a Ray cluster ("auto" for a
    local one). `function` must return something other than None.

    >>> run_jobs(lambda n: 10 // n, [1, 0, 5], names=["a", "b", "c"]).failures[0].name
    'b'
    """
    from polypscope.runtime.console import progress

    if jobs == 0 or jobs < -1:
        raise UsageError(f"--jobs: expected -1 (every core) or at least 1, found {jobs}; give the number of processes.")
    labels = list(names) if names is not None else [str(item) for item in items]
    results: JobResults[Value] = JobResults([None] * len(items))
    with progress(label, len(items), unit) as ticker:
        for index, value, error in _outcomes(function, items, jobs, cluster):
            results.values[index] = value
            if error is not None:
                results.failures.append(Failure(labels[index], *error))
            ticker.step()
    order = {name: i for i, name in enumerate(labels)}
    results.failures.sort(key=lambda failure: order[failure.name])
    return results


def _outcomes(function: Callable[[Any], Any], items: Sequence[Any], jobs: int, cluster: str | None) -> Iterable[Any]:
    count = (os.cpu_count() or 1) if jobs == -1 else jobs
    if cluster is None and (count == 1 or len(items) <= 1):
        yield from (_guarded(function, i, item) for i, item in enumerate(items))
        return
    from joblib import Parallel, delayed, parallel_config

    calls = (delayed(_guarded)(function, i, item) for i, item in enumerate(items))
    if cluster is None:
        # One worker per core: nested BLAS threads would only fight each other.
        with parallel_config(backend="loky", n_jobs=count, inner_max_num_threads=1):
            yield from Parallel(return_as="generator_unordered")(calls)
        return
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise MissingExtra.of("ray", extra="cluster", needed_for="--cluster") from None
    if not ray.is_initialized():
        ray.init(address=None if cluster == "local" else cluster, log_to_driver=False)
    register_ray()
    with parallel_config(backend="ray", n_jobs=count if jobs != 1 else -1):
        yield from Parallel()(calls)
