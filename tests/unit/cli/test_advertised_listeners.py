"""What `plog serve --advertise` makes of advertised.listeners."""

from __future__ import annotations

import pytest

from cli.commands.serve import _advertised_listeners
from core.broker.config.broker_config import BrokerConfig


@pytest.mark.parametrize(
    ("settings", "advertise", "expected"),
    [
        ({}, ["broker:9092"], ["PLAINTEXT://broker:9092"]),
        (
            {"listeners": "A://:1,B://:2", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
             "inter.broker.listener.name": "A", "advertised.listeners": "A://inside:1,B://outside:2"},
            ["b://elsewhere:3"],
            ["A://inside:1", "B://elsewhere:3"],
        ),
    ],
    ids=["of one listener", "of one of two, the other keeps its own"],
)  # fmt: skip
def test_each_listener_has_its_address(settings: dict[str, str], advertise: list[str], expected: list[str]) -> None:
    assert _advertised_listeners(BrokerConfig.parse(settings), advertise) == expected
