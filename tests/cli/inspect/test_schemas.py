"""Values with a schema of a Schema Registry, on the screens of records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.records.side_format import SideFormats
from tests.cli.inspect.support import inspecting, press, screen_text, status, with_loop
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.server import call_plog

SCHEMA = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}


def written(folder: Path, registry: SchemaRegistryServer) -> None:
    """Makes a topic with a record of the schema, one that is plain text, one that is cut off, and one of no schema."""
    where = ("--data-dir", str(folder))
    (folder.parent / "flight.avsc").write_text(json.dumps(SCHEMA))
    call_plog("topic", "create", "t", *where)
    schema = ("--schema-registry", registry.url, "--value-schema", str(folder.parent / "flight.avsc"))
    assert call_plog("produce", "t", *schema, *where, stdin=b'{"carrier": "UA"}\n').returncode == 0
    assert call_plog("produce", "t", *where, stdin=b"plain\n").returncode == 0
    bad = b'{"value": {"base64": "AAAAAAH///8="}}\n{"value": {"base64": "AAAAA+d4eA=="}}\n'
    assert call_plog("produce", "t", "--format", "envelope", *where, stdin=bad).returncode == 0


@with_loop
async def test_values_are_shown_as_the_registry_reads_them(tmp_path: Path) -> None:
    with SchemaRegistryServer() as registry:
        written(tmp_path / "data", registry)
        async with inspecting(tmp_path / "data", "t", schemas=SideFormats(registry.url)) as pilot:
            text = screen_text(pilot.app)
            assert '{"carrier": "UA"}' in text
            assert "plain" in text
            assert "as schema" in text
            for reason in ("(not of schema 1, which it names: ", ": Schema not "):
                assert reason in text
            await press(pilot, "enter")
            assert '"carrier": "UA"' in screen_text(pilot.app)
            await press(pilot, "escape", "down", "down", "enter")
            assert "(not of schema 1, which it names: the datum ends too early)" in screen_text(pilot.app)
            await press(pilot, "escape", "x")
            assert "as hex" in screen_text(pilot.app)


@pytest.mark.longer
@with_loop
async def test_a_registry_that_is_down_is_reported_and_other_forms_work(tmp_path: Path) -> None:
    with SchemaRegistryServer() as registry:
        written(tmp_path / "data", registry)
    async with inspecting(tmp_path / "data", "t", schemas=SideFormats(registry.url)) as pilot:
        assert "the Schema Registry does not answer" in status(pilot.app)
        await press(pilot, "x", "x")
        assert "plain" in screen_text(pilot.app)


@pytest.mark.longer
@with_loop
async def test_values_of_a_local_schema(tmp_path: Path) -> None:
    """They name no schema; keys have a format of their own."""
    where, file = ("--data-dir", str(tmp_path / "data")), tmp_path / "flight.proto"
    file.write_text('syntax = "proto3"; message A {} message Flight { string carrier = 1; int64 n = 2; }')
    call_plog("topic", "create", "t", *where)
    formats = ("--value-schema", f"{file}:Flight", "--key-format", "long")
    written = call_plog("produce", "t", "-K", "|", *formats, *where, stdin=b'7|{"carrier": "UA", "n": 5}\n')
    assert written.returncode == 0
    schemas = SideFormats(key="long", value_schema=f"{file}:Flight")
    async with inspecting(tmp_path / "data", "t", schemas=schemas) as pilot:
        text = screen_text(pilot.app)
        assert '{"carrier": "UA", "n": 5}' in text
        assert "as schema" in text
        await press(pilot, "enter")
        assert '"n": 5' in screen_text(pilot.app)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--value-schema", "none.avsc"], "schema none.avsc: No such file or directory"),
        (["--schema-context", "sto"], "--schema-context goes with --schema-registry"),
        (["--value-format", "avro"], "--value-format avro goes with --value-schema"),
        (["--schema-json", "plain"], "--schema-json goes with a schema"),
    ],
)
def test_options_that_can_not_be_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], problem: str
) -> None:
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    call_plog("topic", "create", "t", "--data-dir", str(tmp_path))
    done = call_plog("inspect", str(tmp_path), *options)
    assert (done.returncode, problem in done.stderr.decode()) == (2, True), done.stderr
