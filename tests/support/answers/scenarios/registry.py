"""The scenarios by their names."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.answers.asked_broker import AskedBroker

Scenario = Callable[[AskedBroker], None]

SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Its name is the function's, with - for _. Each makes its own topics and groups, so that any order does."""
    name = function.__name__.replace("_", "-")
    assert name not in SCENARIOS, name
    SCENARIOS[name] = function
    return function
