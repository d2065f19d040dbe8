"""What is asked before something that can't be taken back."""

from __future__ import annotations

import io
import sys
from contextvars import Context
from types import SimpleNamespace

import pytest

from cli.options import ensure_meant
from cli.security_options import find_client_settings, find_routes, level_of
from core.common.errors import UsageError
from tests.support.server import call_plog


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_yes_is_the_only_yes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(" Yes \n"))
    ensure_meant("it may lose records", "elect")
    assert capsys.readouterr().err == "elect all the same? (yes/no)\n"
    for answer in ("no\n", "y\n", "\n", ""):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        with pytest.raises(UsageError, match="nothing was changed: the answer was not yes"):
            ensure_meant("it may lose records", "elect")


def test_without_a_terminal_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    with pytest.raises(UsageError, match="it may lose records, and there is no terminal to ask") as refusal:
        ensure_meant("it may lose records", "elect")
    assert refusal.value.hint == "--yes confirms it"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("source", "level"), [("COMMANDLINE", 0), ("ENVIRONMENT", 1)])
def test_what_is_typed_comes_before_the_environment(source: str, level: int) -> None:
    """And both before any section of a file of settings."""
    context = SimpleNamespace(get_parameter_source=lambda _: SimpleNamespace(name=source))
    assert level_of(context, "data_dir") == level


def test_a_command_line_leaves_no_settings_behind() -> None:
    """What runs in its process after it, as a replay of a directory, is not led to its servers."""

    def left_behind() -> tuple[object, object]:
        typed = ["-X", "bootstrap.servers=127.0.0.1:1", "--resolve", "127.0.0.1:1=::1:1"]
        assert call_plog("topic", "list", *typed).returncode == 3
        return find_client_settings(), find_routes([("127.0.0.1", 1)])

    assert Context().run(left_behind) == (None, None)
