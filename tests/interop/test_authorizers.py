"""Random questions to plog's rules and to Kafka's authorizers: StandardAuthorizer of 4.4, AclAuthorizer of 3.9.

PLOG_AUTHORIZER_QUESTIONS=100000    so many to each, in place of 5,000
PLOG_AUTHORIZER_SEED=7              other ones
"""

from __future__ import annotations

import os

import pytest

from tests.support.authorizers import answers_of_kafka, differences, random_cases
from tests.support.oracle import requires_kafka, requires_kafka39

QUESTIONS = int(os.environ.get("PLOG_AUTHORIZER_QUESTIONS", "5000"))
SEED = int(os.environ.get("PLOG_AUTHORIZER_SEED", "1"))


@pytest.mark.java
@pytest.mark.parametrize(
    "authorizer",
    [
        pytest.param("StandardAuthorizer", marks=requires_kafka),
        pytest.param("AclAuthorizer", marks=requires_kafka39),
    ],
)
def test_random_questions_have_kafkas_answers(authorizer: str) -> None:
    cases = list(random_cases(QUESTIONS, SEED))
    theirs = answers_of_kafka(authorizer, cases)
    assert len(theirs) == sum(len(case.questions) for case in cases)
    assert differences(authorizer, cases, theirs) == []
