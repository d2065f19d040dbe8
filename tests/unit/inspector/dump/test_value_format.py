"""Values in the formats of `plog dump-segment`."""

from __future__ import annotations

import json

import pytest

from core.inspector.dump.value_format import format_text, parse_value_format


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e99999999999999999999", "-1e-99999999999999999999"])
def test_a_number_of_any_exponent_is_shown_as_it_is(number: str) -> None:
    shown = parse_value_format("json")(f'{{"n": {number}}}'.encode())
    assert shown == f'{{"n":{number}}}'


def test_bytes_that_are_no_json_are_shown_as_text() -> None:
    assert format_text(parse_value_format("json")(b"{")) == "{"
    assert json.loads(format_text(parse_value_format("json")(b'{"n": 1}'))) == {"n": 1}
