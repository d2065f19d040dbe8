"""What records and names hold can't drive the terminal that it is printed on; in pipes no byte is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.pseudo_terminal import call_at_terminal
from tests.support.server import call_plog

# a colour, a title, C1's CSI, one of a byte, a carriage return, a turn of writing, a tab, an emoji of several
EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J".encode() + b"\x9b" + "\r\u202egnp.exe\tgood 値 👨\u200d👩".encode()
TAME = r"\x1b[31mred\x1b]0;title\x07 \x9b2J\x9b\r\u202egnp.exe" + "\tgood 値 👨\u200d👩"


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    where = ["--data-dir", str(tmp_path / "data")]
    ok("produce", "t", *where, "--key-separator", "=", "--header", "h\x1b=v\x1b[0m", stdin=b"k\x1b[1m=" + EVIL + b"\n")
    return where


@for_each(
    "format_, shown",
    [("value", f"{TAME}\n"), ("%s\\n", f"{TAME}\n"), ("%k %h|%t %o\\n", "k\\x1b[1m h\\x1b=v\\x1b[0m|t 0\n")],
)
def test_consume_on_a_terminal(where: list[str], format_: str, shown: str) -> None:
    printed, code = call_at_terminal("consume", "t", "--format", format_, *where)
    assert (printed.expandtabs(8), code) == (shown.expandtabs(8), 0)


def test_envelopes_on_a_terminal(where: list[str]) -> None:
    printed, _ = call_at_terminal("consume", "t", "--format", "envelope", *where)
    assert printed.rstrip("\n").isprintable()
    assert '"key": "k\\u001b[1m"' in printed


def test_colours_of_the_users_own_pattern_stay(where: list[str]) -> None:
    printed, _ = call_at_terminal("consume", "t", "--format", "\\x1b[32m%k\\x1b[0m\\n", *where)
    assert printed == "\x1b[32mk\\x1b[1m\x1b[0m\n"


def test_raw_on_a_terminal_and_a_pipe_have_the_bytes(where: list[str], tmp_path: Path) -> None:
    assert ok("consume", "t", *where) == EVIL + b"\n"
    assert ok("consume", "t", "--format", "%k", *where) == b"k\x1b[1m"
    printed, _ = call_at_terminal("consume", "t", "--raw", "--format", "%k%h", *where)
    assert printed == "k\x1b[1mh\x1b=v\x1b[0m"
    printed, _ = call_at_terminal("consume", "t", "--out", tmp_path / "out", *where)
    assert (tmp_path / "out").read_bytes() == EVIL + b"\n"


@for_each("format_", ["kafka", "table", "csv", "ndjson"])
def test_dump_segment_on_a_terminal(where: list[str], format_: str) -> None:
    path = Path(where[1]) / "t-0" / "00000000000000000000.log"
    printed, code = call_at_terminal("dump-segment", path, "--print-data-log", "--format", format_)
    assert code == 0
    assert printed.replace("\n", "").replace("\t", "").replace("\u200d", "").isprintable()
    assert "k\\x1b[1m" in printed or "k\\u001b[1m" in printed
    assert b"\x1b[31m" in call_plog("dump-segment", str(path), "--print-data-log", "--format", "kafka").stdout


def test_the_report_of_keys_and_the_life_of_a_record(where: list[str]) -> None:
    ok("produce", "t", *where, "--key-separator", "=", stdin=b"k\x1b[1m=\n" * 3)
    for command in (["stats", where[1]], ["trace", "t@0", *where], ["compact", where[1], "--explain", "--all"]):
        for printed in (call_at_terminal(*command)[0], call_plog(*command).stdout.decode()):
            assert "\x1b" not in printed.replace("\r\x1b[K", ""), command


def test_errors_that_quote_what_they_got(where: list[str]) -> None:
    for command in (["topic", "describe", "\x1b[31mt\u202e", *where], ["consume", "t", "--from", "\x1b[2J", *where],
                    ["nonsense\x1b[2J"], ["topic", "list", "--\x9b"]):  # fmt: skip
        done = call_plog(*command)
        assert done.returncode in (1, 2)
        assert done.stderr.decode().replace("\n", "").isprintable(), command


def test_arrow_does_not_go_to_a_terminal(where: list[str]) -> None:
    printed, code = call_at_terminal("consume", "t", "--format", "arrow", *where)
    assert (code, "stdout is a terminal" in printed) == (2, True)
