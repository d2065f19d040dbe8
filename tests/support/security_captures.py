"""What a secured Kafka answered to clients with few rights, and the same requests to a plog broker without sockets.

tests/golden/security has Kafka's answers; requests and answers are dictionaries with Kafka's names of fields, coded by
Kafka's own message definitions. `python -m tests.support.security_captures [TEXT]` prints the cells of the matrix that
differ, of the cases whose names contain the text; `--all` prints those with a reason, too.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from core.broker.requests.client_session import Session
from core.common.pending import Pending
from core.security.acl import Acl, AclOperation, ResourceType, Right
from core.security.principal import Principal
from tests.support.answers import comparison
from tests.support.answers.asked_broker import Step
from tests.support.answers.message_codec import (
    NO_ID,
    Field,
    Fields,
    api_keys,
    decode_response,
    encode_request,
    fields_of_request,
)
from tests.support.broker import SteeredNode, Timers, add_topic, allow, delete_topic, joined
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock
from tests.support.requests import SERVED_APIS

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "security"
DEVIATIONS = GOLDEN.parent / "security_deviations.toml"

ADMIN = "admin"
NOBODY = "none"
CLIENT_ID = "lab"
HOST = "127.0.0.1"

_VOLATILE = re.compile(
    "ThrottleTimeMs|Records|.*Offset|.*Watermark|.*Timestamp|.*TimeMs|ProducerId|.*Epoch|MemberId|Leader"
    "|HeartbeatIntervalMs|SessionId|ApiKeys|Brokers|ClusterId|ControllerId|EndpointInformation.*|Host|Port|NodeId"
    "|Documentation|LogDir|TotalBytes|UsableBytes|PartitionSize|OffsetLag|Nodes|CurrentVoters|Observers|LeaderId|TopicId|AssignorName"
    "|ClientHost|ReplicaNodes|IsrNodes|AbortedTransactions|ActiveProducers|Configs|Synonyms|Finalized.*|SupportedFeatures"
)
"""Fields of answers that tell no right: of these only whether there is anything is compared."""

_LEFT_OUT = {"ErrorMessage", "LogAppendTimeMs"}
"""Kafka has no rule for these: a message or null, a time for a batch that it had already."""


@cache
def capture(name: str) -> Any:
    """Reads a capture of tests/golden/security."""
    return json.loads(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))


class Case(NamedTuple):
    """One request of the matrix, as the user `NOBODY` sent it, and Kafka's answers by user."""

    api: str
    version: int
    case: str
    request: Fields
    answers: dict[str, Fields]

    @property
    def name(self) -> str:
        return f"{self.api} {self.version}, {self.case}"


@cache
def matrix() -> dict[str, Case]:
    """The cases of the matrix by name, in the order in which Kafka was asked."""
    cases = [
        Case(
            each["api"],
            each["version"],
            each["case"],
            each["request"],
            {user: group["answer"] for group in each["answers"] for user in group["users"]},
        )
        for each in capture("matrix")
    ]
    return {case.name: case for case in cases}


def users() -> list[str]:
    """All users of the matrix, in the order in which they asked."""
    order = {right: place for place, right in enumerate(right_acls())}
    return sorted(next(iter(matrix().values())).answers, key=lambda user: (user == ADMIN, order.get(user, -1)))


def principal(user: str) -> Principal:
    """Returns the principal of a user of the matrix: `User:Topic_Read` of `Topic-Read`."""
    return Principal("User", user.replace("-", "_"))


def right_of(text: str) -> Right:
    """Returns a right such as `Topic-Read`."""
    kind, operation = (re.sub(r"(?<!^)(?=[A-Z])", "_", word).upper() for word in text.split("-"))
    return Right.of(AclOperation[operation], ResourceType[kind])


@cache
def right_acls() -> dict[str, Acl]:
    """The ACL of each user of the matrix that has one."""
    names = dict.fromkeys(user for case in matrix().values() for user in case.answers if "-" in user)
    return {user: allow(right_of(user), str(principal(user)), "*") for user in names}


_SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:{ADMIN}",
}
"""Those of the captured broker."""


