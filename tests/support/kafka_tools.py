"""Kafka's own tools, one after the other in one JVM: each of them takes a second or two to start by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.oracle import java_command

_PROGRAM = Path(__file__).resolve().parent / "kafka" / "Tools.java"


class KafkaTools:
    """Started at the first tool, stopped at the end of `with`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()

    def run(self, main_class: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """As `tests.support.oracle.run_tool`."""
        if self._process is None:
            command = java_command(str(_PROGRAM))
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [main_class, stdin.hex(), *(word.encode().hex() for word in arguments)]
        self._process.stdin.write(" ".join(words).encode() + b"\n")
        self._process.stdin.flush()
        code, stdout, stderr = self._process.stdout.readline().decode().removesuffix("\n").split(" ")
        return subprocess.CompletedProcess(arguments, int(code), bytes.fromhex(stdout), bytes.fromhex(stderr))
