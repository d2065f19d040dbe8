"""A broker as a separate process: `plog serve`."""

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
from core.processes.process_group import ProcessGroup, describe_end, read_tail

_LEFT_OUT = ("PLOG_PROFILE", "PLOG_DATA_DIR")
"""Variables for the user's own brokers, which the process must not get; config.toml is left out, too."""


class BrokerProcess:
    """Can be started again and again with the same directory and address. All its output is in `log`. Owned by one
    thread.
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
        """`arguments` are further ones of `plog serve`; the process inherits the descriptors `keeps`. Its output and
        its address are in files beside its directory, or beside the path `beside`. It listens at `listen`, or, unless
        `is_placed`, where its arguments say.
        """
        self.node_id = node_id
        self.data_dir = data_dir
        self.endpoint = listen
        """Its address; a port 0 is replaced when it is ready."""
        beside = beside or data_dir
        self.log = beside.with_name(f"{beside.name}.log")
        self.is_wanted = False
        """Whether it was started, and neither stopped nor killed by this object."""
        self.is_paused = False
        self._ready_file = beside.with_name(f"{beside.name}.ready")
        self._is_placed = is_placed
        self._arguments = arguments
        self._group = group
        self._keeps = keeps
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process, and does not wait. Raises AccessError if its log can't be written."""
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
                command, output=log.fd, keeps=self._keeps, environment={**environment, "PLOG_CONFIG": ""}
            )
        self.is_wanted, self.is_paused = True, False

    def _words(self) -> list[str]:
        where = ["--data-dir", str(self.data_dir)]
        where += ["--listen", str(self.endpoint)] if self._is_placed else []
        return ["serve", "--node-id", str(self.node_id), *where, *self._arguments]

    @property
    def command(self) -> str:
        """The command that starts the broker again by hand, with all its settings."""
        return shlex.join(["plog", *self._words()])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def look_whether_ready(self) -> bool:
        """Returns whether clients may connect. Raises AccessError if the process has ended instead."""
        if not self.is_running:
            raise self.failure()
        with contextlib.suppress(FileNotFoundError):
            self.endpoint = parse_endpoint(self._ready_file.read_text().strip())
            return True
        return False

    def pause(self) -> None:
        """Suspends the process: its connections stay open, and it answers nothing."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Ends the process as a crash does, paused or not."""
        self.is_wanted = False
        self._signal(signal.SIGKILL)
        self._wait(None)

    def stop(self, deadline: float) -> bool:
        """Stops the process cleanly; returns False if it had to be killed at the monotonic time `deadline`."""
        self.is_wanted = False
        self._signal(signal.SIGTERM)
        self.resume()
        if self._wait(max(deadline - monotonic(), 0)):
            return True
        self.kill()
        return False

    def _wait(self, seconds: float | None) -> bool:
        """Returns whether the process ends within so many seconds; None waits without limit."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
        FileSystem().unlink(self._ready_file)
        return True

    def failure(self) -> AccessError:
        """Returns the error about a process that has ended, with the reason that it printed."""
        code = self._process.returncode if self._process is not None else None
        return AccessError(
            f"broker {self.node_id} {describe_end(code, self._reason)}",
            where=str(self.data_dir),
            hint=f"{self.log} says more",
        )

    def _reason(self) -> str:
        lines = read_tail(self.log, self._log_start).splitlines()
        return next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), "")
