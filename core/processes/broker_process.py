"""A broker as a process of its own: `plog serve`."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import AccessError
from core.common.filesystem import FileSystem, access_error
from core.processes.process_group import ProcessGroup, describe_end

_LEFT_OUT = ("PLOG_PROFILE", "PLOG_DATA_DIR")
"""What the environment says of somebody's own brokers; config.toml is left out, too."""
_MOST_OF_LOG = 20_000


class BrokerProcess:
    """Started by `start`, as often as one likes; it keeps its directory and its address. What it prints is in `log`,
    one life after the other. Owned by one thread.
    """

    def __init__(
        self,
        node_id: int,
        data_dir: Path,
        listen: Endpoint,
        *,
        arguments: Sequence[str],
        group: ProcessGroup,
        keeps: Sequence[int] = (),
        beside: Path | None = None,
        is_placed: bool = True,
    ) -> None:
        """`arguments` are more of `plog serve`'s; the process keeps the descriptors `keeps`. What it prints and where
        it listens is in files beside its directory, or beside the path `beside`. It listens at `listen`, or, unless
        `is_placed`, where its arguments say.
        """
        self.node_id = node_id
        self.data_dir = data_dir
        self.endpoint = listen
        """Where it listens; a port 0 is replaced when it is ready."""
        beside = beside or data_dir
        self.log = beside.with_name(f"{beside.name}.log")
        self.is_wanted = False
        """Whether it was started, and not stopped or killed by us."""
        self.is_paused = False
        self._ready_file = beside.with_name(f"{beside.name}.ready")
        self._is_placed = is_placed
        self._arguments = arguments
        self._group = group
        self._keeps = keeps
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begins its next life, and does not wait. Raises AccessError if its log can't be written."""
        FileSystem().unlink(self._ready_file)
        command = [sys.executable, "-m", "plog", *self._words(), "--ready-file", str(self._ready_file)]
        environment = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        try:
            log = FileSystem().open_append(self.log)
        except OSError as error:
            raise access_error(error, self.log, "write") from error
        with contextlib.closing(log):
            self._log_start = os.lseek(log.fd, 0, os.SEEK_END)
            self._process = self._group.start(
                command,
                output=log.fd,
                keeps=self._keeps,
                environment={**environment, "PLOG_CONFIG": ""},
            )
        self.is_wanted, self.is_paused = True, False

    def _words(self) -> list[str]:
        where = ["--data-dir", str(self.data_dir)]
        where += ["--listen", str(self.endpoint)] if self._is_placed else []
        return ["serve", "--node-id", str(self.node_id), *where, *self._arguments]

    @property
    def command(self) -> str:
        """What somebody types to have it back, with all its settings."""
        return shlex.join(["plog", *self._words()])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def look_whether_ready(self) -> bool:
        """Says whether clients may connect; raises AccessError if it has ended instead."""
        if not self.is_running:
            raise self.failure()
        with contextlib.suppress(FileNotFoundError):
            self.endpoint = parse_endpoint(self._ready_file.read_text().strip())
            return True
        return False

    def pause(self) -> None:
        """Stops the process where it stands: its connections stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def _signal(self, number: int) -> None:
        """Sends it a signal, if it lives."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it as a crash does, paused or not."""
        self.is_wanted = False
        self._signal(signal.SIGKILL)
        self._wait(None)

    def stop(self, deadline: float) -> bool:
        """Stops it cleanly; says whether that was done until the monotonic time `deadline`, when it is killed."""
        self.is_wanted = False
        self._signal(signal.SIGTERM)
        self.resume()
        if self._wait(max(deadline - monotonic(), 0)):
            return True
        self.kill()
        return False

    def _wait(self, seconds: float | None) -> bool:
        """Says whether it has ended, after so many seconds at most; None is without end."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
        FileSystem().unlink(self._ready_file)
        return True

    def failure(self) -> AccessError:
        """Makes the error about a broker that has ended, with the reason that it gives."""
        code = self._process.returncode if self._process is not None else None
        return AccessError(
            f"broker {self.node_id} {describe_end(code, self._reason)}",
            where=str(self.data_dir),
            hint=f"{self.log} says more",
        )

    def _reason(self) -> str:
        """Finds the last error that this life of it has printed."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(self._log_start, self.log.stat().st_size - _MOST_OF_LOG))
            lines = file.read().decode(errors="replace").splitlines()
            found = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
            return found[-1] if found else ""
        return ""
