"""A broker as a separate process: `plog serve`."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from core.common.endpoint import Endpoint, parse_endpoint
from core.common.filesystem import FileSystem, accessing
from core.processes.process_group import ProcessGroup, ServerProcess

_LEFT_OUT = ("PLOG_PROFILE", "PLOG_DATA_DIR")
"""Variables for the user's own brokers, which the process must not get; config.toml is left out, too."""


class BrokerProcess(ServerProcess):
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
        beside = beside or data_dir
        super().__init__(f"broker {node_id}", data_dir, beside.with_name(f"{beside.name}.log"), group)
        self.node_id = node_id
        self.endpoint = listen
        """Its address; a port 0 is replaced when it is ready."""
        self.is_wanted = False
        """Whether it was started, and neither stopped nor killed by this object."""
        self.is_paused = False
        self._ready_file = beside.with_name(f"{beside.name}.ready")
        self._is_placed = is_placed
        self._arguments = arguments
        self._keeps = keeps

    def start(self) -> None:
        """Starts the process, and does not wait. Raises AccessError if its log can't be written."""
        FileSystem().unlink(self._ready_file)
        command = [sys.executable, "-m", "plog", *self._words(), "--ready-file", str(self._ready_file)]
        environment = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        with accessing(self.log, "write"):
            log = FileSystem().open_append(self.log)
        with contextlib.closing(log):
            self._log_start = os.lseek(log.fd, 0, os.SEEK_END)
            self._process = self._group.start(
                command, output=log.fd, keeps=self._keeps, environment={**environment, "PLOG_CONFIG": ""}
            )
        self.is_wanted, self.is_paused = True, False

    def _words(self) -> list[str]:
        where = ["--data-dir", str(self.directory)]
        where += ["--listen", str(self.endpoint)] if self._is_placed else []
        return ["serve", "--node-id", str(self.node_id), *where, *self._arguments]

    @property
    def command(self) -> str:
        """The command that starts the broker again by hand, with all its settings."""
        return shlex.join(["plog", *self._words()])

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
        self.signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        """Ends the process as a crash does, paused or not."""
        self.is_wanted = False
        self.signal(signal.SIGKILL)
        self.wait()
        FileSystem().unlink(self._ready_file)

    def stop(self, deadline: float) -> bool:
        """Stops the process cleanly; returns False if it had to be killed at the monotonic time `deadline`."""
        self.is_wanted = self.is_paused = False
        has_ended = self._end(max(deadline - monotonic(), 0))
        FileSystem().unlink(self._ready_file)
        return has_ended

    def _reason(self) -> str:
        lines = self._tail_of_log().splitlines()
        return next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), "")
