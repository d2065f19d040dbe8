"""stdin, stdout and stderr, prepared for every command, even if its parent closed some of them.

- A descriptor that was closed when plog began is filled: otherwise the next opened file, perhaps a log, would get its
  number, and output for the terminal would be written into the log. Reading a closed stdin, or writing to a closed
  stdout, is an error.
- An error of stdin or stdout names the stream, as one of a file names the file; `cli/main.py` makes a message of it.
- A character that a stream's encoding does not have is written as `\\u2588`; bytes of records pass as they are.
- Messages on a broken stderr are dropped: the work goes on, and the exit code is what it would have been.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from core.common.out_file import NamedFile

STDIN, STDOUT = "stdin", "stdout"

_CLOSED = "it is closed"


class _ClosedStdin(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def readinto(self, buffer: Any, /) -> int:  # noqa: ARG002
        raise OSError(errno.EBADF, _CLOSED, STDIN)


class _ClosedStdout(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # noqa: ARG002
        raise OSError(errno.EBADF, _CLOSED, STDOUT)


class _Stderr(io.FileIO):
    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except OSError:
            return len(memoryview(data).cast("B"))


def open_standard_streams() -> None:
    """Puts the three streams in the places of Python's own. It is called once, before any file is opened."""
    for number in range(3):
        _fill(number)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedStdin()), encoding="utf-8")
    out = _ClosedStdout() if sys.stdout is None else NamedFile(1, STDOUT, closefd=False)
    sys.stdout = _writer(out, sys.stdout)
    sys.stderr = _writer(_Stderr(2, "wb", closefd=False), sys.stderr, is_messages=True)


def _fill(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)


def _writer(raw: io.RawIOBase, before: Any, *, is_messages: bool = False) -> io.TextIOWrapper:
    """`before` is Python's own stream, whose encoding is kept, or None if its descriptor was closed. It is buffered
    even with PYTHONUNBUFFERED: unbuffered, a write ends early without an error when the disk is full or a signal comes.
    """
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace",
        newline="\n",
        line_buffering=is_messages or raw.isatty(),
    )