class SecuredBroker:
    """A broker with ACLs, asked by users in the terms of the captures: what the ids of topics there were is known by
    name.
    """

    def __init__(self, directory: Path, acls: Iterable[Acl] = ()) -> None:
        self.node = SteeredNode(directory, BrokerConfig.parse(_SETTINGS), clock=ManualClock(NOW))
        assert self.node.authorizer is not None
        self.authorizer = self.node.authorizer
        self.rules = self.authorizer.rules
        self.node.services.security.create_acls(list(acls))
        self._timers = Timers()
        self.node.runtime.use(schedule=self._timers)
        self._sessions: dict[str, Session] = {}
        self._captured_ids = captured_ids()

    def close(self) -> None:
        self.node.close()

    def session(self, user: str) -> Session:
        """Returns the session of a user of the matrix, the same each time."""
        if user not in self._sessions:
            self._sessions[user] = Session(principal(user), "SASLP", HOST, HOST, self.authorizer)
        return self._sessions[user]

    def send(self, user: str, api: str, version: int, fields: Fields) -> Any:
        """Returns what the dispatcher returns to a request in the capture's terms."""
        shape = fields_of_request(api, version)
        frame = encode_request(api, version, 7, CLIENT_ID, self._ours(shape, fields, user))
        return self.node.dispatcher.handle(memoryview(bytearray(frame)), self.session(user))

    def ask(self, user: str, api: str, version: int, fields: Fields) -> Fields:
        """Returns the answer, in the capture's terms; one that waits for longer than a turn, as it is when its time is
        over.
        """
        answer = self.send(user, api, version, fields)
        if isinstance(answer, Pending):
            arrived: list[Any] = []
            answer.on_value = arrived.append
            self._timers.fire(within_ms=0)
            if not arrived:
                answer.complete_now()
            (answer,) = arrived
        return self.decode(api, version, answer)

    def decode(self, api: str, version: int, pieces: Any) -> Fields:
        return decode_response(api, version, joined(pieces)[4:])

    def topic_ids(self) -> dict[str, str]:
        """The ids of the broker's topics by name, in hex."""
        topics = self.node.services.controller.image.topics
        return {name: topic.topic_id.hex() for name, topic in topics.items()}

    def _ours(self, shape: tuple[Field, ...], values: Fields, user: str) -> Fields:
        """Exchanges what of a request depends on the broker or the user. Leaves out fields that the version lacks, as
        the client of the captures did.
        """
        return {field.name: self._our_value(field, values[field.name], user) for field in shape if field.name in values}

    def _our_value(self, field: Field, value: Any, user: str) -> Any:
        if isinstance(value, list):
            return [self._our_value(field, each, user) for each in value]
        if isinstance(value, dict):
            return self._ours(field.fields, value, user)
        if not isinstance(value, str):
            return value
        kind = field.kind.removeprefix("[]")
        if kind in ("bytes", "records"):
            return bytes.fromhex(value)
        if kind == "uuid":
            topic = _of_user(self._captured_ids.get(value, ""), user)
            return self.topic_ids().get(topic, value)
        return _of_user(value, user)


def _of_user(text: str, user: str) -> str:
    """Exchanges what the user `NOBODY` wrote for what another one did."""
    if text.endswith("." + NOBODY):
        return text.removesuffix(NOBODY) + user
    return _member_id(user) if text == _member_id(NOBODY) else text


def _member_id(user: str) -> str:
    return (user.encode().hex() + NO_ID)[:22]


@cache
def captured_ids() -> dict[str, str]:
    """The names of Kafka's topics by id."""
    found: dict[str, str] = {}

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("TopicId", NO_ID) != NO_ID and value.get("Name"):
                found[value["TopicId"]] = value["Name"]
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                look(each)

    look([case.answers for case in matrix().values()])
    return found


