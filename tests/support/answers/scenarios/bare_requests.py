"""Each API by each version with nothing filled in, and with null where it may or may not stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.answers.asked_broker import AskedBroker
from tests.support.answers.message_codec import Fields, api_keys, fields_that_hold_something, versions_of
from tests.support.answers.scenarios.registry import scenario

_LISTING = {
    "DescribeCluster", "DescribeLogDirs", "DescribeTopicPartitions", "ElectLeaders", "ListConfigResources",
    "ListGroups", "ListTransactions", "Metadata",
}  # fmt: skip
"""What these list by default depends on the scenarios before."""


@scenario
def requests_with_defaults(broker: AskedBroker) -> None:
    for api in _apis():
        broker.ask_each("defaults", api, pick=_pick(api), **_harmless(api))


@scenario
def requests_with_nulls(broker: AskedBroker) -> None:
    """In the first and the last version."""
    for api in _apis():
        for field in fields_that_hold_something(api):
            for version in sorted({versions_of(api)[0], versions_of(api)[-1]}):
                asked = {**_harmless(api), field: None}
                broker.ask(f"{field} is null", api, version, connection="null", pick=_pick(api), **asked)


def _apis() -> Iterator[str]:
    return (api for api in api_keys() if api != "ApiVersions")


def _harmless(api: str) -> Fields:
    """What the request needs so that an answer comes, and soon."""
    return {"Fetch": {"MaxWaitMs": 100}, "Produce": {"Acks": 1}}.get(api, {})


def _pick(api: str) -> Any:
    return _without_lists if api in _LISTING else None


def _without_lists(answer: Fields) -> Fields:
    return {name: value for name, value in answer.items() if not isinstance(value, list)}
