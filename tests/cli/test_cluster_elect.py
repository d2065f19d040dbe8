"""What `plog cluster elect` shows if something happens just after the election: the controller's answer in any case."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cli.cluster.elect import _planned
from core.client.admin.admin import Admin
from core.client.cluster_admin.cluster_admin import ClusterAdmin
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from tests.support.for_each import for_each
from tests.support.server import Server, call_plog

Outcome = dict[TopicPartition, KafkaError | None]


@pytest.fixture
def own_server(tmp_path: Path) -> Iterable[Server]:
    with Server(tmp_path / "data") as server:
        for name in ("going", "staying"):
            call_plog("topic", "create", name, "--bootstrap-server", server.address)
        yield server


def elect(
    server: Server, monkeypatch: pytest.MonkeyPatch, then: Callable[[ClusterAdmin], None], code: int = 0
) -> tuple[list[dict[str, Any]], str]:
    """The controller elects for `going`, and not for `staying`; `then` happens before anybody can look."""

    def answer(admin: ClusterAdmin, _kind: object, partitions: Iterable[TopicPartition]) -> Outcome:
        outcome = {p: None if p.topic == "going" else refusal for p in partitions}
        then(admin)
        return outcome

    refusal = KafkaError(ErrorCode.ELECTION_NOT_NEEDED if code == 0 else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    monkeypatch.setattr(ClusterAdmin, "elect_leaders", answer)
    where = ("--bootstrap-server", server.address, "--output", "json")
    done = call_plog("cluster", "elect", "--preferred", "going", "staying", *where)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr.decode()


@for_each(
    "leader, isr, expected",
    [
        (1, (1, 2), "1 leads: not needed"), (2, (1, 2), "1 would lead"), (2, (2,), "1 is not in sync: refused"),
        (-1, (9,), "9 is away: refused"),
    ],
)  # fmt: skip
def test_what_a_dry_run_expects(leader: int, isr: tuple[int, ...], expected: str) -> None:
    """Of brokers 1 and 2 that live; a broker that died as the last one stays in the ISR."""
    replicas = (9,) if isr == (9,) else (1, 2)
    placed = ReplicatedPartition(TopicPartition("t", 0), leader, 5, replicas, isr)
    assert _planned(placed, [1, 2], is_unclean=False)["result"] == expected


def delete_one(admin: ClusterAdmin) -> None:
    Admin(admin._client).delete_topics(["going"])


@pytest.mark.longer
def test_a_topic_that_was_deleted_does_not_hide_the_others(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, said = elect(own_server, monkeypatch, delete_one)
    assert [(row["partition"], row["leader"], row["result"]) for row in rows] == [
        ("going-0", None, "elected"), ("staying-0", 1, "not needed"),
    ]  # fmt: skip
    assert "note: the present leader of going-0 is not known: " in said
    assert "or the partition is gone" in said


@pytest.mark.longer
@pytest.mark.parametrize("code", [0, 1])
def test_no_broker_answers_any_more(own_server: Server, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The exit code is that of the elections."""
    rows, said = elect(own_server, monkeypatch, lambda _: own_server.stop(), code)
    assert [(row["before"], row["leader"]) for row in rows] == [(1, None), (1, None)]
    assert rows[0]["result"] == "elected"
    assert (
        f"note: the present leaders are not known: could not connect to {own_server.address}: connection refused"
        in said
    )
