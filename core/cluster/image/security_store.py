"""The ACLs and SCRAM credentials of a broker or a cluster, as requests change and read them.

A lone broker keeps them in its metadata log (`SingleNodeSecurity`), a cluster with ZooKeeper in nodes there
(`ZooKeeperSecurity`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.quotas_and_users import ScramCredentialDeletion, ScramCredentialUpsertion
from core.security.acl import Acl, AclFilter
from core.security.sasl.scram import (
    KAFKAS_SALT,
    LEAST_ITERATIONS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
)

MOST_ITERATIONS = 16_384
"""The most iterations of a stored credential: MAX_ITERATIONS of Kafka's ScramControlManager."""

MECHANISMS = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""The mechanisms by their numbers in requests and records (org.apache.kafka.clients.admin.ScramMechanism)."""
MECHANISM_NUMBERS = {one.name: number for number, one in MECHANISMS.items()}

TWICE = "A user credential cannot be altered twice in the same request"
NOT_THERE = "Attempt to delete a user credential that does not exist"

ScramAlteration = ScramCredentialDeletion | ScramCredentialUpsertion
"""A deletion, or a credential that is set."""


def ensure_sound(asked: ScramAlteration) -> ScramMechanism:
    """Returns the mechanism. Raises KafkaError for what Kafka refuses whatever users there are."""
    if not asked.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISMS.get(asked.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(asked, ScramCredentialUpsertion):
        if asked.iterations < LEAST_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if asked.iterations > MOST_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if not asked.salted_password:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Java makes no key of nothing
    return mechanism


def most_usual(credentials: Iterable[ScramCredential]) -> ScramCredential | None:
    """Returns one of the credentials whose iterations, and the form of whose salts, most of them have, or None if there
    are none.
    """
    examples: dict[tuple[int, int], ScramCredential] = {}
    counts: Counter[tuple[int, int]] = Counter()
    for one in credentials:
        look = one.iterations, 0 if KAFKAS_SALT.fullmatch(one.salt) else len(one.salt)
        counts[look] += 1
        examples.setdefault(look, one)
    return examples[max(counts, key=lambda look: (counts[look], look))] if counts else None


class DeletedAcl(NamedTuple):
    """An ACL that a filter matched, and why it could not be deleted, or None."""

    acl: Acl
    error: KafkaError | None = None


Deletions = Sequence[Sequence[DeletedAcl] | KafkaError]
"""For each filter the ACLs that it matched, or why it was not tried."""


class SecurityStore(Protocol):
    """Owned by the broker's task. A method that raises KafkaError has changed nothing: the error counts for the whole
    request. A method that returns no Pending returns after the change is on disk, and in the rules.
    """

    def acls(self) -> Collection[Acl]:
        """Returns all ACLs; valid until the next change."""

    def create_acls(self, acls: Sequence[Acl]) -> Sequence[KafkaError | None] | Pending[Sequence[KafkaError | None]]:
        """Adds the ACLs, and returns the outcome of each: None for success, also if there is such an ACL already. The
        caller has checked what Kafka's brokers check before their controller sees the request: no element is ANY or
        MATCH, no name of a resource is empty, and a cluster has its one name. UNKNOWN elements were numbers of a later
        Kafka.
        """

    def delete_acls(self, filters: Sequence[AclFilter]) -> Deletions | Pending[Deletions]:
        """Deletes the ACLs that match any of the filters; an ACL that several match is in the outcome of each, of a
        cluster with ZooKeeper in that of the first.
        """

    def scram_users(self) -> Mapping[str, Mapping[int, int]]:
        """Returns the users with SCRAM credentials: for each one its mechanisms, by Kafka's numbers, and their
        iterations.
        """

    def find_scram_credential(self, name: str, mechanism: str) -> ScramCredential | None:
        """Returns what is kept of a user for the mechanism, or None if there is nothing, or if it can't be read."""

    def usual_scram_credential(self, mechanism: str) -> ScramCredential | None:
        """Returns a credential whose iterations, and the form of whose salt, most users have; None without users."""

    def alter_scram_credentials(
        self, alterations: Sequence[ScramAlteration]
    ) -> Mapping[str, KafkaError | None] | Pending[Mapping[str, KafkaError | None]]:
        """Deletes and sets credentials, deletions first; returns the outcome of each named user, None for success."""
