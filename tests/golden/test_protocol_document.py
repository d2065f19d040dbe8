"""docs/protocol.md says what is served, and nothing else."""

from __future__ import annotations

import pytest

from tests.support.oracle import requires_kafka
from tests.support.protocol_document import NOTES, PATH, document, kafka_apis
from tests.support.requests import SERVED_APIS

pytestmark = [requires_kafka, pytest.mark.java]


def test_the_document_is_up_to_date() -> None:
    assert PATH.read_text() == document(), "python -m tests.support.protocol_document writes it again"


def test_it_knows_every_api_that_is_served() -> None:
    kafkas = {api.key: api.name for api in kafka_apis()}
    assert {api.key: api.name for api in SERVED_APIS}.items() <= kafkas.items()
    assert set(NOTES) <= {api.name for api in SERVED_APIS}