def prepare(broker: SecuredBroker) -> None:
    """Makes the topics, the group, the transaction and the user that the requests of the matrix name."""
    for name, partitions in (("t", 2), ("secret", 2), ("auto.admin", 1), (_SHARE_STATE, 50)):
        add_topic(broker.node, name, partitions)
    for user in users():
        add_topic(broker.node, f"del1.{user}")
        add_topic(broker.node, f"del2.{user}")
    commit = matrix()["OffsetCommit 9, there"]
    for key, key_type in (("g", 0), ("tx", 1)):
        broker.ask(ADMIN, "FindCoordinator", 6, {"KeyType": key_type, "CoordinatorKeys": [key]})
    broker.ask(ADMIN, commit.api, commit.version, commit.request)
    init = {**matrix()["InitProducerId 5, transactional"].request, "TransactionalId": "tx"}
    for case, user in (("topic there", ADMIN), ("topic not there", ADMIN), ("regex", ADMIN), ("regex", "Group-Read")):
        heartbeat = matrix()[f"ConsumerGroupHeartbeat 1, {case}"]
        broker.ask(user, heartbeat.api, heartbeat.version, heartbeat.request)
        broker.ask(user, heartbeat.api, heartbeat.version, {**heartbeat.request, "MemberEpoch": -1})
    for _ in range(5):  # the epoch of the captured requests is 4
        broker.ask(ADMIN, "InitProducerId", 5, init)
    credential = {"Name": "scramboot", "Mechanism": 1, "Iterations": 4096, "Salt": "01", "SaltedPassword": "02"}
    broker.ask(ADMIN, "AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": [credential]})
    produce = matrix()["Produce 12, there, by name"]
    broker.ask(ADMIN, produce.api, produce.version, produce.request)


_SHARE_STATE = "__share_group_state"
"""Kafka's topic for share groups, which plog does not have: here it is one like others."""


class Difference(NamedTuple):
    """One place of one answer. `path` is as in `Topics[t].ErrorCode`."""

    user: str
    path: str
    ours: str
    theirs: str


def replay(broker: SecuredBroker) -> dict[str, list[Difference]]:
    """Asks all cases of the served APIs as all users, and returns by case where the answers differ."""
    prepare(broker)
    found: dict[str, list[Difference]] = {}
    for case in matrix().values():
        if case.api not in served_names():
            continue
        found[case.name] = []
        for user in users():
            answer = broker.ask(user, case.api, case.version, case.request)
            found[case.name] += differences(user, answer, case.answers[user])
    return found


def combinations() -> list[tuple[str, tuple[str, ...], Case, Fields]]:
    """The cases that users with several rights asked: the user, its rights, the case, and the answer."""
    numbers: dict[tuple[str, ...], int] = {}
    found = []
    for each in capture("acl_and_scram")["combinations"]:
        rights = tuple(right.replace(" ", "-") for right in each["permissions"])
        number = numbers.setdefault(rights, len(numbers))
        case = matrix()[f"{each['api']} {each['version']}, {each['case']}"]
        found.append((f"combo{number}", rights, case, each["answer"]))
    return found


def replay_combinations(broker: SecuredBroker) -> dict[str, list[Difference]]:
    """Asks the cases of `combinations` that are served, and returns by case where the answers differ."""
    prepare(broker)
    for user in (ADMIN, "Topic-Delete"):  # they had deleted theirs
        delete_topic(broker.node, f"del1.{user}")
        delete_topic(broker.node, f"del2.{user}")
    for name in ("orders", "orders-eu", "order", "payments"):
        add_topic(broker.node, name)
    found: dict[str, list[Difference]] = {}
    for user, rights, case, theirs in combinations():
        for right in rights:
            broker.rules.change(added=[allow(right_of(right), str(principal(user)), "*")])
        if case.api in served_names():
            answer = broker.ask(user, case.api, case.version, case.request)
            found[f"{' + '.join(rights)}: {case.name}"] = differences(user, answer, theirs)
    return found


@cache
def served_names() -> frozenset[str]:
    """The APIs that a lone broker serves."""
    return frozenset(api.name for api in SERVED_APIS) & api_keys().keys()


def differences(user: str, ours: Fields, theirs: Fields) -> list[Difference]:
    """Returns the places where the answers differ, but for what tells no right."""
    step = Step("", "", 0)
    found = comparison.differences({step: comparable(ours)}, {step: comparable(theirs)})
    return [Difference(user, each.path, _shown(each.plog), _shown(each.kafka)) for each in found]


