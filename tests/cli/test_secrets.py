"""Secrets of the metadata log are not printed, by any format; they are there for who asks."""

from __future__ import annotations

import base64
import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from core.cluster.image.metadata_log import read_metadata_image
from core.cluster.image.metadata_record import decode_metadata_record
from core.common.salvaging_file import open_salvaging
from core.files.file_records import FileRecords
from core.protocol.schema.metadata_records import UserScramCredentialRecord
from tests.cli.conftest import ok
from tests.cli.inspect.support import inspecting, press, screen_text, settled, with_loop
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.server import call_plog

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
    return [*keys, b"changeit"]


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
    assert '"name":"listener.name.tls.ssl.key.password","value":"[hidden]"' in told
    assert '"name":"listener.name.tls.ssl.keystore.location","value":"/etc/kafka/secrets/certs/live.p12"' in told
    assert '"salt":"[hidden]","storedKey":"[hidden]","serverKey":"[hidden]"' in told


@for_each("arguments", [*FORMATS, ("--print-data-log", "--value-format", "hex")], first=2)
def test_a_snapshot_is_metadata_wherever_it_lies(
    arguments: tuple[str, ...], tmp_path: Path, secrets: list[bytes]
) -> None:
    copy = tmp_path / "bootstrap.checkpoint"
    shutil.copy(LOG, copy)
    hidden = ok("dump-segment", str(copy), *arguments)
    assert [secret for secret in secrets if shown(hidden, secret)] == []


DOORS = [
    ("verify", "{}", "--deep", "--output", "json"),
    ("verify", "{}/__cluster_metadata-0", "--deep"),
    ("stats", "{}/__cluster_metadata-0", "--output", "json"),
    ("gaps", "{}/__cluster_metadata-0"),
    ("trace", "{}/__cluster_metadata-0@SCRAM", "--output", "json"),
    ("trace", "{}/__cluster_metadata-0@SCRAM"),
    ("doctor", "{}"),
    ("compact", "{}/__cluster_metadata-0", "--explain", "--all", "--set", "cleanup.policy=compact"),
    ("recover", "{}/__cluster_metadata-0", "--output", "json"),
    ("diff", "{}/__cluster_metadata-0", str(LOG.parent), "--output", "json"),
    ("config", "describe", "broker", "1", "--data-dir", "{}", "--all", "--output", "json"),
    ("consume", "__cluster_metadata", "--data-dir", "{}"),
    ("user", "list", "--data-dir", "{}", "--output", "json"),
    ("acl", "list", "--data-dir", "{}"),
    ("dump-segment", f"{{}}/__cluster_metadata-0/{LOG.name}", "--print-data-log"),
    ("dump-segment", f"{{}}/__cluster_metadata-0/{LOG.name}", "--hex"),
]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory, secrets: list[bytes]) -> list[Path]:
    """Kafka's directory, and one in which a stored key has a flipped bit."""
    folder = tmp_path_factory.mktemp("secured")
    found = [folder / name for name in ("whole", "damaged")]
    for directory in found:
        shutil.copytree(GOLDEN.parent / "secured", directory)
    log = found[1] / "__cluster_metadata-0" / LOG.name
    data = bytearray(log.read_bytes())
    data[data.find(secrets[10])] ^= 1
    log.write_bytes(data)
    return found


def scram_offset() -> str:
    for batch in FileRecords(LOG, open_salvaging).iter_batches():
        for record in batch.records():
            if not batch.is_control and isinstance(decode_metadata_record(record.value), UserScramCredentialRecord):
                return str(record.offset)
    raise AssertionError


@for_each("arguments", DOORS, first=4)
def test_no_door_shows_secrets(arguments: tuple[str, ...], directories: list[Path], secrets: list[bytes]) -> None:
    """The first bytes of one are enough: messages are cut."""
    starts = [secret[:8] for secret in secrets]
    for directory in directories:
        asked = [argument.format(directory).replace("SCRAM", scram_offset()) for argument in arguments]
        done = call_plog(*asked)
        assert done.returncode in (0, 1), done.stderr.decode()
        assert len(done.stdout + done.stderr) > 40
        assert [start for start in starts if shown(done.stdout + done.stderr, start)] == []


@pytest.mark.longer
@with_loop
async def test_the_screens_of_records_show_no_secrets(secrets: list[bytes]) -> None:
    async with inspecting(f"{LOG.parent}@{scram_offset()}") as pilot:
        seen = screen_text(pilot.app)
        await press(pilot, "enter")
        await settled(pilot)
        seen += screen_text(pilot.app)
    assert "[hidden]" in seen
    assert "scramboot" in seen
    assert [secret for secret in secrets if shown(seen.encode(), secret[:8])] == []
