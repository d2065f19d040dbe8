from __future__ import annotations

import sys
from pathlib import Path

import pytest

from core.common.errors import UsageError
from core.common.user_function import load_function
from core.inspector.dump.value_format import parse_value_format
from tests.support.for_each import for_each

MODULE = "module_of_a_user"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{MODULE}.py").write_text("def shout(data):\n    return data.decode().upper()\n\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.delitem(sys.modules, MODULE, raising=False)


def test_a_function_of_the_users_folder_is_found() -> None:
    assert load_function(f"{MODULE}:shout")(b"a") == "A"
    assert parse_value_format(f"{MODULE}:shout")(b"b") == "B"


@for_each(
    "text, said",
    [
        ("shout", "--it shout: expected module:function"),
        ("nowhere_at_all:f", "--it nowhere_at_all:f: No module named 'nowhere_at_all'"),
        (f"{MODULE}:whisper", f"--it {MODULE}:whisper: module '{MODULE}' has no attribute 'whisper'"),
        (f"{MODULE}:number", f"--it {MODULE}:number is no function"),
    ],
)
def test_what_is_no_function_is_told(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_function(text, "--it")
    assert str(caught.value) == said
