"""The two brokers that are compared, fresh and with the same settings."""

from __future__ import annotations

from pathlib import Path

from tests.support.answers.asked_broker import AskedBroker, Habits
from tests.support.answers.comparison import Answers
from tests.support.answers.scenarios.registry import Scenario
from tests.support.kafka_server import KafkaServer
from tests.support.server import Server

_SETTINGS = {
    "num.partitions": "4",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
}
_SETTINGS_OF_KAFKA = {"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false"}
"""Else 4.3 assigns again only a second later, and in the background: every scenario would wait for it."""


def plog_server(folder: Path) -> Server:
    """To be started with `with`."""
    options = [option for key, value in _SETTINGS.items() for option in ("--set", f"{key}={value}")]
    return Server(folder / "plog", *options)


def kafka_server(folder: Path) -> KafkaServer:
    """Likewise; formatted already."""
    settings = {**_SETTINGS, **_SETTINGS_OF_KAFKA}
    server = KafkaServer(folder / "kafka", **{key.replace(".", "_"): value for key, value in settings.items()})
    server.format()
    return server


def prepare(address: str, habits: Habits) -> None:
    broker = AskedBroker(address, habits)
    broker.start_coordinators()
    broker.close()


def ask(scenario: Scenario, address: str, habits: Habits) -> Answers:
    """What the broker answers in it."""
    broker = AskedBroker(address, habits)
    try:
        scenario(broker)
    finally:
        broker.close()
    return broker.answers
