"""kcat, in a shell pipeline."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.cli.test_lines_of_other_tools import SERVER, lines_of
from tests.interop.clients import CODECS, kcat, requires_kcat
from tests.support.server import Server, call_plog
from tests.support.ways_in import plog_options

pytestmark = requires_kcat


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_it_wrote(broker: Server, topic: str, codec: str) -> None:
    lines = b"k1=v1\n=no key\nk3=\n" + b"".join(b"k=the same words again %d\n" % n for n in range(100))
    options = ["-K", "=", "-Z", "-z", codec, "-H", "a=1", "-H", "a=2", "-p", "0"]
    kcat("-P", "-b", broker.address, "-t", topic, *options, stdin=lines)
    found = kcat("-C", "-b", broker.address, "-t", topic, "-o", "beginning", "-e", "-q", "-f", r"%o %K %k %S %s %h\n")
    assert found.splitlines()[:4] == [
        b"0 2 k1 2 v1 a=1,a=2",
        b"1 -1  6 no key a=1,a=2",
        b"2 2 k3 -1  a=1,a=2",
        b"3 1 k 22 the same words again 0 a=1,a=2",
    ]
    done = call_plog("consume", topic, "--format", r"%o %K %k %S %s %h\n", *plog_options(broker.address))
    assert done.stdout == found


def test_kcat_lists_topics(broker: Server) -> None:
    call_plog("topic", "create", "listed", "--partitions", "3", "--bootstrap-server", broker.address)
    metadata = json.loads(kcat("-L", "-J", "-b", broker.address))
    assert [b["name"] for b in metadata["brokers"]] == [broker.address]
    topic = next(t for t in metadata["topics"] if t["topic"] == "listed")
    assert [p["partition"] for p in topic["partitions"]] == [0, 1, 2]


def test_kcat_asks_for_offsets_by_time(broker: Server, topic: str) -> None:
    lines = b"".join(b'{"value": "%d", "timestamp": %d}\n' % (n, 1_600_000_000_000 + n * 10) for n in range(10))
    done = call_plog("produce", topic, "--format", "envelope", "--bootstrap-server", broker.address, stdin=lines)
    assert done.returncode == 0
    query = [f"{topic}:0:{time}" for time in (1_600_000_000_035, 1_600_000_000_040, 0, -1, -2)]
    answers = [kcat("-Q", "-b", broker.address, "-t", q).decode().split()[-1] for q in query]
    assert answers == ["4", "4", "0", "10", "0"]


def test_a_line_of_kcats_and_the_line_of_plog_read_the_same(broker: Server, topic: str) -> None:
    where = ["--bootstrap-server", broker.address]
    assert call_plog("produce", topic, "-K", ":", *where, stdin=b"k:v\n:w\nl:x y\n").returncode == 0
    assert call_plog("produce", f"{topic}-n", "--value-format", "int", *where, stdin=b"42\n-7\n").returncode == 0
    compared = 0
    for theirs, ours in lines_of("kcat"):
        words = [
            word.replace(SERVER, broker.address).replace("orders", topic).replace("numbers", f"{topic}-n")
            for word in shlex.split(theirs)[1:]
        ]
        if "-C" in words and not {"-J", "-r", "-F"} & set(words):
            line = ours.replace(SERVER, broker.address).replace("orders", topic).replace("numbers", f"{topic}-n")
            done = call_plog(*shlex.split(line)[1:])
            assert done.stdout == kcat(*words, "-q", "-e"), theirs
            assert done.stdout, theirs
            compared += 1
    assert compared == 7
