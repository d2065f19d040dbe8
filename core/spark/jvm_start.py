"""Starts Spark's JVM so that no process is left if the start is interrupted. PySpark does not show the process until
the JVM has reported its port. If that wait is interrupted, a shell or a JVM stays behind and waits for its caller.
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
_WATCH_SECONDS = 0.5


class _Launcher(subprocess.Popen[bytes]):
    def poll(self) -> int | None:
        """Never returns 0: PySpark waits for ever after an exit with 0, such as of `spark-submit --version`."""
        code = super().poll()
        return 1 if code == 0 else code


@contextmanager
def killed_if_broken_off(is_hopeless: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Kills the process that PySpark starts in the block, with its children, if an exception ends the block or
    `is_hopeless` returns True. Another thread calls `is_hopeless`, and its kill ends the block. Used by the main
    thread.
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
        while not is_over.wait(_WATCH_SECONDS):
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
    """Kills the process, with the shells and the other JVM that start it. They stay in our process group, so killing
    the group kills all of them.
    """
    for pid in (*_descendants(process.pid), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    """Finds the descendants; none if the system does not list them: they end by themselves a second later."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [found for child in children for found in (*_descendants(child), child)]