def comparable(value: Any, field: str = "") -> Any:
    """The answer, but for what differs from run to run."""
    if _VOLATILE.fullmatch(field):
        return _presence(value)
    if isinstance(value, dict):
        return {name: comparable(each, name) for name, each in value.items() if name not in _LEFT_OUT}
    if isinstance(value, list):
        return sorted((comparable(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    return value


def in_order(value: Any) -> Any:
    """The answer with its lists sorted: Kafka's are in no order."""
    if isinstance(value, dict):
        return {name: in_order(each) for name, each in value.items()}
    return sorted(map(in_order, value), key=str) if isinstance(value, list) else value


def _presence(value: Any) -> Any:
    """Returns whether there is something: -1 and empty values say that nothing is shown."""
    if isinstance(value, int):
        return "<none>" if value < 0 else "<number>"
    return "<something>" if value and value != NO_ID else "<none>"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


class Deviation(NamedTuple):
    """A row of `DEVIATIONS`: an answer that is not Kafka's, and why. In its texts a `*` stands for any text; without
    `users` it is about all.
    """

    case: str
    path: str
    ours: str
    theirs: str
    why: str
    users: tuple[str, ...] = ("*",)

    def explains(self, case: str, difference: Difference) -> bool:
        return (
            _matches(self.case, case)
            and any(_matches(user, difference.user) for user in self.users)
            and _matches(self.path, difference.path)
            and _matches(self.ours, difference.ours)
            and _matches(self.theirs, difference.theirs)
        )


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


@cache
def deviations(name: str) -> tuple[Deviation, ...]:
    """The rows of a capture."""
    rows = tomllib.loads(DEVIATIONS.read_text(encoding="utf-8")).get(name, [])
    return tuple(Deviation(**{**row, "users": tuple(row.get("users", ("*",)))}) for row in rows)


def left_out(table: str = "unserved") -> dict[str, str]:
    """Returns what is not asked, and why: APIs of the matrix that a lone broker does not serve, or steps of another
    capture.
    """
    rows: dict[str, str] = tomllib.loads(DEVIATIONS.read_text(encoding="utf-8"))[table]
    return rows


def unexplained(name: str, case: str, found: Iterable[Difference]) -> list[Difference]:
    """Returns the differences that no row of the capture explains."""
    rows = deviations(name)
    return [each for each in found if not any(row.explains(case, each) for row in rows)]


def assert_explained(name: str, found: Mapping[str, list[Difference]]) -> None:
    """Fails if there is a difference, by case, that no row of the capture explains; and if a row about these cases
    explains none.
    """
    lines = [line for case, some in found.items() for line in table(case, unexplained(name, case, some))]
    assert not lines, "\n".join(lines)
    every = [(case, each) for case, some in found.items() for each in some]
    rows = [row for row in deviations(name) if any(_matches(row.case, case) for case in found)]
    needless = [row for row in rows if not any(row.explains(*each) for each in every)]
    assert not needless, f"these differ no longer: {needless}"


_MOST_SHOWN = 5


def table(case: str, found: Iterable[Difference]) -> Iterator[str]:
    """Lines for people: the users that differ in one way stand together."""
    by_way: dict[tuple[str, str, str], dict[str, None]] = {}
    for each in found:
        by_way.setdefault(each[1:], {})[each.user] = None
    for (path, ours, theirs), who in islice(by_way.items(), _MOST_SHOWN):
        yield f"{case}: {path}"
        yield f"    plog  {ours[:300]}"
        yield f"    kafka {theirs[:300]}"
        yield f"    {len(who)} users: {' '.join(islice(who, 8))}{' ..' if len(who) > 8 else ''}"
    if len(by_way) > _MOST_SHOWN:
        yield f"{case}: {len(by_way) - _MOST_SHOWN} more"


def main(arguments: list[str]) -> None:
    shows_all = "--all" in arguments
    texts = [text for text in arguments if text != "--all"]
    cells = 0
    with tempfile.TemporaryDirectory() as directory:
        matrix_broker = SecuredBroker(Path(directory) / "matrix", right_acls().values())
        other_broker = SecuredBroker(Path(directory) / "combinations")
        all_found = [("matrix", replay(matrix_broker)), ("combinations", replay_combinations(other_broker))]
        for name, case, found in ((name, *pair) for name, cases in all_found for pair in cases.items()):
            shown = found if shows_all else unexplained(name, case, found)
            if all(text.lower() in case.lower() for text in texts):
                sys.stdout.writelines(f"{line}\n" for line in table(case, shown))
                cells += len({each.user for each in shown})
        matrix_broker.close()
        other_broker.close()
    sys.stdout.write(f"{cells} cells differ\n")


if __name__ == "__main__":
    main(sys.argv[1:])
