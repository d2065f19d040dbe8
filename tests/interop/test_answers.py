"""plog answers as Apache Kafka does, but where the documents say why not.

Kafka's answers are recorded in tests/golden/answers, so that this needs no JVM; `scripts/compare-with-kafka` asks both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import recorded
from tests.support.answers.asked_broker import PLOG, Step
from tests.support.answers.brokers import ask, plog_server, prepare
from tests.support.answers.comparison import differences
from tests.support.answers.known_differences import AT_RANDOM, KNOWN, find_known
from tests.support.answers.message_codec import DEFINITIONS, GOLDEN
from tests.support.answers.scenarios import SCENARIOS
from tests.support.oracle import requires_kafka

DOCUMENTS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with plog_server(tmp_path_factory.mktemp("answers")) as server:
        prepare(server.address, PLOG)
        yield server.address


@pytest.mark.first
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_answers_are_kafkas_but_for_the_known_differences(scenario: str, address: str) -> None:
    found = differences(ask(SCENARIOS[scenario], address, PLOG), recorded.read_answers(scenario))
    explained = [find_known(scenario, difference) for difference in found]
    unexplained = [str(difference) for difference, known in zip(found, explained, strict=True) if known is None]
    assert not unexplained, "\n".join(unexplained)
    if scenario == AT_RANDOM:  # what a seed meets is chance
        return
    needless = [known for known in KNOWN if scenario in known.scenarios and known not in explained]
    assert not needless, f"these differ no longer: {needless}"


@pytest.mark.first
def test_a_change_anywhere_in_an_answer_is_a_difference() -> None:
    """Else equal answers would say nothing."""
    step = Step("offset 0", "Fetch", 18)
    answer = recorded.read_answers("fetch-one-partition")[step]
    assert differences({step: answer}, {step: answer}) == []
    assert differences({}, {step: answer}) != []
    changed = list(_changed(answer))
    assert len(changed) > 20
    assert [other for other in changed if differences({step: other}, {step: answer}) == []] == []


def _changed(value: Any) -> Iterator[Any]:
    """The value with each of its parts changed, one at a time."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: other} for other in _changed(part))
            yield {other: each for other, each in value.items() if other != name}
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in _changed(part))
            yield [*value[:index], *value[index + 1 :]]
    else:
        yield "something else"


@pytest.mark.first
def test_each_reason_is_in_its_document() -> None:
    missing = [
        known.reason
        for known in KNOWN
        if known.reason.text not in " ".join((DOCUMENTS / known.reason.document).read_text().split())
    ]
    assert missing == []


@pytest.mark.first
def test_the_table_and_the_records_are_of_scenarios_that_there_are() -> None:
    assert {scenario for known in KNOWN for scenario in known.scenarios} <= set(SCENARIOS)
    assert {path.stem for path in GOLDEN.glob("*.ndjson")} == set(SCENARIOS)


@requires_kafka
@pytest.mark.java
def test_the_recorded_definitions_are_kafkas() -> None:
    assert DEFINITIONS.read_text() == recorded.definitions_text()
