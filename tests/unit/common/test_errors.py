from __future__ import annotations

import pickle

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import DirectoryLockedError, KafkaError, PlogError, UnreadableFileError, ensure_success
from tests.support.for_each import for_each


def test_codes_have_kafkas_numbers() -> None:
    assert (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_LEADER_OR_FOLLOWER) == (1, 2, 6)
    assert ErrorCode(136).name == "CONTROLLER_ID_NOT_REGISTERED"
    assert sorted(ErrorCode) == list(range(-1, 137))
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR, "of a newer Kafka"
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_long_message_is_cut_once() -> None:
    """Who is told it by a broker makes an error of it again."""
    told = KafkaError(ErrorCode.INVALID_CONFIG, "x" * 32_700).message
    assert told.endswith(" ... (30700 more characters)")
    assert KafkaError(ErrorCode.INVALID_CONFIG, told).message == told
    assert KafkaError(ErrorCode.INVALID_CONFIG, "x" * 2000).message == "x" * 2000


@for_each(
    "code, message, said",
    [
        (29, "Authorization failed.", "orders: Authorization failed."),  # Kafka's, to CreateTopics
        (29, None, "orders: not authorized for the topic"),
        (36, "Topic 'orders' already exists.", "Topic 'orders' already exists."),
    ],
)
def test_a_missing_right_says_for_what(code: int, message: str | None, said: str) -> None:
    with pytest.raises(KafkaError) as refused:
        ensure_success(code, "orders", message)
    assert refused.value.message == said


@for_each(
    "error",
    [
        UnreadableFileError("bad sector", errno=5, path="a.log", position=7),
        DirectoryLockedError("in use", where="/data", holder="process 1", hint="stop it"),
        KafkaError(ErrorCode.INVALID_CONFIG, "no"),
    ],
)
def test_an_error_is_pickled_as_it_is(error: PlogError) -> None:
    """Its arguments are not those of its class, which makes a message of them."""
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert (str(there), vars(there)) == (str(error), vars(error))
