"""`plog consume --key`: the partition that is read, why, and what is found."""

from __future__ import annotations

import json
import re

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import call_plog


def keyed(*keys: str) -> bytes:
    return "".join(f"{key}:{number}\n" for number, key in enumerate(keys)).encode()


NAMES = [f"key-{number}" for number in range(40)]


def make(where: list[str], *options: str, topic: str = "t", partitions: int = 6, keys: list[str] | None = None) -> None:
    ok("topic", "create", topic, "--partitions", str(partitions), *where)
    ok("produce", topic, "-K", ":", *options, *where, stdin=keyed("42", *(NAMES if keys is None else keys), "42"))


def of_key(*options: str, topic: str = "t") -> tuple[str, list[str]]:
    done = call_plog("consume", topic, "--format", r"%p %s\n", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(), [line for line in done.stderr.decode().splitlines() if "key" in line]


@for_each(
    "partitioner, name, number",
    [("murmur2", "murmur2", 4), ("consistent_random", "crc32", 2), ("fnv1a_random", "fnv1a", 5),
     ("hash-ref", "hash-ref", 3)],
)  # fmt: skip
def test_the_newest_keys_show_the_partitioner(where: list[str], partitioner: str, name: str, number: int) -> None:
    make(where, "--partitioner", partitioner, topic=name)
    shown, said = of_key("--key", "42", *where, topic=name)
    assert shown == f"{number} 0\n{number} 41\n"
    assert re.fullmatch(
        rf"note: key 42 of {name}: partition {number} of 6 by {name}, as (\d+) of the \1 newest keys; "
        "--all-partitions reads all",
        said[0],
    )


def test_a_partitioner_by_name_is_believed(where: list[str]) -> None:
    make(where)
    shown, said = of_key("-k", "42", "--partitioner", "crc32", *where)
    assert (shown, said) == (
        "",
        [
            "note: key 42 of t: partition 2 of 6 by crc32",
            "note: no record of that key was found there; --all-partitions looks into the others",
        ],
    )
    assert of_key("-k", "42", "--all-partitions", *where) == ("4 0\n4 41\n", [])
    assert of_key("-k", "42", "--last", "1", *where)[0] == "4 41\n"
    assert of_key("-k", "42", "--latest-per-key", *where)[0] == "4 41\n"
    assert of_key("-k", "4", *where)[0] == ""
    assert call_plog("consume", "t", "-k", "42", "--partitioner", "sticky", *where).returncode == 2
    assert call_plog("consume", "t", "-k", "42", "--partitioner", "none", *where).returncode == 2
    assert call_plog("consume", "t", "-k", "x", "--key-format", "int", *where).returncode == 2


def test_where_nothing_is_sure_all_partitions_are_read(where: list[str]) -> None:
    make(where, keys=["a"])
    shown, said = of_key("-k", "42", *where)
    assert shown == "4 0\n4 2\n"
    assert said == [("note: key 42 of t: all 6 partitions are read: the 2 newest keys do not show a partitioner; "
                    "--partitioner NAME says it")]  # fmt: skip


def test_partitions_that_were_added_later(where: list[str]) -> None:
    """By murmur2 UA lies in partition 1 of 3, and 4 of 6."""
    make(where, partitions=3, keys=["UA", *NAMES])
    ok("topic", "alter", "t", "--partitions", "6", *where)
    ok("produce", "t", "-K", ":", *where, stdin=keyed("UA", *[f"{name}-{n}" for name in NAMES for n in range(40)]))
    shown, said = of_key("-k", "UA", *where)
    assert sorted(shown.splitlines()) == ["1 1", "4 0"]
    assert said[0].startswith("note: key UA of t: partitions 1, 4 of 6 by murmur2, as ")
    assert said[0].endswith("; its oldest keys lie as among 3 partitions: some were added later")


@for_each("compression", ["none", "lz4"])
def test_keys_that_are_no_text(where: list[str], compression: str) -> None:
    """Java's IntegerSerializer writes 00 00 00 2a, which murmur2 puts into partition 0."""
    options = ["--key-format", "int", "--compression", compression]
    make(where, *options, topic=compression, keys=[str(n) for n in range(60) if n != 42])
    shown, said = of_key("-k", "42", "--key-format", "int", *where, topic=compression)
    assert shown == "0 0\n0 60\n"
    assert "partition 0 of 6 by murmur2" in said[0]


def test_an_empty_key_is_no_null_key(where: list[str]) -> None:
    ok("topic", "create", "t", "--partitions", "3", *where)
    rows = [{"key": key, "value": str(n), "partition": n} for n, key in enumerate(("", None, "a"))]
    ok("produce", "t", "--format", "envelope", *where, stdin="".join(json.dumps(r) + "\n" for r in rows).encode())
    assert of_key("--key", "", *where)[0] == "0 0\n"
