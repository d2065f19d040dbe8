"""Options that do not go together, each pair typed: the command is refused with the reason, and nothing is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from core.common.command_option import Rule
from core.pipeline import consume_request, produce_request, spark_replay_request
from core.pipeline.spark_replay_request import OF_COLUMNS
from core.records.side_format import NO_SCHEMA_JSON
from tests.support.server import call_plog

OF_SCHEMAS = {
    "--schema-context goes with --schema-registry": ["--schema-context c", "--schema-context c --value-schema t.avsc"],
    "--schema-context is empty": [
        "--schema-context= --schema-registry http://r", "--schema-context :.: --schema-registry http://r",
    ],
    "--value-schema 1: no file of a schema (.avsc, .proto, .desc, .json)\n"
    "hint: an id, or SUBJECT[:VERSION], goes with --schema-registry": ["--value-schema 1"],
    "--key-schema t.txt: no file of a schema (.avsc, .proto, .desc, .json)\n"
    "hint: an id, or SUBJECT[:VERSION], goes with --schema-registry": ["--key-schema t.txt"],
    "--value-schema goes with --value-format avro, protobuf, jsonschema or registry, not with --value-format long": [
        "--value-schema 1 --schema-registry http://r --value-format long", "--value-schema t.avsc --value-format long",
    ],
    "--key-schema goes with --key-format avro, protobuf, jsonschema or registry, not with --key-format none": [
        "--key-schema 1 --schema-registry http://r --key-format none",
    ],
    "--value-format avro goes with --value-schema\nhint: --value-schema FILE, or with a registry SUBJECT": [
        "--value-format avro", "--value-format avro --schema-registry http://r",
        "--value-format avro --key-schema a.avsc",
    ],
    "--schema-json goes with a schema (--schema-registry, --value-schema, --key-schema), msgpack or cbor": [
        "--schema-json plain", "--schema-json tagged --value-format long",
    ],
    **{
        f"--key-format {text}: no such format\n"
        "hint: registry, string, long, int, double, uuid, json, base64, avro, protobuf, jsonschema, msgpack, cbor, "
        "none": [f"--key-format {text}"]
        for text in ("protobuf:", "avro:A", "protobu")
    },
}  # fmt: skip

CONSUME = {
    **OF_SCHEMAS,
    "--value-schema is for values that name no schema: not with --value-format registry": [
        "--value-format registry --value-schema t.avsc --schema-registry http://r",
    ],
    "--follow has no --until": ["--follow --until 5"],
    "--as-of and --until: one of them": ["--as-of 5 --until 6"],
    "--latest-per-key and --as-of read to an end: not with --follow or --group": [
        "--latest-per-key --follow", "--latest-per-key --group g", "--as-of 5 --follow", "--as-of 5 --group g",
    ],
    "--merge puts what is there in order: not with --follow or --group": ["--merge --follow", "--merge --group g"],
    "--group has neither --partition nor --until: the group says what is read": [
        "--group g --partition 0", "--group g --until 5",
    ],
    "--group-protocol, --group-instance-id and --commit go with --group": [
        "--group-protocol classic", "--group-protocol consumer", "--group-instance-id i", "--commit before",
    ],
    "a group of --zookeeper has no coordinator: not with --group-protocol or --group-instance-id": [
        "--zookeeper z:1 --group g --group-protocol classic", "--zookeeper z:1 --group g --group-instance-id i",
    ],
    "--group begins in one place on all partitions, whoever reads them: --from WHERE, without a partition": [
        "--group g --from 0=5",
    ],
    "--key chooses the partition: without --partition": ["--key k --partition 0", "-k k -p 0", "--key= -p 0"],
    "--key reads without a group: --filter 'key == \"K\"' goes with --group": ["--key k --group g"],
    "--key and --print-control-records: markers have no keys of yours": ["--key k --print-control-records"],
    "--all-partitions and --partitioner go with --key": ["--all-partitions", "--partitioner crc32"],
    "--all-partitions and --partitioner: one of them": ["--key k --all-partitions --partitioner crc32"],
    "--last N stops at the end: --from -N goes with --follow and --group": [
        "--last 1 --follow", "--last 1 --group g",
    ],
    "--last and --max-messages: one of them": ["--last 1 --max-messages 1"],
    "--last is in order of time anyway: without --merge": ["--tail 1 --merge"],
    "--last does not go with --latest-per-key, --as-of or --join": [
        "--last 1 --latest-per-key", "--last 1 --as-of 5", "--last 1 --join",
    ],
    "--newest-first goes with --last N": ["--newest-first", "--newest-first --max-messages 1"],
    "--per-partition goes with --max-messages": ["--per-partition"],
    "--per-partition does not go with --merge, --follow or --group": [
        "--per-partition --max-messages 0 --merge", "--per-partition --max-messages 1 --follow",
        "--per-partition --max-messages 1 --group g",
    ],
    "--fields goes with --format csv, parquet or arrow": ["--fields a", "--fields a --format envelope"],
    "--format parquet does not go with --group: what is committed would not be written yet": [
        "--group g --format parquet --out there",
    ],
}  # fmt: skip


_OF_FIELDS = "--key-field, --timestamp-field and --topic-field go with lines of JSON, or with --format csv"
_OF_KEY = "--key is for records without a key of their own: not with --key-field, --template, or envelopes"
_OF_TEMPLATE = (
    "--template alone describes the input: not with --format, --key-separator, --key-field, --timestamp-field or "
    "--topic-field"
)
_OF_CRLF = "--crlf goes with lines that end in \\n: with --format lines, envelope or csv, and without --delimiter"
PRODUCE = {
    "--schema-id header goes with --schema-registry, and a side that it writes": [
        "--schema-id header", "--schema-id header --value-schema t.avsc",
        "--schema-id header --schema-registry http://r --value-format long --key-format none",
    ],
    "--schema-reference goes with --schema-registry, and a file in --value-schema or --key-schema": [
        "--schema-reference a=b", "--schema-reference a=b --value-schema t.avsc",
        "--schema-reference a=b --schema-registry http://r",
    ],
    "--rate 0: expected a number above 0 of records a second": ["--rate 0"],
    _OF_FIELDS: [
        "--key-field f -K :", "--timestamp-field f -K :", "--key-field f --format envelope",
        "--timestamp-field f --format raw", "--topic-field f --format envelope", "--topic-field f -K :",
    ],
    "--own-topics goes with --format envelope": ["--own-topics", "--own-topics --format csv"],
    _OF_KEY: ["--key k --key-field f", "--key k --template %s", "--key k --format envelope"],
    "--key-separator goes with --format lines": ["-K : --format csv", "-K : --format json"],
    "--key-separator is empty": ["--key-separator="],
    _OF_TEMPLATE: ["--template %s --format csv", "--template %s --key-field f", "--template %s -K :"],
    "--template ends with its own delimiter": ["--template %s -D :"],
    "--delimiter is empty": ["--delimiter="],
    "--delimiter goes with --format lines or envelope": ["-D : --format csv"],
    **OF_SCHEMAS,
    "--timestamp-unit is the unit of --timestamp-field, and goes with it": ["--timestamp-unit ms"],
    _OF_CRLF: ["--crlf --format raw", "--crlf -D :"],
    r"--crlf goes without --template: end the template in \r\n": ["--crlf --template %s"],
    "--transactional-id is empty": ["--transactional-id="],
    "--transactional-id goes with --acks all": ["--transactional-id i --acks 1"],
    "--tee and --report both print to stdout: one of them": ["--tee --report csv"],
    "--claim-check-above: a number of bytes": ["--claim-check-above -1"],
}  # fmt: skip

_AS_THEY_ARE = "a topic gets records as they are: no columns, formats or --transform"
REPLAY = {
    OF_COLUMNS: ["--to json:d --schema a"],
    NO_SCHEMA_JSON: ["--to json:d --schema-json plain"],
    "--schema-context goes with --value-format registry, or a schema's subject": ["--to json:d --schema-context c"],
    "--dead-letter is of keys and values that are decoded: --value-format FORMAT": ["--to json:d --dead-letter e"],
    "--timezone goes with --partition-by day, hour or date(timestamp)": ["--to json:d --timezone Europe/Berlin"],
    "a topic's records have a timestamp: no --bad-timestamps null": ["--to topic:u --bad-timestamps null"],
    "--latest-per-key is of the whole topic: not with --from-group": ["--to json:d --latest-per-key --from-group g"],
    "--latest-per-key is of the whole topic: not with --continue": ["--to json:d --latest-per-key --continue"],
    "--single-writer is of stores: a folder that every node sees has a lock": ["--to parquet:d --single-writer"],
    _AS_THEY_ARE: [
        "--to topic:u --partition-by day", "--to topic:u --columns value", "--to topic:u --transform m:f",
        "--to topic:u --schema a --value-format json", "--to topic:u --key-format base64",
        "--to topic:u --value-format base64", "--to topic:u --compression gzip", "--to topic:u --file-size 1M",
        "--to topic:u --value-format avro --value-schema a.avsc", "--to topic:u --key-format long",
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is not refused finds an empty directory."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def ensure_refused(command: str, cases: Mapping[str, Sequence[str]], rules: Sequence[Rule]) -> None:
    for why, typed in cases.items():
        for words in typed:
            done = call_plog(*command.split(), *words.split())
            assert (done.returncode, done.stderr.decode(), done.stdout) == (2, f"error: {why}\n", b""), words
    for rule in rules:
        pattern = re.sub(r"\\{.*?\\}", ".+", re.escape(rule.why))
        tested = sum(len(typed) for why, typed in cases.items() if re.fullmatch(pattern, why))
        assert tested >= len(rule.these.split()), rule


def test_consume_refuses_options_that_do_not_go_together() -> None:
    ensure_refused("consume t", CONSUME, consume_request.RULES)


def test_produce_refuses_options_that_do_not_go_together() -> None:
    ensure_refused("produce t", PRODUCE, produce_request.RULES)


def test_spark_replay_refuses_options_that_do_not_go_together() -> None:
    ensure_refused("spark-replay t", REPLAY, spark_replay_request.RULES)
