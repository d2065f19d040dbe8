"""The cleaner in a process of its own, so that the broker's event loop never waits for it: the parent's side.

Lines of JSON on the child's standard input and output; one child cleans one log after the other, until its input ends:

    parent                                     child
    {"log": {..}, "now_ms": .., ..}       ->                                            a log to clean
                                          <-   {"base_offset": 0, "replaced": [0, 90]}   files are there, as `.swap`
    {}                                    ->                                            they have their names now
                                          <-   {"end_offset": 180, "stats": {..}}        that log is clean up to there
                                          <-   {"corrupt": "..", ..} or {"refused": ".."}    it is not, and why
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from core.common.errors import CorruptRecordError, PlogError, UndecodableError
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
        return self._ask({"log": format_log(log), "now_ms": now_ms, "settings": asdict(settings)})

    def go_on(self) -> SegmentReady | LogCleaned:
        """Continues after the ready segment was swapped in. Raises what `begin` raises."""
        return self._ask({})

    def _ask(self, message: dict[str, Any]) -> SegmentReady | LogCleaned:
        with self._starting:
            if self.is_closed:
                raise PlogError("the cleaner's process was ended")
            process = self._process = self._process or _start(self._inherited())
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):  # closed
            line = b""
        if not line:
            ended = _how_it_ended(process.wait())  # its pipes are closed: it exits, or `close` has killed it
            self.close()
            raise PlogError(f"the cleaner's process ended before its work did{ended}")
        return _parse_answer(json.loads(line))

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


def _parse_answer(answer: dict[str, Any]) -> SegmentReady | LogCleaned:
    if "base_offset" in answer:
        return SegmentReady(answer["base_offset"], tuple(answer["replaced"]))
    if "corrupt" in answer:
        kind = UndecodableError if answer.get("is_undecodable") else CorruptRecordError
        where = answer.get("position", -1), answer.get("offset", -1), answer["path"]
        raise kind(answer["corrupt"], position=where[0], offset=where[1], path=where[2])
    if "refused" in answer:
        raise PlogError(answer["refused"])
    return LogCleaned(answer["end_offset"], CleanerStats(**answer["stats"]))


def format_log(log: LogToClean) -> Any:
    """Returns the JSON fields for the child."""
    return msgspec.to_builtins(log, enc_hook=lambda path: str(path.absolute()))


def parse_log(fields: Any) -> LogToClean:
    """Reads the fields of `format_log`."""
    return msgspec.convert(fields, LogToClean, dec_hook=lambda type_, text: type_(text), str_keys=True)
