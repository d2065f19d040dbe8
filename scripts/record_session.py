"""Makes docs/session.svg, the picture in the README: commands typed into a terminal, with what they really print.

.venv/bin/python scripts/record_session.py
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = r"""
plog serve --data-dir ./data &

plog topic create flights --partitions 4 --set retention.ms=-1 --data-dir ./data

zcat sample-data/flights-2013-01.ndjson.gz | plog produce flights \
    --key-field tailnum --timestamp-field time --data-dir ./data

plog consume flights --filter 'value.dest == "SFO" and value.dep_delay > 200' \
    --format '%o %d{strftime[%F %H:%M]} %k\n' --data-dir ./data

plog verify sample-data/damaged

plog recover sample-data/damaged --fix-bits >plan.txt

plog dump-segment --hex data/flights-0/00000000000000000000.log | head -13
""".strip().split("\n\n")
WIDTH, HEIGHT = 92, 50
"""Columns and lines of the terminal: a page of GitHub shows so many at a size that can be read."""


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "sample-data").symlink_to(ROOT / "sample-data")
        shown = run_in_terminal(script(), folder)
    for part in shown.split("\x1e")[1:]:
        command, _, printed = part.partition("\x1f")
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(as_seen(printed)))
        console.print()
    console.save_svg(str(ROOT / "docs" / "session.svg"), title="plog")


def script() -> str:
    """The commands, each after its own text between two marks, and the end of the server."""
    lines = ["trap 'kill $(jobs -p)' EXIT"]
    for command in COMMANDS:
        mark = f"\x1e{command}\x1f\n"
        lines += [f"printf %s {quoted(mark)}", command]
        if command.startswith("plog serve"):
            lines.append("until [ -e data/.lock ] && plog topic list >/dev/null 2>&1 --data-dir data; do :; done")
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def as_seen(printed: str) -> str:
    """Without the progress lines that a later one has overwritten."""
    lines = printed.replace("\r\n", "\n").strip("\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def run_in_terminal(text: str, folder: Path) -> str:
    """What a shell with this script shows on a terminal."""
    own, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {
        **os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}", "PLOG_CONFIG": os.devnull,
        "TERM": "xterm-256color",
    }  # fmt: skip
    for name in ("NO_COLOR", "COLUMNS", "LINES", "PLOG_DATA_DIR"):
        environment.pop(name, None)
    with subprocess.Popen(["bash", "-c", text], cwd=folder, env=environment, stdin=other, stdout=other, stderr=other):
        os.close(other)
        shown = b""
        while True:
            try:
                shown += os.read(own, 65536)
            except OSError:  # Linux's end of a terminal that nobody has open
                break
    os.close(own)
    return shown.decode()


if __name__ == "__main__":
    main()
