"""A session at a shell as a page shows it: commands, and what each prints, typed and compared.

    $ plog cluster status               a command; one that ends with a backslash goes on in the next line
    partitions: 3, all well             what it prints, on stdout and stderr
    broker 1 127.0.0.1:9092 ..          two dots stand for whatever is there in the line
    ..                                  and a line of them for any lines
    0 of 2 partitions are moved ^C      Ctrl-C, when that is printed

How many blanks there are between words does not count. A command that only looks is typed again until it prints what
the page shows. One that shows an error, or a denial, has an exit code other than 0, and all others 0.
"""

from __future__ import annotations

import re
from time import sleep
from typing import NamedTuple

from tests.support.server import PATIENCE
from tests.support.terminal import Terminal, Typed
from tests.support.waiting import MOST_SECONDS, machine_seconds

_LOOKS = re.compile(
    r"plog (cluster (status|brokers|topics|describe|controller|check|features$)|topic describe|config describe"
    r"|transaction (list|describe|find-hanging))\b|plog consume|grep|curl|tail|cat|ls"
)
"""Commands that change nothing."""
_MAY_BE_SAID = re.compile(rf"\[\d+\][-+ ]|(warning: )?({PATIENCE}|.*; it is tried again for \d+ s|it goes on, after )")
"""What is said of a job by the shell, and of a slow broker by plog, whatever the page shows."""

_INTERRUPT = " ^C"
_PAUSE_SECONDS = 0.5


class ShownCommand(NamedTuple):
    """A command, and the lines that it prints."""

    command: str
    lines: tuple[str, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Fits the text of `plain`."""
        parts = []
        for line in map(_words, self.lines):
            if line.endswith(_INTERRUPT):
                continue
            if line == "..":
                parts.append(r"(?:.*\n)*?")
            else:
                parts.append(r".*".join(map(re.escape, line.split(".."))) + r" ?\n")
        return re.compile("".join(parts))

    @property
    def interrupted_at(self) -> str:
        """What it prints when it is interrupted; nothing if it is not."""
        return next((line.removesuffix(_INTERRUPT) for line in self.lines if line.endswith(_INTERRUPT)), "")

    @property
    def has_error(self) -> bool:
        return any(line.startswith(("error: ", "denied: ")) for line in self.lines)

    def type(self, terminal: Terminal) -> str:
        """Types it. Gives what is not as the page shows it; nothing if all is."""
        deadline = machine_seconds() + MOST_SECONDS
        while True:
            problem = self._problem_of(self._type_once(terminal))
            if not problem or not _LOOKS.match(self.command) or machine_seconds() > deadline:
                return problem
            sleep(_PAUSE_SECONDS)  # leaves the machine to whoever is looked at

    def _type_once(self, terminal: Terminal) -> Typed:
        if not self.interrupted_at:
            return terminal.type(self.command)
        return terminal.type_and_interrupt(self.command, re.escape(self.interrupted_at).encode())

    def _problem_of(self, typed: Typed) -> str:
        text = plain(typed.text)
        shown = "\n".join(self.lines)
        is_failure = typed.code not in (0, 130 if self.interrupted_at else 0)
        if self.pattern.fullmatch(text) and is_failure == self.has_error:
            return ""
        return f"$ {self.command}\nexit code {typed.code}, and it printed\n{typed.text}\nwhere the page shows\n{shown}"


def read_session(page: str) -> list[ShownCommand]:
    """Gives the commands of a page in their order; a block of code that begins with no command is passed over."""
    found: list[ShownCommand] = []
    for block in re.findall(r"(?:^    .*\n)+", page, re.MULTILINE):
        lines = [line[4:] for line in block.splitlines()]
        if not lines[0].startswith("$ "):
            continue
        while lines:
            command = lines.pop(0).removeprefix("$ ")
            while command.endswith("\\"):
                command = command[:-1] + lines.pop(0).lstrip()
            shown = []
            while lines and not lines[0].startswith("$ "):
                shown.append(lines.pop(0))
            found.append(ShownCommand(command, tuple(shown)))
    return found


def plain(text: str) -> str:
    """Gives it without what the shell says of its jobs and plog of brokers that take their time, with one blank between
    words.
    """
    lines = [_words(line) for line in text.splitlines() if not _MAY_BE_SAID.match(line)]
    return "".join(f"{line}\n" for line in lines if line)


def _words(line: str) -> str:
    return " ".join(line.split())
