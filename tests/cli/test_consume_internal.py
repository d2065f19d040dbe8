"""Kafka's own topics as `plog consume` shows them: the decoded text is that of Kafka's own dump tool."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.server import call_plog


def dumped(name: str) -> list[tuple[int, str, str | None]]:
    """Returns offset, key and value of the records that Kafka's dump tool decodes."""
    text = (GOLDEN / f"{name}.decoded.txt").read_text()
    found = re.findall(r"^\| offset: (\d+) .* key: (\{.*\}) payload: (.*)$", text, re.MULTILINE)
    return [(int(offset), key, None if value == "<DELETE>" else value) for offset, key, value in found]


@for_each("name", ["__consumer_offsets-0", "__consumer_offsets-1", "__consumer_offsets-2", "__transaction_state-0"])
def test_records_from_files_are_as_kafkas_tool_shows_them(name: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    topic = name.rpartition("-")[0]
    options = ["--isolation", "read_uncommitted", "--format", "envelope", "--data-dir", str(tmp_path)]
    rows = [json.loads(line) for line in ok("consume", topic, *options).splitlines()]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == dumped(name) != []


def test_offsets_and_transactions_of_a_log(where: list[str]) -> None:
    ok("produce", "t", "--transactional-id", "i", *where, stdin=b"a\nb\n")
    ok("consume", "t", "--group", "g", "--max-messages", "2", *where)
    filtered = ok("consume", "__consumer_offsets", "--filter", 'key.data.topic == "t"', "--last", "1", *where)
    assert json.loads(filtered)["data"]["offset"] == 3  # after the marker
    states = ok("consume", "__transaction_state", "--format", r"%k %s\n", *where).splitlines()
    begin = b'{"type":"0","data":{"transactionalId":"i"}} {"version":'
    assert any(line.startswith(begin) for line in states)  # the server may have those of others
    raw = ok("consume", "__transaction_state", "--key-format", "none", "--format", r"%k{hex}\n", *where)
    assert b"0000000169" in raw.splitlines()


def test_a_record_of_an_unknown_type_is_shown_as_it_is(tmp_path: Path) -> None:
    ok("produce", "t", "-K", ":", "--data-dir", str(tmp_path / "data"), stdin=b"k:v\n")
    shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "__share_group_state-0")
    shown = call_plog("consume", "__share_group_state", "--format", r"%k %s\n", "--data-dir", str(tmp_path))
    assert (shown.returncode, shown.stdout) == (0, b"k v\n")
    assert b"note: __share_group_state-0 offset 0 is shown as it is" in shown.stderr


def test_a_pattern_takes_no_topics_of_kafkas_own(where: list[str]) -> None:
    ok("produce", "t", "--transactional-id", "i", *where, stdin=b"a\n")
    ok("produce", "__mine", *where, stdin=b"b\n")  # whose name alone looks so
    ok("consume", "t", "--group", "g", "--max-messages", "1", *where)
    assert sorted(ok("consume", "--regex", ".*", *where).splitlines()) == [b"a", b"b"]
    assert ok("consume", "^__.*", *where) == b"b\n"
    assert ok("consume", "--regex", ".*", "--group", "h", "--max-messages", "2", *where).split() in (
        [b"a", b"b"],
        [b"b", b"a"],
    )
    refused = call_plog("consume", "^__consumer_offsets", *where)
    assert refused.returncode == 2
    assert b"and none matches Kafka's own topics" in refused.stderr
