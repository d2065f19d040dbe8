"""plog's commands with standard streams of any kind, or none: each is a fork of one process that has imported all,
which takes a twentieth of the time of a new one.

A request is a line of JSON: {"arguments": [...], "stdin": WHAT, "stdout": WHAT, "stderr": WHAT, "largest_file": SIZE}.
WHAT is a path, or null for a stream that is closed; SIZE is in bytes, or null. The answer is the exit code, on a line.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

_MODULES = (
    "cli.main",
    "core.pipeline.arrow_text",
    "core.pipeline.text_sink",
    "core.pipeline.produce",
    "core.pipeline.consume",
    "cli.commands.dump_segment",
    "core.broker.broker_server",
    "core.client.net.kafka_client",
    "core.client.admin.admin",
    "core.inspector.recover.recovery_planner",
    "core.inspector.dump.segment_dump",
    "core.inspector.stats.trace",
    "core.inspector.check.verify",
    "core.security.client_settings",
)
"""What most commands need."""


class PlogForks:
    """Ended by `with`."""

    def __enter__(self) -> PlogForks:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.plog_forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=Path(__file__).resolve().parents[2],
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()

    def call(
        self,
        *arguments: str,
        stdin: str | None,
        stdout: str | None,
        stderr: str | None,
        largest_file: int | None = None,
    ) -> int:
        """Gives the exit code of the command. No file becomes larger than `largest_file` bytes: to whoever writes, that
        is as a disk that is full.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {
            "arguments": arguments, "stdin": stdin, "stdout": stdout, "stderr": stderr, "largest_file": largest_file,
        }  # fmt: skip
        self._process.stdin.write(json.dumps(request) + "\n")
        return int(self._process.stdout.readline())


def _serve() -> None:
    import gc
    import importlib

    for name in _MODULES:
        importlib.import_module(name)
    gc.freeze()  # what is collected in a fork is copied first
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(json.loads(line))
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


def _run(request: dict[str, Any]) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.close(number)
        path = request[name]
        if path is None:
            continue
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        if opened != number:  # one before it is closed
            os.dup2(opened, number)
            os.close(opened)
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # as Python begins
        stream = None if request[name] is None else open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    if request["largest_file"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    sys.argv = ["plog", *request["arguments"]]
    from plog.__main__ import main

    main()


if __name__ == "__main__":
    _serve()
