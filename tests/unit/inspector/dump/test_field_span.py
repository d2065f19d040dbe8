"""Numbers of fields, as dump-segment --hex and the screen of bytes show them."""

from __future__ import annotations

import pytest

from core.inspector.dump.field_span import shown_number


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("attributes", 0, "0 (none)"),
        ("attributes", 0x10 | 2, "18 (snappy, transactional)"),
        ("attributes", 0x30 | 8, "56 (none, LogAppendTime, transactional, control)"),
        ("attributes", 0x40 | 1, "65 (gzip, delete horizon)"),
        ("crc", 0xAB, "000000ab"),
        ("count", 7, 7),
    ],
)
def test_attributes_and_checksums_are_shown_by_their_meaning(name: str, value: int, shown: object) -> None:
    assert shown_number(name, value) == shown
