"""`--debug` shows where an error comes from, and what it says beside; the exit code is the same without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import AccessError, ConnectionFailedError, KafkaError, PlogError, UsageError
from tests.support.for_each import for_each
from tests.support.server import call_plog


def both(*arguments: str) -> tuple[int, str, str]:
    """The exit code, and what the command says without and with the option."""
    quiet, loud = call_plog(*arguments), call_plog("--debug", *arguments)
    assert quiet.returncode == loud.returncode
    assert quiet.stdout == loud.stdout
    return quiet.returncode, quiet.stderr.decode(), loud.stderr.decode()


@for_each(
    "arguments, code",
    [
        (("topic", "describe", "no-such", "--data-dir", "DIR"), 1),
        (("consume", "t", "--bootstrap-server", "127.0.0.1:1"), 3),
        (("consume", "t", "--bootstrap-server", "127.0.0.1:x"), 2),
        (("verify", "DIR/no-such"), 3),
        (("topic", "create"), 2),
        (("no-such-command",), 2),
        (("topic", "list", "--data-dir", "DIR"), 0),
    ],
)
def test_exit_codes_stay_as_they_are(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    given = [one.replace("DIR", str(tmp_path / "data")) for one in arguments]
    assert call_plog("topic", "create", "t", "--data-dir", str(tmp_path / "data")).returncode == 0
    found, quiet, loud = both(*given)
    assert found == code
    assert "Traceback" not in quiet
    said = [line for line in quiet.splitlines() if line.startswith(("error:", "hint:"))]
    assert loud.splitlines()[-len(said) :] == said or not said


def run_alone() -> tuple[int, str]:
    done = call_plog("topic", "list")
    return done.returncode, done.stderr.decode()


@for_each(
    "error",
    [
        UsageError("m", hint="h"),
        AccessError("m"),
        ConnectionFailedError("m"),
        KafkaError(ErrorCode.NOT_CONTROLLER, "m"),
        PlogError("m"),
        ZeroDivisionError("m"),
        PermissionError(13, "m", "/file"),
        ValueError("m"),
    ],
)
def test_each_kind_of_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("cli.main.app", fail)
    quiet_code, quiet = run_alone()
    monkeypatch.setenv("PLOG_DEBUG", "1")
    code, loud = run_alone()
    assert quiet_code == code
    assert code == getattr(error, "exit_code", 3 if isinstance(error, OSError) else 4)
    assert "Traceback" in loud
    assert type(error).__name__ in loud
    assert loud.endswith(quiet)
