"""Training in several processes: who this one is, and who goes first where all would write the same files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as distributed

# The others wait while the first renders simulated sequences or validates, which may take hours.
PATIENCE = timedelta(hours=24)


@dataclass(frozen=True)
class Processes:
    """This process among those that `torchrun` started; alone without it."""

    rank: int
    world: int

    @property
    def first(self) -> bool:
        """Whether this one prepares the data, logs, validates and writes."""
        return self.rank == 0

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """The first process runs the block before the others do, which then find its files."""
        if self.world > 1 and not self.first:
            distributed.barrier()
        yield
        if self.world > 1 and self.first:
            distributed.barrier()


def this_process() -> Processes:
    """Who this process is, from the environment that `torchrun` sets."""
    return Processes(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the other processes, and leave them together: nobody ends while the first still writes."""
    processes = this_process()
    if processes.world == 1 or distributed.is_initialized():
        yield processes
        return
    distributed.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield processes
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
