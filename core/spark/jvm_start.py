"""Starts Spark's JVM so that nothing of it is left if the start is broken off.

PySpark keeps the process to itself until the JVM has said where it listens. Whatever ends that wait leaves a shell or a
JVM, which waits for a caller that does not come.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_SECONDS = 0.5


class _Launcher(subprocess.Popen[bytes]):
    def poll(self) -> int | None:
        """Gives no 0: PySpark waits for ever for one that has ended with it, as `spark-submit --version` does."""
        code = super().poll()
        return 1 if code == 0 else code


@contextmanager
def killed_if_broken_off(is_hopeless: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Kills what PySpark starts in the block, with its children, if an exception ends the block, or `is_hopeless` says
    so meanwhile, from another thread: that ends the block. To be used by the main thread.
    """
    from pyspark import java_gateway

    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], *, preexec_fn: Callable[[], None], **how: Any) -> subprocess.Popen[bytes]:
        def prepare() -> None:
            preexec_fn()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)  # until it is known what was started
        try:
            process = _Launcher(command, preexec_fn=prepare, **how)
            started.append(process)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process

    def watch() -> None:
        while not is_over.wait(_LOOK_SECONDS):
            if is_hopeless():
                for process in started:
                    kill(process)
                return

    is_over = threading.Event()
    watcher = threading.Thread(target=watch, name="spark-start", daemon=True)
    watcher.start()
    module: Any = java_gateway  # its `Popen` is not for others, and there is no other way to the process
    popen, module.Popen = module.Popen, start
    try:
        yield
    except BaseException:
        for process in started:
            kill(process)
        raise
    finally:
        module.Popen = popen
        is_over.set()
        watcher.join()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills it with the shells, and the other JVM, that start it.

    They stay in our process group: who kills that kills all.
    """
    for pid in (*_descendants(process.pid), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    """Finds none if the system does not say: they end by themselves, a second later."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [found for child in children for found in (*_descendants(child), child)]
