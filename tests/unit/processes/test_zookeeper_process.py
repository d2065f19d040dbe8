from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from core.common.endpoint import Endpoint
from core.common.properties_file import parse_properties
from core.processes.process_group import ProcessGroup, describe_end, read_tail
from core.processes.zookeeper_process import ZooKeeperProcess, _as_property, _last_error
from tests.support.for_each import for_each

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(TEXTS, TEXTS.map(lambda text: f"/{text}."))
def test_each_key_and_value_is_read_from_the_properties_as_it_was(key: str, value: str) -> None:
    line = f"{_as_property(key)}={_as_property(value)}"
    assert line.isascii()
    assert parse_properties(f"{line}\nlast=1\n") == {key: value, "last": "1"}


def test_no_key_sets_what_options_set(tmp_path: Path) -> None:
    own = {"x.y\ndataDir": "/elsewhere", "data\\Dir": "/elsewhere", "#tïck Time": "1", "tickTime": "500"}
    server = ZooKeeperProcess(tmp_path, Endpoint("127.0.0.1", 21001), group=ProcessGroup(), settings=own)
    server._write_files()
    written = parse_properties((tmp_path / "zookeeper.properties").read_text())
    assert written["dataDir"] == str(tmp_path)
    assert own.items() <= written.items()


TRACE = """\
t1 ERROR no (X)
a.$OuterException: why
\tat x
Caused by: a.b.C: not this
\tat y
Caused by: a.DException: "abc"
\t... 2 more
t2 INFO fine (X)
Caused by: another
"""


@for_each(
    "text, reason",
    [
        ("", ""),
        ("a INFO fine (X)\n", ""),
        ("t1 ERROR first (X)\nt2 ERROR second (Main)\n\tat java.lang\n", "second"),
        ("t1 ERROR no (X)\na.b.$DirException: why\n\tat x\nt2 ERROR Exiting JVM with code 1 (S)\n", "no: why"),
        (TRACE, 'no: DException: "abc"'),
        ("Unrecognized VM option 'x'\nError: Could not create\n", "Unrecognized VM option 'x'"),
    ],
)
def test_the_reason_is_found_in_what_it_says(text: str, reason: str) -> None:
    assert _last_error(text) == reason


@for_each(
    "code, reason, text",
    [
        (1, "the disk is full", "has ended with exit code 1: the disk is full"),
        (0, "", "has ended with exit code 0"),
        (-9, "an error of long ago", "was killed (signal 9)"),
    ],
)
def test_what_was_killed_has_no_other_reason(code: int, reason: str, text: str) -> None:
    assert describe_end(code, lambda: reason) == text


def test_errors_of_an_earlier_life_are_not_read(tmp_path: Path) -> None:
    log = tmp_path / "zookeeper.log"
    assert read_tail(log, 0) == ""
    log.write_text("t1 ERROR early (X)\nt2 ERROR late (X)\n")
    start = log.read_text().index("t2")
    assert read_tail(log, 0) == log.read_text()
    assert read_tail(log, start) == "t2 ERROR late (X)\n"
    assert read_tail(log, 1000) == log.read_text(), "it was begun again"
