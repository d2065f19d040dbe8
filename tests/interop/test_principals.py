"""Random names of certificates, and rules that map them, to plog and to Java and Kafka.

PLOG_PRINCIPALS=50000    so many of each, in place of 3,000
PLOG_PRINCIPALS_SEED=7   other ones
"""

from __future__ import annotations

import os
import random

import pytest

from core.security.certificate_fields import distinguished_name
from tests.support.oracle import requires_kafka
from tests.support.principals import answers_of_kafka, map_name, random_mapping, random_name

COUNT = int(os.environ.get("PLOG_PRINCIPALS", "3000"))
SEED = int(os.environ.get("PLOG_PRINCIPALS_SEED", "1"))


@pytest.mark.java
@requires_kafka
def test_random_names_and_rules_have_kafkas_answers() -> None:
    rnd = random.Random(SEED)
    names = [random_name(rnd) for _ in range(COUNT)]
    mappings = [random_mapping(rnd) for _ in range(COUNT)]
    answers = answers_of_kafka(names, mappings)
    assert [distinguished_name(name) for name in names] == answers[:COUNT]
    compared = 0
    for (rules, text), expected in zip(mappings, answers[COUNT:], strict=True):
        found, is_refused = map_name(rules, text)
        if not is_refused:
            compared += 1
            assert found == expected, (rules, text)
    assert compared > COUNT / 3
