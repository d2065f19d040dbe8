"""`plog serve` as a process, as a user starts it, and plog's other commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest import mock

from cli.main import run
from tests.support.waiting import wait_for_exit, wait_until

PLOG = Path(sys.executable).with_name("plog")
_QUICKLY = """
from core.client.read import classic_member, cluster_source
from plog.__main__ import main

classic_member._HEARTBEAT_SECONDS = cluster_source._REFRESH_SECONDS = 0.2
main()
"""
QUICK_PLOG = [sys.executable, "-c", _QUICKLY]
"""As `plog`, but that a member of a classic group speaks every 0.2 s, not 3, and looks for new topics as often, not
every 10 s.
"""
PATIENCE = r"waiting for \S+, which (has not |accepted )|\S+ does not answer; asking "
"""How lines begin that a command says while it waits for a server."""


class Server:
    """Started by `with`, stopped cleanly at its end; `address` is what clients connect to."""

    def __init__(
        self,
        data_dir: Path,
        *arguments: str,
        environment: dict[str, str] | None = None,
        command: Sequence[str | Path] = (PLOG, "serve"),
    ) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_name(data_dir.name + ".log")
        self.address = ""
        self._arguments = arguments
        self._command = command
        self._environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def start(self) -> None:
        """Returns when clients may connect."""
        process, ready = self.start_without_waiting()

        def is_ready() -> bool:
            assert process.poll() is None, self.log.read_text()
            return ready.exists()

        wait_until(is_ready, self.log.read_text)
        self.address = ready.read_text().strip()

    def start_without_waiting(self) -> tuple[subprocess.Popen[bytes], Path]:
        """The process, and the file that it writes when clients may connect."""
        ready = self.data_dir.with_name(self.data_dir.name + ".ready")
        ready.unlink(missing_ok=True)
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        arguments = ["--data-dir", str(self.data_dir), "--ready-file", str(ready)]
        if not {"--listen", "--listener"} & set(self._arguments):
            arguments += ["--listen", "127.0.0.1:0"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command, *arguments, *self._arguments], stdout=log, stderr=log, env=self._environment
            )
        return self.process, ready

    def pin(self, address: str) -> None:
        """Every later start listens there."""
        self._arguments = (*self._arguments, "--listen", address)

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def stop(self) -> None:
        """A clean stop; fails the test where it is not one."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert wait_for_exit(self.process) == 0, self.log.read_text()

    def kill(self) -> None:
        """As a crash or the OOM killer does it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def __exit__(self, *exception: object) -> None:
        self.stop()


def call_plog(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """As `run_plog`, but in this process, which takes a tenth of the time. Not for what starts Spark: of that there is
    one in a process, which other tests share, and which would be stopped at the end.
    """
    streams = [TextIOWrapper(BytesIO(data), encoding="utf-8", write_through=True) for data in (stdin, b"", b"")]
    with mock.patch.dict(os.environ), mock.patch.multiple(sys, stdin=streams[0], stdout=streams[1], stderr=streams[2]):
        code = run(list(arguments))
    stdout, stderr = (stream.detach().getvalue() for stream in streams[1:])  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(arguments, code, stdout, stderr)


def read_json(code: int, *arguments: str) -> Any:
    """The rows that a command prints, which ends with this code."""
    done = call_plog(*arguments, "--output", "json")
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


def run_plog(
    *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A command of plog's, to its end."""
    return subprocess.run(
        [PLOG, *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **(environment or {})},
        cwd=cwd,
    )


def complaints(stderr: bytes) -> list[bytes]:
    """The lines that a command has said, but for those of a server that takes its time: a machine may stand still."""
    return [line for line in stderr.splitlines() if not re.match(PATIENCE.encode(), line)]
