"""ACLs and SCRAM users, both ways: Apache Kafka and plog answer the same requests about them, and each obeys the
directory that the other one wrote, plog's as a snapshot.

Without a listener that logs clients in all of them are ANONYMOUS: first a super user, then somebody with some rights,
who differ by host.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from core.cluster.image.metadata_log import MetadataLog
from core.common.clock import SystemClock
from core.common.filesystem import FileSystem
from tests.support.answers.asked_broker import KAFKA, PLOG, AskedBroker
from tests.support.answers.message_codec import Fields
from tests.support.free_ports import free_ports
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import requires_kafka
from tests.support.security_captures import capture, in_order
from tests.support.server import Server, call_plog

pytestmark = [requires_kafka, pytest.mark.java]

TOPICS = ["orders", "orders-eu", "order", "payments", "*", "o"]
NAMED = [name for name in TOPICS if name != "*"]
HOSTS = ["127.0.0.1", "127.0.0.2"]
ANYBODY = "User:ANONYMOUS"
TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS = 8, 9, 10
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
ODD_HOSTS = """
    10.0.0.0/8 10.0.0.1/8 10.0.0.0/008 10.0.0.0/099 10.0.0.1000/8 300.1.1.1/99 0010.0.0.0/8 10.0.0.0/0 10.0.0.0/33
    10.0.0.0/ /8 10.0.0/8 10.0.0.0/08 10.0.0.0/-1 010.0.0.0/8 256.0.0.0/8 10.0.0.0/8/8 10.0.0.0/255.0.0.0 2001:db8::/32
    ::1/128 ::/129 ::1/0128 2001:db8:: ::ffff:10.0.0.0/104 fe80::1%lo/64 1::g/8 :/8 ::/ ::/x ::/+8 ::/-0 ::/-1
    ::/2147483648 ::1/128/1 1.2.3.4:/8 localhost/8 */8 127.0.0.1 localhost
