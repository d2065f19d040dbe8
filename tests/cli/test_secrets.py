"""Secrets of the metadata log are not printed, by any format; they are there for who asks."""

from __future__ import annotations

import base64
import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from core.cluster.image.metadata_log import read_metadata_image
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN

LOG = GOLDEN.parent / "secured" / "__cluster_metadata-0" / "00000000000000000000.log"
FORMATS = [("--format", name, "--print-data-log") for name in ("kafka", "table", "ndjson", "csv", "arrow")]
FORMATS += [("--hex",)]


@pytest.fixture(scope="module")
def secrets() -> list[bytes]:
    image = read_metadata_image(GOLDEN.parent / "secured")
    assert image is not None
    users = image.security.scram_credentials.values()
    keys = [key for user in users for key in (user.salt, user.stored_key, user.server_key)]
    assert len(keys) > 30
    return [*keys, b"changeit", b"/etc/kafka/secrets"]


def shown(output: bytes, secret: bytes) -> bool:
    """In any of the ways in which a dump writes bytes."""
    forms = (secret, base64.b64encode(secret), secret.hex(" ").encode(), secret.hex().encode())
    return any(form in joined(output) for form in forms)


@cache
def joined(output: bytes) -> bytes:
    """A hex dump breaks lines."""
    return re.sub(rb"\n[0-9a-f]* +", b" ", output)


@for_each("arguments", FORMATS, first=2)
def test_no_format_shows_secrets_but_to_who_asks(arguments: tuple[str, ...], secrets: list[bytes]) -> None:
    hidden = ok("dump-segment", str(LOG), *arguments)
    assert [secret for secret in secrets if shown(hidden, secret)] == []
    assert b"[hidden]" in hidden
    assert b"retention.ms" in hidden
    told = ok("dump-segment", str(LOG), *arguments, "--show-secrets")
    assert shown(told, b"changeit")
    assert b"[hidden]" not in told


def test_settings_that_are_no_secrets_are_shown() -> None:
    told = ok("dump-segment", str(LOG), "--print-data-log", "--format", "kafka").decode()
    assert '"name":"min.insync.replicas","value":"1"' in told
    assert '"name":"listener.name.tls.ssl.keystore.password","value":"[hidden]"' in told
    assert '"salt":"[hidden]","storedKey":"[hidden]","serverKey":"[hidden]"' in told


@for_each("arguments", [*FORMATS, ("--print-data-log", "--value-format", "hex")], first=2)
def test_a_snapshot_is_metadata_wherever_it_lies(
    arguments: tuple[str, ...], tmp_path: Path, secrets: list[bytes]
) -> None:
    copy = tmp_path / "bootstrap.checkpoint"
    shutil.copy(LOG, copy)
    hidden = ok("dump-segment", str(copy), *arguments)
    assert [secret for secret in secrets if shown(hidden, secret)] == []
