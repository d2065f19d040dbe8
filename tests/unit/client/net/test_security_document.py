"""docs/security.md: its configurations are what plog takes, and its messages are those that it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.client.net.client_config_files import read_settings_file
from core.client.net.port_probe import Speech
from core.security.client_settings import parse_client_settings
from tests.support.golden import GOLDEN

ROOT = GOLDEN.parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()
PROTOCOLS = {
    "To a cluster": ["SASL_SSL"],
    "Confluent Cloud (untested)": ["SASL_SSL"],
    "Amazon MSK with SCRAM (untested)": ["SASL_SSL"],
    "Aiven (untested)": ["SSL", "SASL_SSL"],
    "Redpanda (untested)": ["SASL_SSL"],
    "A token (OAUTHBEARER; tested against Apache Kafka, with no provider's identity service)": ["SASL_SSL"],
}


def configurations() -> dict[str, list[str]]:
    """Section -> its blocks of settings."""
    found = {}
    for section in re.split(r"^##+ ", TEXT, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        blocks = re.findall(r"(?:^    [a-z][a-z.]+=.*\n)+", body, re.MULTILINE)
        blocks = [block for block in blocks if "security.protocol=" in block]
        if blocks:
            found[title] = blocks
    return found


def test_every_configuration_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{env:(\w+)\}", TEXT):
        monkeypatch.setenv(name, "a secret")
    protocols: dict[str, list[str]] = {}
    for title, blocks in configurations().items():
        for block in blocks:
            path = tmp_path / "client.properties"
            path.write_text(re.sub("^    ", "", block, flags=re.MULTILINE))
            settings, warnings = read_settings_file(path)
            found = parse_client_settings(settings)
            assert not warnings
            assert not found.warnings
            protocols.setdefault(title, []).append(found.security.protocol)
    assert protocols == PROTOCOLS


def test_every_provider_is_said_to_be_untested() -> None:
    providers = re.findall(r"^### (.*)", TEXT, re.MULTILINE)
    assert len(providers) == 5
    assert all("untested" in provider or "no provider" in provider for provider in providers)


def test_every_message_is_one_of_ours() -> None:
    """By its fixed parts, which stand in the source; tests/cli/test_refused_logins.py reads the broker's."""
    sources = [path for name in ("client", "files", "security") for path in (ROOT / "core" / name).rglob("*.py")]
    source = "".join(path.read_text() for path in sources) + "".join(f"speaks {speech}\n" for speech in Speech)
    table = TEXT.split("## When it fails")[1].split("**What the broker's log says.**")[0]
    cells = re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE)
    assert len(cells) > 15
    for message in re.findall("`([^`]+)`", " ".join(cells)):
        for part in message.removeprefix("SASL_AUTHENTICATION_FAILED: ").split("…"):
            words = part.strip(" :,").removeprefix("it ")
            assert words in source, message
