"""What the README and the documents say of plog is so: what they name is there, what they deny is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cli.other_tools import COMMANDS_MEANT, HINTS
from cli.plog_command import FLAGS, IDLE, SETTINGS, other_names
from core.broker.config.broker_settings import BROKER_CONFIG, find_broker_key
from core.broker.config.group_configs import GROUP_CONFIG
from core.broker.requests.config_resources import CLIENT_METRICS_CONFIG
from core.broker.requests.request_dispatcher import served_apis
from core.files.log_config import TOPIC_CONFIG
from tests.support.all_commands import all_commands
from tests.support.requests import SERVED_APIS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^    (.*)$|`([^`\n]+)`", re.MULTILINE)
COMMAND = re.compile(r"(?:^|[|;&(] *)plog ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?([^|;&]*)")

OTHERS_OPTIONS = {
    "--controllers", "--cluster-power-cuts", "--cluster", "--generate", "--key-decoder-class",
    "--no-healthcheck", "--add-host", "--line-buffered",
}  # fmt: skip
"""Of the scripts of the tests, and of Kafka's tools, Docker and grep, about which the documents say so."""

OTHERS_SETTINGS = {
    "controller.quorum.bootstrap.servers": "of Kafka's brokers, in the file of plog cert dev",
    "errors.deadletterqueue.context.headers.enable": "of Kafka Connect",
    "host.docker.internal": "no setting, but Docker's name of the host",
    "inter.broker.protocol.version": "of Kafka's brokers beside plog",
    "listeners.client.protocol": "of Bitnami's chart",
    "offsets.storage": "of the consumers of 2011",
    "processing.guarantee": "of Kafka Streams",
    "replica.alter.log.dirs.io.max.bytes.per.second": "which cluster.md says is not there",
}
"""Settings that are not plog's, and whose they are."""


@cache
def options() -> dict[str, set[str]]:
    """Those of each command, with other names that it takes; of `` those of plog itself."""
    found = {"": {"--help", "--debug", "--version", "--profile", "--max-expansion"}}
    for path, command in all_commands().items():
        own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        found[path] = {*own, *other_names(path, own), *FLAGS.get(path, ()), *IDLE.get(path, ()), "--help"}
    return found


def code_of(document: Path) -> Iterator[str]:
    for match in CODE.finditer(document.read_text()):
        yield match[1] or match[2] or ""


def wrong_commands(text: str) -> Iterator[str]:
    """What an example names that plog does not have: a command, or an option of it."""
    groups = {path.split(" ")[0] for path in options() if " " in path}
    for first, second, rest in COMMAND.findall(text):
        is_group = first in groups
        path = first if not is_group else f"{first} {second}" if second else ""
        if path not in options():
            yield f"plog {path if is_group else first}"
            continue
        given = re.findall(r"(?<!\S)--[a-z][a-z-]*", f" {second} {rest}") if path else []
        yield from (f"plog {path} {one}" for one in given if one not in options()[path] | options()[""])


def wrong_option(text: str) -> str | None:
    """An option that stands by itself, and that no command has, takes by another name, or names in a hint."""
    found = re.match(r"--[a-z][a-z0-9-]*(?:\.config)?", text)
    known = set().union(*options().values(), *HINTS.values(), OTHERS_OPTIONS)
    return found[0] if found and found[0] not in known else None


def settings_of(text: str) -> str | None:
    """A setting of Kafka's or plog's, which has three words, or a value."""
    found = re.fullmatch(r"([a-z][a-z0-9]*(?:\.[a-z0-9-]+)+)(=.*)?", text)
    return found[1] if found and (found[2] or found[1].count(".") > 1) else None


@cache
def words_of_code() -> set[str]:
    """Names with dots in the code: the settings of clients, which it reads one by one."""
    paths = (path for folder in ("core", "cli", "plog") for path in (ROOT / folder).rglob("*"))
    text = "\n".join(path.read_text() for path in paths if path.suffix in (".py", ".toml"))
    return set(re.findall(r"[\"'`]([a-z][a-z0-9]*(?:[.-][a-z0-9]+)+)[\"'`=]", text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(document: Path) -> None:
    definitions = (BROKER_CONFIG, TOPIC_CONFIG, GROUP_CONFIG, CLIENT_METRICS_CONFIG)
    settings = {key.name for each in definitions for key in each} | SETTINGS.keys() | OTHERS_SETTINGS.keys()
    text = document.read_text()
    found: list[str] = []
    for code in code_of(document):
        found += wrong_commands(code)
        found += filter(None, [wrong_option(code)])
        name = settings_of(code)
        if name is not None and name not in settings | words_of_code() and not name.startswith(("kafka.", "spark.")):
            found += [] if find_broker_key(name) else [name]
    found += [f"exit code {n}" for n in re.findall(r"exit code (\d+)", text) if int(n) not in (0, 1, 2, 3, 4, 130, 143)]
    assert found == []


def test_what_is_not_there_is_found() -> None:
    assert list(wrong_commands("zcat x | plog produce t --shards 4 | plog topic make t; plog consumes x")) == [
        "plog produce --shards", "plog topic make", "plog consumes",
    ]  # fmt: skip
    assert list(wrong_commands("plog topic list --internal && plog consume --topic t --debug")) == []
    assert [wrong_option("--shards N"), wrong_option("--brokers")] == ["--shards", None]
    assert [settings_of("log.tier.hours"), settings_of("log.tier=3"), settings_of("action.yml")] == [
        "log.tier.hours", "log.tier", None,
    ]  # fmt: skip
    assert COMMANDS_MEANT.keys() - options().keys(), "these are words of other tools, and no commands"


def test_what_is_said_not_to_be_served_is_not() -> None:
    """Neither by a lone broker nor by a member of a cluster, whatever that has finalized."""
    served = {api.name for api in SERVED_APIS} | {api.name for api in served_apis({})}
    for document in DOCUMENTS:
        text = document.read_text()
        said = re.findall(r"\| \d+ \| (\w+) \|[^|\n]*\|[^|\n]*\| not served", text)
        for words in re.findall(r"(?:serves neither|does not serve|serves no) ([^.;]+)", text):
            said += re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", words)
        assert served & set(said) == set(), document.name
