"""A terminal: its width, the width of a text on it, lines that are broken between words, and messages to it."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from core.common.errors import PlogError, UsageError
from core.common.printable import printable, printable_bytes

if TYPE_CHECKING:
    from core.pipeline.record_printer import ByteSink

_USUAL_WIDTH = 80
_EMOJI_SIGN = "\ufe0f"
"""Turns the character before it into an emoji, which is wide."""


def is_terminal() -> bool:
    return sys.stdout.isatty()


def likes_colour() -> bool:
    """Returns whether the user wants colour, too."""
    return is_terminal() and "NO_COLOR" not in os.environ


class EscapedBytes:
    """Writes to stdout so that no byte can control the terminal: control characters are escaped, except newline and
    tab. Each write has whole characters. Owned by one task.
    """

    def write(self, data: bytes | memoryview) -> None:
        sys.stdout.buffer.write(printable_bytes(data))

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Does nothing: stdout stays open."""


def open_stdout(*, is_raw: bool = False) -> ByteSink:
    """Returns the target of records' bytes: unchanged into a pipe or a file, or with `is_raw`; else escaped."""
    sys.stdout.flush()
    return EscapedBytes() if is_terminal() and not is_raw else sys.stdout.buffer


def ensure_no_terminal(option: str, hint: str = "redirect stdout to a file or a pipe") -> None:
    """Raises UsageError if binary data would go to a terminal."""
    if is_terminal():
        raise UsageError(f"{option}: these are bytes for programs, and stdout is a terminal", hint=hint)


def find_width(stream: TextIO) -> int | None:
    """Returns the columns of the stream's terminal, or COLUMNS; None for a pipe or a file."""
    if not stream.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH


def can_show(text: str, stream: TextIO) -> bool:
    """Returns whether the stream's encoding has all these characters."""
    try:
        text.encode(stream.encoding)
    except UnicodeEncodeError:
        return False
    return True


def text_width(text: str) -> int:
    """Counts the columns that the text takes; too many if terminals differ (an emoji that is joined from several)."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 1 if character == _EMOJI_SIGN else 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fill(pieces: Sequence[str], glue: str, width: int, *, first: str = "", indent: str = "") -> list[str]:
    """Makes lines of pieces with the glue between them; the first line begins with `first`, the others with `indent`.

    No piece is broken. One that is wider than the line beside the indent begins a line without it: if it is wider than
    the terminal, too, the terminal goes on in the next line, and it can still be copied as one.
    """
    lines: list[str] = []
    line, is_begun = first, False
    for piece in pieces:
        joint = glue if is_begun else ""
        if text_width(line + joint + piece) <= width:
            line, is_begun = line + joint + piece, True
            continue
        if line.strip():
            lines.append(line.rstrip(" "))
        line, is_begun = piece if text_width(indent + piece) > width else indent + piece, True
    return [*lines, line.rstrip(" ")]


def cut(text: str, width: int) -> str:
    """Cuts the text to the width: for changing lines, which nobody copies."""
    while text_width(text) > width:
        text = text[:-1]
    return text


def wrapped(text: str, width: int | None) -> str:
    """Breaks each line that is wider than that between words, and indents the rest."""
    if width is None:
        return text
    return "\n".join(line for whole in text.split("\n") for line in _wrap(whole, width))


def _wrap(line: str, width: int) -> list[str]:
    if text_width(line) <= width:
        return [line]
    words = line.lstrip(" ")
    start = line[: len(line) - len(words)]
    return fill(words.split(" "), " ", width, first=start, indent=f"{start}  ")


def show(text: str) -> None:
    """Prints text to stdout for people: control characters escaped, on a terminal broken between words."""
    print(wrapped(printable(text), find_width(sys.stdout)))


def clear_screen() -> None:
    """Clears a terminal; a pipe gets one listing after the other."""
    if is_terminal():
        sys.stdout.write("\x1b[H\x1b[2J")
        sys.stdout.flush()


def say(text: str) -> None:
    """Prints to stderr: stdout is for data. Control characters are escaped, lines broken between words."""
    print(wrapped(printable(text), find_width(sys.stderr)), file=sys.stderr)


def say_failures(failures: Sequence[PlogError]) -> int:
    """Prints each to stderr, and a hint that several have in a row once; returns the exit code, 0 without failures."""
    for number, error in enumerate(failures, 1):
        say(f"error: {error.message}")
        if error.hint and error.hint not in [following.hint for following in failures[number : number + 1]]:
            say(f"hint: {error.hint}")
    return max((error.exit_code for error in failures), default=0)
