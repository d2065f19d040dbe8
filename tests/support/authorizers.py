"""Random questions to Kafka's authorizers, and their answers: of Kafka's own classes, and of plog's rules.

python -m tests.support.authorizers    records tests/golden/authorizers again: 2,000 questions to each
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core.security.acl import Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from core.security.acl_rules import AclRules, ZooKeeperAclRules
from core.security.principal import Principal
from tests.support.oracle import KAFKA39_VERSION, KAFKA_VERSION, java_command

RULES: Mapping[str, type[AclRules]] = {"StandardAuthorizer": AclRules, "AclAuthorizer": ZooKeeperAclRules}
"""By Kafka's class."""
VERSIONS = {"StandardAuthorizer": KAFKA_VERSION, "AclAuthorizer": KAFKA39_VERSION}
RECORDED = Path(__file__).resolve().parents[1] / "golden" / "authorizers"

QUESTIONS_A_CASE = 20
_PROGRAM = Path(__file__).resolve().parent / "kafka" / "Authorizers.java"

_TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.USER]
_NAMES = ["a", "ab", "abc", "abcd", "ac", "b", "A", "hard", "hardcode", "hardcoded", "a\0b", "a*", "å", "a😀"]
_OPERATIONS = list(AclOperation)[AclOperation.ALL : AclOperation.TWO_PHASE_COMMIT]  # which Kafka 3.9 does not have
_USUAL = [AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]
_HOSTS = ["127.0.0.1", "10.0.0.1", "0:0:0:0:0:0:0:1"]
_OTHER_HOSTS = ["127.0.0.0/8", "10.0.0.0/31", "10.0.0.1/8", "::/64", "0:0:0:0:0:0:0:1/127", "10.0.0.1/33", ""]
_USERS = ["alice", "bob", "Alice", "root", "a:b", "zoë"]


class Question(NamedTuple):
    """`name` is None for any resource of the type."""

    principal: Principal
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None


class Case(NamedTuple):
    allows_everyone_if_none: bool
    acls: Sequence[Acl]
    questions: Sequence[Question]


SUPER_USER = Principal("User", "root")


class _Words(NamedTuple):
    """What the ACLs and questions of a case are made of. Few words let few ACLs meet each other, which decides whether
    a right on any resource is left; many words have the odd ones.
    """

    types: Sequence[ResourceType]
    names: Sequence[str]
    operations: Sequence[AclOperation]
    principals: Sequence[str]
    hosts: Sequence[str]
    denied: float
    """The share of ACLs that deny."""

    @classmethod
    def draw(cls, rnd: random.Random) -> _Words:
        return cls(
            rnd.sample(_TYPES, rnd.choice([1, 1, 2, 4])),
            rnd.choice([["a", "ab", "abc", "b"], ["ab", "abcd", "hard"], _NAMES]),
            rnd.choice([_OPERATIONS, _USUAL, [AclOperation.READ]]),
            rnd.choice([["User:alice", "User:*"], [*(f"User:{user}" for user in _USERS), "User:*", "Group:alice"]]),
            rnd.choice([["*"], ["*", "*", "*", *_HOSTS, *_OTHER_HOSTS]]),
            rnd.choice([0.1, 0.3, 0.6]),
        )

    def acl(self, rnd: random.Random) -> Acl:
        return Acl(
            resource_type=rnd.choice(self.types),
            resource_name=rnd.choice([*self.names, "*"]),
            pattern_type=rnd.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            principal=rnd.choice(self.principals),
            host=rnd.choice(self.hosts),
            operation=rnd.choice([*self.operations, AclOperation.ALL]),
            permission_type=AclPermissionType.DENY if rnd.random() < self.denied else AclPermissionType.ALLOW,
        )

    def question(self, rnd: random.Random) -> Question:
        return Question(
            Principal(rnd.choice(["User"] * 9 + ["Group"]), rnd.choice(["alice"] * 6 + _USERS)),
            rnd.choice(_HOSTS),
            rnd.choice([operation for operation in self.operations if operation is not AclOperation.ALL]),
            rnd.choice(self.types),
            None if rnd.random() < 0.3 else rnd.choice([*self.names, *_NAMES, "*", ""]),
        )


