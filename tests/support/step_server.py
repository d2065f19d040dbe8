"""`plog serve` that kills itself, as by kill -9, at a step of its transactions.

    python -m tests.support.step_server STEP COUNT serve ..    dies when STEP is done for the COUNT-th time

The steps are those that `TransactionCoordinator.on_step` is told of: PrepareCommit, marker out-0, CompleteCommit ..
"""

from __future__ import annotations

import os
import signal
import sys

from cli.main import run
from core.coordinator.coordinator_environment import TransactionEnvironment
from core.coordinator.transaction_coordinator import TransactionCoordinator


def die_at(step: str, count: int) -> None:
    left = count
    make = TransactionCoordinator.__init__

    def on_step(done: str) -> None:
        nonlocal left
        left -= done == step
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def make_mortal(self: TransactionCoordinator, environment: TransactionEnvironment) -> None:
        make(self, environment)
        self.on_step = on_step

    TransactionCoordinator.__init__ = make_mortal  # type: ignore[method-assign]


if __name__ == "__main__":
    die_at(sys.argv[1], int(sys.argv[2]))
    sys.exit(run(sys.argv[3:]))