"""
EVERYTHING: Fields = {
    **dict.fromkeys(("ResourceTypeFilter", "PatternTypeFilter", "Operation", "PermissionType"), 1),
    **dict.fromkeys(("ResourceNameFilter", "PrincipalFilter", "HostFilter")),
}


@contextmanager
def kafka(directory: Path, super_user: str) -> Iterator[AskedBroker]:
    server = KafkaServer(directory, authorizer_class_name=STANDARD_AUTHORIZER, super_users=super_user)
    if not directory.exists():
        server.format()
    with server:
        broker = AskedBroker(server.address, KAFKA)
        yield broker
        broker.close()


@contextmanager
def plog(directory: Path, super_user: str) -> Iterator[AskedBroker]:
    settings = (f"authorizer.class.name={STANDARD_AUTHORIZER}", f"super.users={super_user}")
    with Server(directory, *itertools.chain(*(("--set", setting) for setting in settings))) as server:
        broker = AskedBroker(server.address, PLOG)
        yield broker
        broker.close()


def acl(name: str, operation: int, pattern: int = LITERAL, permission: int = ALLOW, **others: Any) -> Fields:
    fields = {"ResourceType": TOPIC, "ResourceName": name, "ResourcePatternType": pattern, "Principal": ANYBODY,
              "Host": "*", "Operation": operation, "PermissionType": permission}  # fmt: skip
    return {**fields, **others}


def odd_creations() -> list[Fields]:
    """Those of the captures, and more."""
    captured = [step["request"] for step in capture("acl_and_scram")["acl_api"] if "Principal" in step["request"]]
    texts = ["", ":", "User", "User:", "\0", "a\0b", "\u20ac\U0001f600", "x" * 249, "x" * 32767, "*", " "]
    codes = [0, 1, 2, 3, 4, 7, 15, 16, 99, -1, 127]
    places = ("ResourceType", "ResourcePatternType", "Operation", "PermissionType")
    return [
        *captured,
        *(acl("odd", 3, Principal=text[:1000]) for text in texts),
        *(acl(text, 3) for text in texts),
        *(acl("odd", 3, Host=host) for host in [*ODD_HOSTS.split(), *texts, " 10.0.0.0/8"]),
        *(acl("odd", **{"operation": 3, place: code}) for place in places for code in codes),
        *(acl(name, 3, ResourceType=CLUSTER) for name in ("", "kafka-cluster", "odd")),
        acl("", 3, Principal="no type", Host="", PermissionType=99),
        acl("odd", 3, Principal="no type", Host=""),
    ]


def filters() -> list[Fields]:
    found = [step["request"] for step in capture("acl_and_scram")["acl_api"] if "PrincipalFilter" in step["request"]]
    codes = [0, 2, 3, 4, 99, -1]
    places = ("ResourceTypeFilter", "PatternTypeFilter", "Operation", "PermissionType")
    names = {"ResourceNameFilter": ["", "odd", "*", "oddly"], "PrincipalFilter": ["", "User", "User:*", ANYBODY],
             "HostFilter": ["", "*", "10.0.0.5"]}  # fmt: skip
    found += [{**EVERYTHING, place: code} for place in places for code in codes]
    found += [{**EVERYTHING, place: text} for place, texts in names.items() for text in texts]
    found += [
        {**EVERYTHING, "ResourceNameFilter": name, "PatternTypeFilter": kind} for name in TOPICS for kind in (2, 3, 4)
    ]
    return found


def ask_about_acls(broker: AskedBroker) -> dict[str, Any]:
    """Changes ACLs, and leaves none."""
    answers = {}
    for number, creation in enumerate(odd_creations()):
        name = f"{number} {str(creation)[:200]}"
        answers[f"create {name}"] = in_order(broker.query("CreateAcls", Creations=[creation]))
    for number, wanted in enumerate(filters()):
        answers[f"describe {number} {wanted}"] = in_order(broker.query("DescribeAcls", **wanted))
    for number, wanted in enumerate([*filters(), EVERYTHING]):
        answers[f"delete {number} {wanted}"] = in_order(broker.query("DeleteAcls", Filters=[wanted, wanted]))
    answers["left"] = broker.query("DescribeAcls", **EVERYTHING)
    return answers


def prepare(broker: AskedBroker, seed: int) -> None:
    """Makes topics, users, and ACLs at random; some are deleted again. A Kafka that is no super user to itself needs
    ClusterAction for its broker.
    """
    for name in NAMED:
        broker.create_topic(name)
    random = Random(seed)
    creations = [
        acl(
            random.choice(TOPICS),
            random.randint(2, 11),
            random.choice((LITERAL, PREFIXED)),
            random.choice((DENY, ALLOW, ALLOW, ALLOW)),
            Principal=random.choice((ANYBODY, ANYBODY, "User:*", "User:other", "Group:ANONYMOUS")),
            Host=random.choice(("*", *HOSTS, "127.0.0.0/31", "127.0.0.2/32", "10.0.0.0/8", "localhost")),
        )
        for _ in range(40)
    ]
    operations = (DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS)
    creations += [acl("kafka-cluster", operation, ResourceType=CLUSTER) for operation in operations]
    answer = broker.query("CreateAcls", Creations=creations)
    assert {each["ErrorCode"] for each in answer["Results"]} == {0}
    gone = {**EVERYTHING, "ResourceNameFilter": "order", "PatternTypeFilter": PREFIXED}
    broker.query("DeleteAcls", Filters=[gone])
    users = [
        {"Name": name, "Mechanism": mechanism, "Iterations": 4096 + seed, "Salt": b"salt", "SaltedPassword": b"p" * 32}
        for name, mechanism in (("ann", 1), ("bob", 2), ("a,b=c\u20ac", 2), ("gone", 1))
    ]
    broker.query("AlterUserScramCredentials", Upsertions=users, Deletions=[])
    broker.query("AlterUserScramCredentials", Upsertions=[], Deletions=[{"Name": "gone", "Mechanism": 1}])


def rights(broker: AskedBroker, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Everything that clients of both hosts learn of ACLs, users, and what they may do."""
    found: dict[str, Any] = {}
    connect = socket.create_connection
    for host in HOSTS:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "create_connection", lambda *a, host=host: connect(*a, source_address=(host, 0)))
            named = [{"Name": name} for name in NAMED]
            answer = broker.query("Metadata", 12, connection=host, Topics=named, IncludeTopicAuthorizedOperations=True)
            found[host] = {
                topic["Name"]: (topic["ErrorCode"], topic["TopicAuthorizedOperations"]) for topic in answer["Topics"]
            }
            whole = broker.query("DescribeCluster", connection=host, IncludeClusterAuthorizedOperations=True)
            found[f"cluster of {host}"] = whole["ClusterAuthorizedOperations"]
    found["acls"] = in_order(broker.query("DescribeAcls", **EVERYTHING)["Resources"])
    found["users"] = in_order(broker.query("DescribeUserScramCredentials", Users=None)["Results"])
    return found


