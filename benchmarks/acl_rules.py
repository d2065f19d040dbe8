"""What a decision by ACLs costs, and a change of them, with few ACLs and with many.

    .venv/bin/python -m benchmarks.acl_rules [--rounds 5] [--acls 10000] [--users 500] [--decisions 20000]

ACLs are on topics and prefixes of 50 teams, one in ten a DENY. Each principal asks for random topics. Medians of the
rounds, in microseconds of CPU.
"""

from __future__ import annotations

import random
from time import process_time
from typing import Any

from benchmarks.figures import spread
from benchmarks.options import option_parser
from core.broker.requests.authorizer import Asker, Authorizer
from core.security.acl import (
    READ_TOPIC,
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from core.security.acl_rules import AclRules, ZooKeeperAclRules
from core.security.principal import Principal

_HOST = "10.0.0.1"
_TEAMS, _TOPICS = 50, 60


def make_acls(rnd: random.Random, count: int, users: int) -> list[Acl]:
    found: dict[Acl, None] = {}
    while len(found) < count:
        team = f"team{rnd.randrange(_TEAMS)}."
        is_prefix = rnd.random() < 0.3
        acl = Acl(
            ResourceType.TOPIC,
            team if is_prefix else f"{team}topic{rnd.randrange(_TOPICS)}",
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
            f"User:user{rnd.randrange(users)}",
            rnd.choice(["*"] * 9 + [_HOST]),
            rnd.choice([AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL]),
            rnd.choice([AclPermissionType.ALLOW] * 9 + [AclPermissionType.DENY]),
        )
        found[acl] = None
    return list(found)


def measure_rules(kind: type[AclRules], acls: list[Acl], asked: list[Any], rounds: int) -> None:
    rules = kind(acls)
    everyone = kind(acls, allows_everyone_if_none=True)
    asker, authorizer = Asker(asked[0][0], _HOST), Authorizer(rules)
    names = [name for *_, name in asked]
    filters = [AclFilter(ResourceType.TOPIC, name, PatternType.MATCH) for name in names[:100]]
    changed = acls[: max(1, len(acls) // 5)]

    def remember() -> None:
        for _ in range(100):
            for name in names[:100]:
                authorizer.decide(asker, READ_TOPIC, name)

    def change() -> None:
        for acl in changed:
            rules.change(removed=[acl])
        for acl in changed:
            rules.change(added=[acl])

    print(f"{kind.__name__}, {len(acls):,} ACLs")
    for name, count, work in (
        ("a decision", len(asked), lambda: [rules.decide(*one) for one in asked]),
        ("the same, everyone allowed if there is no ACL", len(asked), lambda: [everyone.decide(*one) for one in asked]),
        ("a decision that is remembered", 10_000, remember),
        ("a right on any topic", len(asked), lambda: [rules.allows_somewhere(*one[:4]) for one in asked]),
        ("an ACL that is added or removed", 2 * len(changed), change),
        ("the ACLs that apply to a name", len(filters), lambda: [rules.find(one) for one in filters]),
        ("an ACL of all that are listed", len(acls), lambda: rules.find(AclFilter())),
        ("an ACL of all at a start", len(acls), lambda: kind(acls)),
    ):
        figures = []
        for _ in range(rounds):
            start = process_time()
            work()
            figures.append((process_time() - start) / count * 1e6)
        print(f"  {name:<50} {spread(figures, '.2f', 'us')}", flush=True)


def main() -> None:
    options = option_parser(__doc__, rounds=5, acls=10_000, users=500, decisions=20_000).parse_args()
    rnd = random.Random(1)
    asked = [
        (
            Principal("User", f"user{rnd.randrange(options.users)}"),
            _HOST,
            rnd.choice([AclOperation.READ, AclOperation.WRITE]),
            ResourceType.TOPIC,
            f"team{rnd.randrange(_TEAMS)}.topic{rnd.randrange(_TOPICS)}",
        )
        for _ in range(options.decisions)
    ]
    for count in (options.acls // 100, options.acls):
        acls = make_acls(rnd, count, options.users)
        for kind in (AclRules, ZooKeeperAclRules):
            measure_rules(kind, acls, asked, options.rounds)


if __name__ == "__main__":
    main()
