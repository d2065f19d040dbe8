"""Whether the other brokers can reach one that joins: else it must not register."""

from __future__ import annotations

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.zookeeper_registration import ensure_others_reach, find_doubts
from core.common.errors import UsageError
from core.zookeeper.znodes import BrokerEndpoint, BrokerNode
from tests.support.for_each import for_each


def others(*listeners: str) -> dict[int, BrokerNode]:
    """Brokers 1, 2, ...: one for each list of names."""
    return {
        number: BrokerNode(tuple(BrokerEndpoint(name, "h", 1) for name in names.split(",")), 0)
        for number, names in enumerate(listeners, start=1)
    }


def config(own: str, inner: str | None) -> BrokerConfig:
    listeners = [f"{name}://:{number}" for number, name in enumerate(own.split(","), start=9092)]
    properties = {
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in own.split(",")),
    }
    return BrokerConfig.parse(properties | ({} if inner is None else {"inter.broker.listener.name": inner}))


@for_each(
    "own, inner, theirs",
    [
        ("PLAINTEXT", None, []),
        ("PLAINTEXT", None, ["PLAINTEXT"]),
        ("PLAINTEXT", None, ["PLAINTEXT,EXTERNAL", "EXTERNAL,PLAINTEXT"]),
        ("CLIENT", None, ["CLIENT"]),
        ("CLIENT,INTERNAL", "internal", ["INTERNAL,CLIENT", "INTERNAL"]),
        ("INTERNAL", "INTERNAL", ["CLIENT,INTERNAL,EXTERNAL"]),
    ],
)
def test_a_broker_that_can_be_reached(own: str, inner: str | None, theirs: list[str]) -> None:
    ensure_others_reach(config(own, inner), own.split(","), others(*theirs))


@for_each(
    "own, inner, theirs, reason",
    [
        ("PLAINTEXT", None, ["CLIENT,INTERNAL"], "they have no listener PLAINTEXT; broker 1 has CLIENT://h:1, INT"),
        ("A,B", "B", ["A,B", "A"], "they have no listener B"),
        ("PLAINTEXT", "INTERNAL", ["INTERNAL"], r"it has no listener INTERNAL \(inter.broker.listener.name\)"),
        ("CLIENT", None, ["CLIENT,INTERNAL"], "inter.broker.listener.name does not say which listener they use"),
    ],
)
def test_a_broker_that_can_not(own: str, inner: str | None, theirs: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=f"could not reach this one: {reason}") as refused:
        ensure_others_reach(config(own, inner), own.split(","), others(*theirs))
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("--listener ")


@for_each(
    "own, theirs, problem",
    [
        ("PLAINTEXT", ["SASL_SSL"], "it speaks PLAINTEXT at B, and they speak SASL_SSL there"),
        ("SSL", ["PLAINTEXT", "SSL"], "it speaks SSL at B, and they speak PLAINTEXT or SSL there"),
        ("SASL_SSL", ["SASL_SSL"], None),
        ("SASL_PLAINTEXT", ["SASL_PLAINTEXT", "SASL_PLAINTEXT"], None),
    ],
)
def test_brokers_speak_one_protocol_to_each_other(own: str, theirs: list[str], problem: str | None) -> None:
    """Another's listener for clients may have any."""
    settings = {
        "listeners": "A://:1,B://:2",
        "listener.security.protocol.map": f"A:PLAINTEXT,B:{own}",
        "inter.broker.listener.name": "B",
    }
    brokers = {
        number: BrokerNode((BrokerEndpoint("A", "h", 1, "SASL_SSL"), BrokerEndpoint("B", "h", 2, protocol)), 0)
        for number, protocol in enumerate(theirs, start=1)
    }
    if problem is None:
        ensure_others_reach(BrokerConfig.parse(settings), ["A", "B"], brokers)
        return
    with pytest.raises(UsageError, match=f"could not reach this one: {problem}; broker 1 has A://h:1, B") as refused:
        ensure_others_reach(BrokerConfig.parse(settings), ["A", "B"], brokers)
    assert (refused.value.hint or "").startswith(f"listener.security.protocol.map=B:{sorted(theirs)[0]},")


def member(host: str, rack: str | None) -> BrokerNode:
    return BrokerNode((BrokerEndpoint("PLAINTEXT", host, 9092),), 0, rack)


@for_each(
    "own, theirs, expected",
    [
        (member("k2", None), [], ["no other broker is in this cluster"]),
        (member("k2", None), [member("k1", None)], []),
        (member("k2", "a"), [member("k1", "b")], []),
        (member("localhost", None), [member("127.0.0.1", None)], []),
        (
            member("localhost", None),
            [member("k1", None)],
            ["registers the address PLAINTEXT://localhost:9092, which only this machine"],
        ),
        (member("k3", None), [member("k1", "a"), member("k2", None)], ["no --rack, and brokers 1 have one"]),
        (member("k3", "a"), [member("k1", "a"), member("k2", None)], ["has a rack, and brokers 2 have none"]),
    ],
)
def test_what_is_likely_to_be_a_mistake(own: BrokerNode, theirs: list[BrokerNode], expected: list[str]) -> None:
    found = find_doubts(own, dict(enumerate(theirs, start=1)))
    assert len(found) == len(expected)
    assert all(text in doubt for text, doubt in zip(expected, found, strict=True))
