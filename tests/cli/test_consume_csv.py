"""`plog consume --format csv`: the fields of JSON as columns, read back by Python's csv module and by plog produce."""

from __future__ import annotations

import csv
import io
import json

from tests.cli.conftest import ok
from tests.support.server import call_plog

ROWS = [
    (
        '{"id":"007","customer":{"id":9223372036854775807,"name":"a, \\"b\\"\\nc"},"tags":["a","b"],'
        '"x":0.10,"e":"","n":null}'
    ),
    '{"id":"8","customer":{"id":18446744073709551616},"tags":[],"ok":true,"o":{}}',
]


def test_fields_are_columns(where: list[str]) -> None:
    ok("produce", "t", *where, stdin="\n".join(ROWS).encode())
    printed = ok("consume", "t", "--format", "csv", *where).decode()
    assert printed.splitlines()[0] == "id,customer.id,customer.name,tags,x,e,n,ok,o"
    assert b"\r" not in printed.encode()
    rows = list(csv.reader(io.StringIO(printed)))
    assert rows[1:] == [
        ["007", "9223372036854775807", 'a, "b"\nc', '["a","b"]', "0.10", "", "", "", ""],
        ["8", "18446744073709551616", "", "[]", "", "", "", "true", "{}"],
    ]
    assert ',"",,' in printed  # an empty text, and a null


def test_named_fields_and_those_of_the_record(where: list[str]) -> None:
    ok("topic", "create", "t", "--set", "retention.ms=-1", *where)
    line = json.dumps({"key": "k", "value": ROWS[1], "timestamp": 1_700_000_000_000, "headers": [["h", "v"]]})
    ok("produce", "t", "--format", "envelope", *where, stdin=line.encode())
    fields = "number=customer.id,value.id,none,_topic,_partition,_offset,_timestamp,_key,_header.h"
    assert ok("consume", "t", "--format", "csv", "--fields", fields, *where).decode().splitlines() == [
        "number,value.id,none,_topic,_partition,_offset,_timestamp,_key,_header.h",
        "18446744073709551616,8,,t,0,0,1700000000000,k,v",
    ]
    assert ok("consume", "t", "--from", "end", "--format", "csv", "--fields", "a,b", *where) == b"a,b\n"
    for wrong in "a,,b", "a,a", "=a":
        assert call_plog("consume", "t", "--format", "csv", "--fields", wrong, *where).returncode == 2


def test_it_goes_back_in(where: list[str]) -> None:
    flights = [{"carrier": "UA", "dest": "San, Francisco"}, {"carrier": "HA", "dest": '"HNL"'}]
    ok("produce", "t", *where, stdin="\n".join(map(json.dumps, flights)).encode())
    ok("produce", "u", "--format", "csv", *where, stdin=ok("consume", "t", "--format", "csv", *where))
    assert [json.loads(line) for line in ok("consume", "u", *where).splitlines()] == flights


def test_what_is_no_object_and_what_comes_late_is_counted(where: list[str]) -> None:
    lines = b'{"a":1}\n' * 1000 + b'{"a":2,"late":3}\nno json\n[1]\n'
    ok("produce", "t", *where, stdin=lines)
    done = call_plog("consume", "t", "--format", "csv", *where)
    assert (done.returncode, done.stdout) == (0, b"a\n" + b"1\n" * 1000 + b'2\n""\n""\n')
    assert b"note: 2 records hold no JSON object, or one of more than 200 levels: " in done.stderr
    ok("produce", "text", *where, stdin=b"a,b\n")
    assert ok("consume", "text", "--format", "csv", *where) == b""
    assert ok("consume", "text", "--output", "csv", "--fields", "_value", *where) == b'_value\n"a,b"\n'
    assert b"fields that came after the columns were chosen are left out: late; --fields" in done.stderr


def test_json_as_strangers_write_it(where: list[str]) -> None:
    """Lone surrogates, which no UTF-8 has, in a name, a text and an array; and more levels than a recursion has."""
    lines = [
        r'{"\ud800":"\udc80","a":["\ud83d\ude00","\udfff"]}', '{"a":' + "[" * 190 + "]" * 190 + "}",
        '{"a":' + "[" * 900 + '{"b":1.0}' + "]" * 900 + "}", "{" + '"a":{' * 800 + "}" * 801,
    ]  # fmt: skip
    ok("produce", "t", *where, stdin="\n".join(lines).encode())
    done = call_plog("consume", "t", "--format", "csv", *where)
    rows = list(csv.reader(io.StringIO(done.stdout.decode())))
    assert rows == [
        [r"\ud800", "a"], [r"\udc80", '["\U0001f600","\\\\udfff"]'], ["", "[" * 190 + "]" * 190], ["", ""], ["", ""],
    ]  # fmt: skip
    assert b"note: 2 records hold no JSON object, or one of more than 200 levels: " in done.stderr