def random_cases(questions: int, seed: int) -> Iterator[Case]:
    """Yields cases of so many questions in sum, of few ACLs and of many."""
    rnd = random.Random(seed)
    for _ in range(questions // QUESTIONS_A_CASE):
        words = _Words.draw(rnd)
        count = rnd.choice([0, 1, 2, 3, 3, 4, 5, 8, 20, 60])
        yield Case(
            allows_everyone_if_none=rnd.random() < 0.4,
            acls=list(dict.fromkeys(words.acl(rnd) for _ in range(count))),
            questions=[words.question(rnd) for _ in range(QUESTIONS_A_CASE)],
        )


def answers_of_kafka(authorizer: str, cases: Sequence[Case]) -> list[list[Any]]:
    """Returns for each question of each case whether Kafka allows it, and its line of the audit log, or ""."""
    given = "".join(f"{json.dumps(_as_json(case))}\n" for case in cases)
    command = java_command(str(_PROGRAM), authorizer, version=VERSIONS[authorizer])
    done = subprocess.run(command, input=given.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return [answer for line in done.stdout.splitlines() for answer in json.loads(line)]


def answers_of_plog(authorizer: str, cases: Sequence[Case]) -> list[list[Any]]:
    """Returns for each question of each case whether plog allows it, and what the audit log names as the reason."""
    found: list[list[Any]] = []
    for case in cases:
        rules = RULES[authorizer](
            case.acls, super_users=[SUPER_USER], allows_everyone_if_none=case.allows_everyone_if_none
        )
        for *asked, name in case.questions:
            if name is None:
                found.append([rules.allows_somewhere(*asked), ""])
            else:
                decision = rules.decide(*asked, name)
                found.append([decision.is_allowed, decision.rule_text])
    return found


def differences(authorizer: str, cases: Sequence[Case], theirs: Sequence[Sequence[Any]]) -> list[str]:
    """Returns a line of each question that plog answers otherwise than Kafka did, or for another reason."""
    asked = [(case, question) for case in cases for question in case.questions]
    ours = answers_of_plog(authorizer, cases)
    found = []
    for (case, question), (is_allowed, *line), (we_allow, rule) in zip(asked, theirs, ours, strict=True):
        rule_of_kafka = line[0].partition(" based on rule ")[2] if line else ""
        if is_allowed is not we_allow or (rule_of_kafka and question.name is not None and rule_of_kafka != rule):
            found.append(f"{question} of {len(case.acls)} ACLs: {is_allowed} {line}, plog {we_allow} {rule}")
    return found


def _as_json(case: Case) -> dict[str, Any]:
    return {
        "super": str(SUPER_USER),
        "everyone": case.allows_everyone_if_none,
        "acls": case.acls,
        "questions": [[*question.principal, *question[1:]] for question in case.questions],
    }


def recorded(authorizer: str) -> tuple[list[Case], list[list[Any]]]:
    """Returns the recorded cases, and what Kafka answered."""
    data = json.loads(gzip.decompress((RECORDED / f"{authorizer}.json.gz").read_bytes()))
    cases = [
        Case(
            case["everyone"],
            [Acl.of_numbers(*acl) for acl in case["acls"]],
            [
                Question(Principal(*who), host, AclOperation(operation), ResourceType(kind), name)
                for *who, host, operation, kind, name in case["questions"]
            ],
        )
        for case in data["cases"]
    ]
    return cases, data["answers"]


def _record(authorizer: str) -> None:
    cases = list(random_cases(2_000, seed=60))
    data = {"cases": list(map(_as_json, cases)), "answers": answers_of_kafka(authorizer, cases)}
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{authorizer}.json.gz").write_bytes(gzip.compress(json.dumps(data).encode(), mtime=0))


if __name__ == "__main__":
    for each in RULES:
        _record(each)
