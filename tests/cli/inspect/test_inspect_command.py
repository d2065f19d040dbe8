"""`plog inspect` as a command: where it refuses to start, how it ends, and what it leaves alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.for_each import for_each
from tests.support.full_screen import FullScreen
from tests.support.golden import SAMPLE_DATA
from tests.support.server import PLOG, call_plog

PARTITION = SAMPLE_DATA / "partition" / "txn_multisegment-0"


def is_drawn(output: bytes) -> bool:
    return b"offsets 0 to 225" in output and b"k291" in output


@pytest.mark.longer
@pytest.mark.parametrize(
    ("keys", "code"), [(b"q", 0), (b"\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_it_ends_as_other_commands_do_and_gives_the_terminal_back(keys: bytes | signal.Signals, code: int) -> None:
    terminal = FullScreen([PLOG, "inspect", PARTITION])
    terminal.read_until(is_drawn)
    if isinstance(keys, bytes):
        terminal.write(keys)
    else:
        os.kill(terminal.pid, keys)
    assert terminal.end() == code
    assert b"\x1b[?1049l" in terminal.output, "the other screen is left"
    assert b"Traceback" not in terminal.output


@pytest.mark.longer
@pytest.mark.parametrize(
    ("environment", "colours"),
    [({}, b"\x1b[38;5;"), ({"TERM": "xterm"}, b";33;49m"), ({"COLORTERM": "truecolor"}, b"\x1b[38;2;")],
)  # fmt: skip
def test_colours_are_those_that_the_terminal_has(environment: dict[str, str], colours: bytes) -> None:
    terminal = FullScreen([PLOG, "inspect", PARTITION], environment=environment)
    terminal.read_until(lambda output: is_drawn(output) and colours in output)
    terminal.write(b"q")
    terminal.end()
    assert colours in terminal.output
    if environment.get("TERM") == "xterm":
        assert b"38;5;" not in terminal.output
        assert b"38;2;" not in terminal.output


@pytest.mark.longer
def test_without_colours_none_is_drawn() -> None:
    terminal = FullScreen([PLOG, "inspect", PARTITION], environment={"NO_COLOR": "1"})
    terminal.read_until(is_drawn)
    terminal.write(b"q")
    terminal.end()
    assert not re.search(rb"\x1b\[([0-9]+;)*(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]", terminal.output)


@pytest.mark.longer
def test_the_locale_says_which_characters_there_are() -> None:
    terminal = FullScreen([PLOG, "inspect", PARTITION], environment={"LC_ALL": "C"})
    terminal.read_until(is_drawn)
    terminal.write(b"q")
    terminal.end()
    assert terminal.output.isascii()


def test_a_pipe_gets_an_error_and_a_hint() -> None:
    done = call_plog("inspect", str(PARTITION))
    assert done.returncode == 2
    assert b"error: plog inspect draws on a terminal, and stdin or stdout is none" in done.stderr
    assert b"hint: plog consume" in done.stderr


def test_without_textual_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    for name in [name for name in sys.modules if name.startswith(("cli.inspect", "textual."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    done = call_plog("inspect", str(PARTITION))
    assert done.returncode == 3
    assert b"pip install 'plog-kafka[ui]'" in done.stderr


def test_without_textual_serve_the_browser_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    done = call_plog("inspect", str(PARTITION), "--web")
    assert done.returncode == 2
    assert b"error: --web needs the package textual-serve\nhint: pip install 'plog-kafka[ui]'" in done.stderr


@for_each(
    "arguments, code, said",
    [
        (["no/such/path"], 3, b"no such file or directory: no/such/path"),
        (["a", "b", "c"], 2, b"3 places: expected"),
        (["a", "b"], 2, b"a is no path"),
        ([str(SAMPLE_DATA / "partition"), "--bootstrap-server", "127.0.0.1:1", "--data-dir", "x"], 2, b"two places"),
    ],
)
def test_what_can_not_be_shown_is_refused_before_anything_is_drawn(
    arguments: list[str], code: int, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    done = call_plog("inspect", *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_textual_is_imported_by_no_other_command() -> None:
    code = (
        "import sys, cli.main; from cli.main import COMMANDS, run; [__import__('importlib').import_module("
        "'cli.commands.' + name.replace('-', '_')) for name in COMMANDS]; print('textual' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"False\n"


@pytest.mark.longer
def test_looking_writes_nothing(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE_DATA / "partition", tmp_path / "data")

    def state() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in sorted((tmp_path / "data").rglob("*"))
        }

    before = state()
    terminal = FullScreen([PLOG, "inspect", tmp_path / "data", "txn_multisegment"])
    terminal.read_until(is_drawn)
    for keys in (b"m", b"\x1b", b"b", b"\x1b", b"i", b"\x1b", b"v", b"\x1b", b"g", b"\x1b", b"t", b"\x1b", b"\r"):
        terminal.write(keys)
        size = len(terminal.output)
        terminal.read_until(lambda output: len(output) > size)  # noqa: B023
    terminal.write(b"\x03")
    assert terminal.end() == 130
    assert state() == before
