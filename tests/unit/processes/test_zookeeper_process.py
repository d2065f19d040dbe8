from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.properties_file import parse_properties
from core.processes.zookeeper_process import _as_property, _last_error


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).map(str.strip).filter(bool))
def test_each_path_is_read_from_the_properties_as_it_was(path: str) -> None:
    line = f"dataDir=/{_as_property(path)}."
    assert line.isascii()
    assert parse_properties(line) == {"dataDir": f"/{path}."}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("a INFO fine (X)\n", ""),
        ("t1 ERROR first (X)\nt2 ERROR second (Main)\n\tat java.lang\n", "second"),
        ("t1 ERROR no (X)\na.b.$DirException: why\n\tat x\nt2 ERROR Exiting JVM with code 1 (S)\n", "no: why"),
        ("Unrecognized VM option 'x'\nError: Could not create\n", "Unrecognized VM option 'x'"),
    ],
)
def test_the_reason_is_found_in_what_it_says(text: str, reason: str) -> None:
    assert _last_error(text) == reason
