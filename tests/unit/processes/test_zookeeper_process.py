from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from core.common.endpoint import Endpoint
from core.common.properties_file import parse_properties
from core.processes.process_group import ProcessGroup
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
    "command, log, text",
    [
        ("exit 1", "t1 ERROR the disk is full (X)\n", "ZooKeeper has ended with exit code 1: the disk is full"),
        ("exit 0", "", "ZooKeeper has ended with exit code 0"),
        ("kill -9 $$", "t1 ERROR an error of long ago (X)\n", "ZooKeeper was killed (signal 9)"),
    ],
)
def test_what_was_killed_has_no_other_reason(tmp_path: Path, command: str, log: str, text: str) -> None:
    with ProcessGroup() as group, tempfile.TemporaryFile() as output:
        server = ZooKeeperProcess(tmp_path, Endpoint("127.0.0.1", 21001), group=group)
        server._stderr = output
        server._process = group.start(["/bin/sh", "-c", command], output=output)
        assert server.wait()
        server.log.write_text(log)
        assert server.failure().message == text


def test_errors_of_an_earlier_life_are_not_read(tmp_path: Path) -> None:
    server = ZooKeeperProcess(tmp_path, Endpoint("127.0.0.1", 21001), group=ProcessGroup())
    assert server._tail_of_log() == ""
    text = "t1 ERROR early (X)\nt2 ERROR late (X)\n"
    server.log.write_text(text)
    for start, tail in ((0, text), (text.index("t2"), "t2 ERROR late (X)\n"), (1000, text)):  # 1000: it was begun again
        server._log_start = start
        assert server._tail_of_log() == tail