def test_kafka_and_plog_answer_alike_and_obey_each_others_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {}
    for seed, (name, serve) in enumerate({"kafka": kafka, "plog": plog}.items()):
        with serve(tmp_path / name, ANYBODY) as broker:
            answers[name] = ask_about_acls(broker)
            prepare(broker, seed)
    differ = [
        f"{step}\n    plog  {str(answers['plog'][step])[:400]}\n    kafka {str(theirs)[:400]}"
        for step, theirs in answers["kafka"].items()
        if answers["plog"][step] != theirs
    ]
    assert not differ, "\n".join(differ)
    log = MetadataLog(tmp_path / "plog", 1, SystemClock(), FileSystem())
    log._write_snapshot()
    log.close()
    for name in ("kafka", "plog"):
        seen = {}
        for other, serve in {"kafka": kafka, "plog": plog}.items():
            with serve(tmp_path / name, "User:admin") as broker:
                seen[other] = rights(broker, monkeypatch)
        assert seen["plog"] == seen["kafka"], f"of the directory by {name}"
        assert len({str(each) for each in seen["plog"]["127.0.0.1"].values()}) > 2, "it says something"
        assert [user["User"] for user in seen["plog"]["users"]] == ["a,b=c\u20ac", "ann", "bob"]


def test_users_that_plog_made_log_in_to_kafka_and_may_what_plog_allowed(tmp_path: Path) -> None:
    """Their passwords, in both mechanisms, with a name and a password that are no words."""
    directory, odd = tmp_path / "data", "a,b=c"
    there = ("--data-dir", str(directory))
    for topic in ("orders", "secret"):
        assert call_plog("topic", "create", topic, *there).returncode == 0
    for name, password in (("ann", b"pencil\n"), (odd, "p\u00e4ss,=\n".encode())):
        made = call_plog("user", "create", name, "--password-stdin", *there, stdin=password)
        assert made.returncode == 0, made.stderr
    allow = ("acl", "add", "--allow-principal", f"User:{odd}", "--allow-principal", "User:ann", "--operation", "Read")
    assert call_plog(*allow, "--topic", "orders", *there).returncode == 0
    server = KafkaServer(directory, authorizer_class_name=STANDARD_AUTHORIZER, super_users=ANYBODY)
    (port,) = free_ports(1)
    listed = f"PLAINTEXT://{server.address},SASL://127.0.0.1:{port}"
    settings = {
        "listeners": f"{listed},CONTROLLER://127.0.0.1:{server._controller_port}",
        "advertised.listeners": listed,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        **{f"listener.name.sasl.scram-sha-{bits}.sasl.jaas.config": f"{_SCRAM} required;" for bits in (256, 512)},
    }
    server._settings += "".join(f"{name}={value}\n" for name, value in settings.items())
    with server:
        for mechanism, (name, password, code) in itertools.product(
            ("SCRAM-SHA-256", "SCRAM-SHA-512"),
            (("ann", "pencil", 0), (odd, "p\u00e4ss,=", 0), ("ann", "pencil ", 1), ("bob", "pencil", 1)),
        ):
            config = tmp_path / "client.properties"
            config.touch(mode=0o600)
            config.write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
                f'sasl.jaas.config={_SCRAM} required username="{name}" password="{password}";\n'
            )
            where = ("--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(config))
            seen = call_plog("topic", "list", "--output", "csv", *where)
            assert seen.returncode == code, seen.stderr
            assert seen.stdout.decode().splitlines()[1:] == ([] if code else ["orders,1"])
