"""ACLs and SCRAM users are changed and shown as a secured Kafka 4.3 did, step by step, but where the deviations say why
not; and what was changed is in the metadata log.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.broker.requests.client_session import Session
from core.cluster.image.metadata_log import read_metadata_image
from core.common.errors import MalformedMessageError
from core.security.acl import AclOperation
from tests.support import security_captures
from tests.support.answers import comparison
from tests.support.answers.asked_broker import Step
from tests.support.broker import add_topic
from tests.support.golden import GOLDEN
from tests.support.security_captures import (
    ADMIN,
    Difference,
    SecuredBroker,
    assert_explained,
    capture,
    in_order,
    matrix,
    principal,
    unexplained,
)

CREATE, DELETE = "CreateAcls", "DeleteAcls"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path)
    yield broker
    broker.close()


def ask(broker: SecuredBroker, api: str, version: int, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return broker.ask(ADMIN, api, version, request)
    except MalformedMessageError:
        return {"closed": "closed"}


def differences(ours: Any, theirs: Any) -> list[Difference]:
    """With all messages: in these answers they are Kafka's, too."""
    step = Step("", "", 0)
    found = comparison.differences({step: in_order(ours)}, {step: in_order(theirs)})
    return [Difference(ADMIN, each.path, str(each.plog), str(each.kafka)) for each in found]


# --- ACLs


def acl(name: str, pattern_type: int, operation: int) -> dict[str, Any]:
    return {"ResourceType": 2, "ResourceName": name, "ResourcePatternType": pattern_type, "Principal": "User:sem",
            "Host": "*", "Operation": operation, "PermissionType": 3}  # fmt: skip


def test_acls_are_changed_and_shown_as_by_kafka(broker: SecuredBroker) -> None:
    """Three ACLs are there before the first of the captured requests."""
    before = [
        acl("*", 3, AclOperation.DESCRIBE),
        acl("orders", 3, AclOperation.READ),
        acl("ord", 4, AclOperation.WRITE),
    ]
    ask(broker, CREATE, 3, {"Creations": before})
    found = {}
    for step in capture("acl_and_scram")["acl_api"]:
        case, request = step["case"], step["request"]
        if case.startswith("describe"):
            answer = ask(broker, "DescribeAcls", 3, request)
        elif case.startswith("delete"):
            answer = ask(broker, DELETE, 3, {"Filters": [request]})
        else:
            answer = ask(broker, CREATE, 3, {"Creations": [request] * (2 if case == "twice the same" else 1)})
        found[case] = differences(answer, step["answer"])
    assert_explained("acl_api", found)


def test_acls_mean_what_they_mean_to_kafka(broker: SecuredBroker) -> None:
    """Each set of ACLs is created, gives operations to a user on two hosts, and is deleted."""
    names = ("orders", "orders-eu", "order", "payments")
    for name in names:
        add_topic(broker.node, name)
    everything = {
        "ResourceTypeFilter": 1,
        "ResourceNameFilter": None,
        "PrincipalFilter": None,
        "HostFilter": None,
        "PatternTypeFilter": 1,
        "Operation": 1,
        "PermissionType": 1,
    }
    found = {}
    for step in capture("acl_and_scram")["acl_semantics"]:
        answer = ask(broker, CREATE, 3, {"Creations": step["entries"]})
        ours = {host: operations(broker, names, host) for host in ("127.0.0.1", "127.0.0.2")}
        theirs = {host: step[f"from {host}"] for host in ours}
        found[step["acls"]] = differences(
            {**ours, "created": answer["Results"]}, {**theirs, "created": step["created"]}
        )
        ask(broker, DELETE, 3, {"Filters": [everything]})
        assert not broker.node.services.security.acls()
        assert not len(broker.rules)
    assert_explained("acl_semantics", found)


def operations(broker: SecuredBroker, names: Iterable[str], host: str) -> dict[str, Any]:
    """Returns for each topic what `sem` may do with it, or the error."""
    broker._sessions["sem"] = Session(principal("sem"), "SASLP", host, host, broker.authorizer)
    request = {"Topics": [{"Name": name} for name in names], "IncludeTopicAuthorizedOperations": True}
    answer = broker.ask("sem", "Metadata", 12, request)
    return {
        topic["Name"]: topic["ErrorCode"]
        or sorted(
            "".join(word.title() for word in operation.name.split("_"))
            for operation in AclOperation
            if topic["TopicAuthorizedOperations"] >> operation & 1
        )
        for topic in answer["Topics"]
    }


def test_kafkas_own_directory_gives_its_users_what_kafka_gave_them(tmp_path: Path) -> None:
    """The operations of each user of the matrix, of topics and of the cluster."""
    shutil.copytree(GOLDEN.parent / "secured", tmp_path / "data")
    broker = SecuredBroker(tmp_path / "data")
    names = ("Metadata 13, there", "Metadata 13, there, by id", "DescribeCluster 2, brokers")
    for case in map(matrix().__getitem__, (*names, "DescribeTopicPartitions 0, two topics")):
        for user, theirs in case.answers.items():
            answer = broker.ask(user, case.api, case.version, case.request)
            assert unexplained("matrix", case.name, security_captures.differences(user, answer, theirs)) == []
    broker.close()


# --- SCRAM


def scram_requests() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The steps with their requests, of which the capture has only the words."""
    salt = {"Salt": "01" * 16, "SaltedPassword": "02" * 32}

    def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
        return {"Name": name, "Mechanism": mechanism, "Iterations": iterations, **salt}

    upsertions = {
        "upsert sam(256,512) a,b=c sem, 4096 iterations": [
            upsertion("sam"), upsertion("sam", 2), upsertion("a,b=c"), upsertion("sem"),
        ],
        "iterations 4095": [upsertion("low", iterations=4095)],
        "iterations 16385": [upsertion("high", iterations=16385)],
        "mechanism 3": [upsertion("m3", 3)],
        "empty name": [upsertion("")],
        "the same user and mechanism deleted and upserted": [upsertion("sam")],
    }  # fmt: skip
    for step in capture("acl_and_scram")["scram_alter"]:
        deleted = [{"Name": "sam", "Mechanism": 1}] if "deleted" in step["request"] else []
        yield step["request"], {"Deletions": deleted, "Upsertions": upsertions[step["request"]]}, step["answer"]


def test_scram_users_are_changed_and_shown_as_by_kafka(broker: SecuredBroker, tmp_path: Path) -> None:
    first = {"Name": "scramboot", "Mechanism": 1, "Iterations": 4096, "Salt": "01", "SaltedPassword": "02"}
    broker.ask(ADMIN, "AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": [first]})
    found = {}
    for case, request, theirs in scram_requests():
        found[case] = differences(ask(broker, "AlterUserScramCredentials", 0, request), theirs)
    assert_explained("scram_alter", found)
    found = {}
    for step in capture("acl_and_scram")["scram_describe"]:
        users = step["request"] and [{"Name": name} for name in step["request"]]
        answer = ask(broker, "DescribeUserScramCredentials", 0, {"Users": users})
        found[re.sub(r"\W+", " ", str(step["request"])).strip()] = differences(answer, step["answer"])
    assert_explained("scram_describe", found)
    image = read_metadata_image(tmp_path)
    assert image is not None
    assert set(image.security.scram_credentials) == {("scramboot", 1), ("a,b=c", 1), ("sem", 1)}
