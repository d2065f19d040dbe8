from __future__ import annotations

import pytest

from core.common.endpoint import parse_bootstrap
from core.common.errors import UsageError
from tests.support.for_each import for_each


@for_each(
    "text, expected",
    [
        ("a:1", [("a", 1)]),
        ("a, b:2 ,", [("a", 9092), ("b", 2)]),
        ("[::1]:3", [("::1", 3)]),
        ("SASL_SSL://a:1,SASL_SSL://[::1]:2", [("a", 1), ("::1", 2)]),
        ("SASL_SSL://a", [("a", 9092)]),
    ],
)
def test_servers_as_people_and_providers_write_them(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == expected
    assert parse_bootstrap(text, "SASL_SSL") == expected


@for_each("text", ["", ",", "a:b", "http://a:1", "a/b:1", "SSL://", "SSL://SSL://a:1"])
def test_what_is_no_server(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bootstrap(text)


def test_a_protocol_that_is_another_than_that_of_the_settings() -> None:
    """Who writes SSL:// is not to be connected in plaintext."""
    with pytest.raises(UsageError, match=r"the settings have security\.protocol=PLAINTEXT") as raised:
        parse_bootstrap("a:1,SASL_SSL://b:2", "PLAINTEXT")
    assert raised.value.hint == "--command-config FILE with security.protocol=SASL_SSL, or the address without it"
