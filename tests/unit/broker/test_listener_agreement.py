"""Whether the other brokers can reach one that joins: else it must not register."""

from __future__ import annotations

import pytest

from core.broker.broker_config import BrokerConfig
from core.broker.listener_agreement import ensure_others_reach
from core.common.errors import UsageError
from core.zookeeper.znodes import BrokerEndpoint, BrokerNode


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


@pytest.mark.parametrize(
    ("own", "inner", "theirs"),
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


@pytest.mark.parametrize(
    ("own", "inner", "theirs", "reason"),
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
