"""docs/troubleshooting.md: each command typed as it stands there, at brokers that are in the state of its section."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest

from cli.error_hints import HINTS
from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from core.security.sasl.server_steps import PlainServer
from tests.support.certificates import make_ca, sign
from tests.support.free_ports import free_ports
from tests.support.secured_door import secured_door, server_context
from tests.support.server import PLOG, Server, call_plog, run_plog
from tests.support.shown_session import ShownCommand, read_session
from tests.support.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
COLUMNS = 118


def test_the_page_has_all_errors_each_with_a_command() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    numbers = [int(section.partition(".")[0]) for section in sections if section[0].isdigit()]
    assert numbers == list(range(1, 22))
    assert [section.splitlines()[0] for section in sections if not read_session(section)] == []


def test_what_plog_says_is_in_its_code() -> None:
    """Messages that the page quotes in a sentence; those of the sessions are printed before a test's eyes."""
    code = " ".join(path.read_text() for top in ("core", "cli") for path in (ROOT / top).rglob("*.py"))
    quoted = re.findall(r"plog\s+says `([^`]+)`", PAGE)
    assert quoted
    for message in quoted:
        assert all(part in code for part in re.split(r"\s*\.\.\s*", message) if part), message


def test_hints_name_commands_that_there_are() -> None:
    commands = {words for hint in HINTS.values() for words in re.findall(r"plog ([a-z]+(?: [a-z-]+)?)", hint)}
    assert len(commands) > 5
    for words in commands:
        assert call_plog(*words.split(), "--help").returncode == 0, words


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The addresses of the page, and those that stand for them here."""
    with ExitStack() as stack:
        lone = stack.enter_context(Server(tmp_path / "lone", "--topic", "orders:6", "--topic", "held:1"))
        hidden = stack.enter_context(Server(tmp_path / "hidden", "--advertise", "kafka-0.kafka.svc:9092"))
        guarded = stack.enter_context(
            Server(tmp_path / "guarded", "--set", f"authorizer.class.name={STANDARD_AUTHORIZER}", "--topic", "orders:1")
        )
        context = server_context(*map(str, sign(make_ca()).write(tmp_path, "server")))
        tls = stack.enter_context(secured_door(context=context))
        login = stack.enter_context(secured_door({"PLAIN": lambda: PlainServer(lambda *pair: pair == ("a", "b"))}))
        (tmp_path / "client.properties").write_text(
            f"bootstrap.servers={login.address}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            "sasl.username=a\nsasl.password=wrong\n"
        )
        (tmp_path / "client.properties").chmod(0o600)
        run_plog("topic", "create", "kept", "--data-dir", str(tmp_path / "data"))
        where = {"bootstrap.servers": lone.address}
        member = confluent_kafka.Consumer(
            {**where, "group.id": "billing", "group.instance.id": "worker-3", "group.protocol": "consumer"}
        )
        stack.callback(member.close)
        member.subscribe(["orders"])
        while not member.assignment():
            member.poll(0.1)
        member.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 0)], asynchronous=False)
        writer = confluent_kafka.Producer({**where, "transactional.id": "nightly", "transaction.timeout.ms": 900_000})
        writer.init_transactions()
        writer.begin_transaction()
        writer.produce("held", b"not me")
        writer.flush()
        run_plog("produce", "held", "--bootstrap-server", lone.address, stdin=b"read me\n")
        (nobody,) = free_ports(1)
        yield {
            "localhost:9092": lone.address,
            "localhost:9093": tls.address,
            "localhost:9095": hidden.address,
            "localhost:9096": guarded.address,
            "localhost:9099": f"127.0.0.1:{nobody}",
        }


@pytest.mark.longer
def test_all_that_the_page_says_is_so(brokers: dict[str, str], tmp_path: Path) -> None:
    def here(text: str) -> str:
        for shown, real in brokers.items():
            text = text.replace(shown, real)
        return text

    environment = {**os.environ, "PATH": f"{PLOG.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    with Terminal(tmp_path, environment, COLUMNS) as terminal:
        problems = []
        for shown in read_session(PAGE):
            command = ShownCommand(here(shown.command), tuple(map(here, shown.lines)))
            problems.append(command.type(terminal))
        assert [problem for problem in problems if problem] == []
