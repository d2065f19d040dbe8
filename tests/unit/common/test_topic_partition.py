from __future__ import annotations

import pytest

from core.common.errors import KafkaError
from core.common.topic_partition import ensure_valid_topic_name, name_in_metrics, parse_uuid, random_uuid, uuid_text


def test_names_of_topics() -> None:
    for name in ("a", "flights", "a.b_c-1", "x" * 249):
        ensure_valid_topic_name(name)
    for name in ("", ".", "..", "a b", "ä", "a/b", "x" * 250, "a\n"):
        with pytest.raises(KafkaError, match="topic name"):
            ensure_valid_topic_name(name)


def test_dots_and_underscores_collide() -> None:
    assert name_in_metrics("a.b") == name_in_metrics("a_b")
    assert name_in_metrics("a.b") != name_in_metrics("a-b")


def test_topic_ids_are_url_safe_base64_without_padding() -> None:
    # The id of the metadata topic, as Kafka writes it.
    assert uuid_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\x01"
    for text in ("", "AAAA", "A" * 30, "!!!!!!!!!!!!!!!!!!!!!!"):
        with pytest.raises(ValueError, match="not a Kafka uuid"):
            parse_uuid(text)


def test_random_ids_never_begin_with_a_dash() -> None:
    ids = [random_uuid() for _ in range(2000)]
    assert len(set(ids)) == 2000
    assert not any(uuid_text(i).startswith("-") for i in ids)
    assert all(parse_uuid(uuid_text(i)) == i for i in ids)
