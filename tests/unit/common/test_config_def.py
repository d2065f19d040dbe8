from __future__ import annotations

import pytest

from core.common.config_def import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    at_least,
    between,
    each_of,
    one_of,
    throttled_replicas,
    value_text,
)
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from tests.support.for_each import for_each

DEF = ConfigDef(
    "topic",
    [
        ConfigKey("retention.ms", ConfigType.LONG, 7, "How long.", at_least(-1)),
        ConfigKey("ratio", ConfigType.DOUBLE, 0.5, "How much.", between(0, 1)),
        ConfigKey("policy", ConfigType.LIST, ["delete"], "What.", each_of("compact", "delete")),
        ConfigKey("codec", ConfigType.STRING, "producer", "Which.", one_of("zstd", "producer")),
        ConfigKey("small", ConfigType.INT, None, "A number, or none."),
        ConfigKey("flag", ConfigType.BOOLEAN, False, "Whether."),
    ],
)


@for_each(
    "name, text, value",
    [
        ("retention.ms", " 604800000 ", 604800000),
        ("ratio", "0.1", 0.1),
        ("policy", "compact, delete", ["compact", "delete"]),
        ("codec", "zstd", "zstd"),
        ("small", "-5", -5),
        ("flag", "TRUE", True),
    ],
)
def test_text_becomes_the_type_of_the_key(name: str, text: str, value: object) -> None:
    assert DEF[name].parse(text) == value


# The words are those of Apache Kafka 4.3's ConfigDef.
REFUSED = [
    ("retention.ms", "soon", "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    ("ratio", "1.5", "Invalid value 1.5 for configuration ratio: Value must be no more than 1"),
    ("codec", "brotli", "Invalid value brotli for configuration codec: String must be one of: zstd, producer"),
    ("small", "2147483648", "Invalid value 2147483648 for configuration small: Not a number of type INT"),
    ("flag", "yes", "Invalid value yes for configuration flag: Expected value to be either true or false"),
]


@for_each("name, text, message", REFUSED)
def test_a_bad_value_is_refused_in_kafkas_words(name: str, text: str, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        DEF[name].parse(text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message == message


def test_a_list_takes_its_choices_alone() -> None:
    """None and one twice are taken, as Kafka 4.3 takes them."""
    assert DEF["policy"].parse("") == []
    assert DEF["policy"].parse("compact,compact") == ["compact", "compact"]
    with pytest.raises(KafkaError, match="Invalid value"):
        DEF["policy"].parse("compact,shred")


@for_each("text", ["-1", "0", "*,0:1", "0:1:2", "a:b", "0:"])
def test_what_names_no_replicas(text: str) -> None:
    assert "literal '*'" in (throttled_replicas(ConfigKey("k", ConfigType.LIST, [], "").parse(text)) or "")


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(KafkaError, match=r"Unknown topic config name: retention\.mss") as caught:
        DEF["retention.mss"]
    assert caught.value.hint == "did you mean retention.ms?"


def test_values_print_as_kafka_prints_them() -> None:
    assert [value_text(v) for v in (True, ["a", "b"], 5, None, 0.5)] == ["true", "a,b", "5", None, "0.5"]
