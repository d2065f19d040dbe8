"""The cleaner in a process of its own, so that the broker's event loop never waits for it: the parent's side.

Pickled values on the child's standard input and output; one child cleans one log after the other, until its input ends:

    parent                                     child
    (log, now_ms, settings)               ->                   a log to clean
                                          <-   SegmentReady    files are there, as `.swap`
    an empty line                         ->                   they have their names now
                                          <-   LogCleaned      that log is clean up to there
                                          <-   a PlogError     it is not, and why
"""

from __future__ import annotations

import contextlib
import json
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.common.errors import PlogError
from core.compaction.cleaner_stats import CleanerStats
from core.compaction.log_to_clean import LogToClean


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The settings of one cleaner. `max_bytes_per_second`: of log, read and written."""

    dedupe_buffer_bytes: int
    load_factor: float
    max_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class SegmentReady:
    """A cleaned segment, its files named `.swap`, that is ready to replace others."""

    base_offset: int
    replaced: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogCleaned:
    end_offset: int
    stats: CleanerStats


class CleanerProcess:
    """The parent's side. Its methods block, and may be called from any thread, one at a time; `close` also while
    another one runs.
    """

    def __init__(self, inherited: Callable[[], Sequence[int]] = tuple) -> None:
        """`inherited` returns the descriptors that the child keeps open: the lock of the data directory."""
        self._inherited = inherited
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self.is_closed = False
        """Once True, it stays True."""

    def begin(self, log: LogToClean, now_ms: int, settings: CleanerSettings) -> SegmentReady | LogCleaned:
        """Raises CorruptRecordError if the log is damaged, PlogError if the disk refuses or the process dies."""
        return self._ask(pickle.dumps((log, now_ms, settings)))

    def go_on(self) -> SegmentReady | LogCleaned:
        """Continues after the ready segment was swapped in. Raises what `begin` raises."""
        return self._ask(b"\n")

    def _ask(self, message: bytes) -> SegmentReady | LogCleaned:
        with self._starting:
            if self.is_closed:
                raise PlogError("the cleaner's process was ended")
            process = self._process = self._process or _start(self._inherited())
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(message)
            process.stdin.flush()
            answer: SegmentReady | LogCleaned | PlogError = pickle.load(process.stdout)  # noqa: S301  our own child
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):  # closed
            ended = _how_it_ended(process.wait())  # its pipes are closed: it exits, or `close` has killed it
            self.close()
            raise PlogError(f"the cleaner's process ended before its work did{ended}") from None
        if isinstance(answer, PlogError):
            raise answer
        return answer

    def close(self) -> None:
        """Kills the process; the next cleaning or the next start deletes its unfinished files."""
        with self._starting:
            self.is_closed = True
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return ""
    name = signal.Signals(-status).name
    return f", by {name}" + (", as the system does when no memory is left" if name == "SIGKILL" else "")


def _start(inherited: Sequence[int]) -> subprocess.Popen[bytes]:
    """Starts the child with the parent's own modules, not those of the working directory."""
    code = (
        "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {__package__}.cleaner_worker import main; main()"
    )
    command = [sys.executable, "-P", "-c", code, json.dumps(sys.path)]
    return subprocess.Popen(  # noqa: S603 - ourselves
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, pass_fds=inherited
    )
