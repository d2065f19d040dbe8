"""How Spark's driver and tasks reach a secured cluster."""

from __future__ import annotations

import contextlib
import json
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.errors import UsageError
from core.security.client_settings import SECRET_SETTINGS
from core.security.sasl.server_steps import PlainServer
from core.spark.cluster_access import access_of, connect
from core.spark.offset_range import OffsetRange, read_range
from core.spark.range_output import OutputFormat
from core.spark.replay_plan import ReplayPlan
from core.spark.source import find_partitions, open_source, plan_ranges
from core.spark.source_options import SourceOptions
from core.spark.topic_writer import WriterOptions
from tests.support.for_each import for_each
from tests.support.secured_door import Door, secured_door
from tests.support.server import call_plog

pytestmark = pytest.mark.longer


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setenv("KAFKA_PASSWORD", "marked")
    with secured_door({"PLAIN": lambda: PlainServer(lambda *pair: pair == ("alice", "marked"))}) as door:
        door.broker.create_topic("t")
        yield door


def options(door: Door, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": door.address,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
        "subscribe": "t",
        **more,
    }


@pytest.fixture
def config(door: Door, tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=marked\n"
    )
    path.chmod(0o600)
    return path


def test_records_are_read_through_it(door: Door, config: Path) -> None:
    done = call_plog(
        "produce", "t", "--bootstrap-server", door.address, "--command-config", str(config), stdin=b"a\nb\n"
    )
    assert done.returncode == 0, done.stderr.decode()
    for said in (
        options(door),
        {"kafka.bootstrap.servers": door.address, "subscribe": "t", "commandConfig": str(config)},
    ):
        parsed = SourceOptions.parse(said)
        with contextlib.closing(open_source(parsed)) as source:
            partitions = find_partitions(source, parsed)
            ranges = plan_ranges(source, parsed, source.records.starts(partitions), source.records.ends(partitions))
        sent = pickle.loads(
            pickle.dumps([OffsetRange(**json.loads(json.dumps(range_.to_json()))) for range_ in ranges])
        )
        values = [value for range_ in sent for batch in read_range(range_, ("value",)) for value in batch.column(0)]
        assert [value.as_py() for value in values] == [b"a", b"b"]
    assert set(door.names) == {"alice"}


def test_what_is_written_down_holds_no_secret(door: Door, config: Path) -> None:
    parsed = SourceOptions.parse(options(door, commandConfig=str(config)))
    range_ = OffsetRange("t", 0, 0, 1, 1, servers=door.address, access=parsed.access)
    plan = ReplayPlan({}, (range_,), OutputFormat("parquet", "string", "string"))
    for text in (repr(parsed), repr(range_), json.dumps(plan.to_json()), repr(WriterOptions.parse(options(door)))):
        assert "marked" not in text
    assert ReplayPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@for_each("name", sorted(SECRET_SETTINGS))
def test_a_secret_in_an_option_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"option kafka.{name}: Spark's plans and UI show") as raised:
        access_of({f"kafka.{name}": "marked"})
    assert "marked" not in f"{raised.value.message} {raised.value.hint}"


def test_nothing_said_is_plaintext() -> None:
    assert access_of({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}) == ""


@for_each(
    "settings, message",
    [
        ({"kafka.sasl.mechanim": "PLAIN"}, "no setting of Kafka's clients"),
        ({"commandconfig": "/no/such"}, "could not read /no/such"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
    ],
)
def test_what_is_wrong_is_told(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        connect("127.0.0.1:1", access_of(settings))


def test_the_file_names_the_servers_if_no_option_does(door: Door, config: Path, tmp_path: Path) -> None:
    """As it does for `--command-config`."""
    config.write_text(f"bootstrap.servers={door.address}\n{config.read_text()}")
    assert SourceOptions.parse({"subscribe": "t", "commandConfig": str(config)}).servers == door.address
    assert WriterOptions.parse({"topic": "t", "commandConfig": str(config)}).servers == door.address
    both = {"commandConfig": str(config), "kafka.bootstrap.servers": "other:1"}
    assert SourceOptions.parse({"subscribe": "t", **both}).servers == "other:1"
    assert WriterOptions.parse({"topic": "t", **both}).servers == "other:1"
    assert SourceOptions.parse({"path": str(tmp_path), "commandConfig": str(config)}).servers == ""
    named = tmp_path / "kcat.conf"
    named.write_text("metadata.broker.list=b:2\n")
    assert SourceOptions.parse({"subscribe": "t", "commandConfig": str(named)}).servers == "b:2"
    named.write_text("security.protocol=SSL\n")
    with pytest.raises(UsageError, match="read from where"):
        SourceOptions.parse({"subscribe": "t", "commandConfig": str(named)})
    with pytest.raises(UsageError, match="write to where"):
        WriterOptions.parse({"topic": "t", "commandConfig": str(named)})


def test_a_traceback_shows_the_hint() -> None:
    """Spark shows one where a command shows message and hint."""
    with pytest.raises(UsageError) as raised:
        connect("127.0.0.1:1", access_of({"kafka.sasl.usrname": "alice"}))
    shown = traceback.format_exception(raised.value)
    assert shown[-1] == "hint: did you mean sasl.username?\n"


def test_a_plan_is_reached_as_is_said_now(door: Door) -> None:
    plan = ReplayPlan(
        {},
        (OffsetRange("t", 0, 0, 1, 1, servers="a:1", access="old"),),
        OutputFormat("parquet", "string", "string"),
    )
    assert [r.access for r in plan.reached_by("new").ranges] == ["new"]
    assert plan.reached_by("") is plan
    files = ReplayPlan({}, (OffsetRange("t", 0, 0, 1, 1, directory="/d"),), OutputFormat("parquet", "string", "string"))
    assert [r.access for r in files.reached_by("new").ranges] == [""]


def test_pairs_of_resolve_go_with_the_job(door: Door) -> None:
    unknown = options(door, **{"kafka.bootstrap.servers": "kafka.svc", "resolve": f"kafka.svc={door.address}"})
    access = access_of({name.lower(): value for name, value in unknown.items()})
    assert json.loads(access)["resolve"] == f"kafka.svc={door.address}"
    with contextlib.closing(connect("kafka.svc", access)) as client:
        assert "t" in client.refresh()
    assert SourceOptions.parse(unknown).access == access
    assert WriterOptions.parse({name: value for name, value in unknown.items() if name != "subscribe"}).access == access
    assert access_of({"resolve": ""}) == ""
