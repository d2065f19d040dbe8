"""The ACLs and SCRAM credentials of a broker or a cluster, as requests change and read them.

A lone broker keeps them in its metadata log (`SingleNodeSecurity`), a cluster with ZooKeeper in nodes there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.quotas_and_users import ScramCredentialDeletion, ScramCredentialUpsertion
from core.security.acl import Acl, AclFilter

ScramAlteration = ScramCredentialDeletion | ScramCredentialUpsertion
"""A deletion, or a credential that is set."""


class DeletedAcl(NamedTuple):
    """An ACL that a filter matched, and why it could not be deleted, or None."""

    acl: Acl
    error: KafkaError | None = None


Deletions = Sequence[Sequence[DeletedAcl] | KafkaError]
"""For each filter the ACLs that it matched, or why it was not tried."""


class SecurityStore(Protocol):
    """Owned by the broker's task. A method that raises KafkaError has changed nothing; the error is of all that the
    request asked for. What returns at once is kept, and obeyed, when the method returns.
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
        """Deletes the ACLs that match any of the filters; an ACL that several match is in the outcome of each."""

    def scram_users(self) -> Mapping[str, Mapping[int, int]]:
        """Returns the users with SCRAM credentials: for each one its mechanisms, by Kafka's numbers, and their
        iterations.
        """

    def alter_scram_credentials(
        self, alterations: Sequence[ScramAlteration]
    ) -> Mapping[str, KafkaError | None] | Pending[Mapping[str, KafkaError | None]]:
        """Deletes and sets credentials, deletions first; returns the outcome of each named user, None for success."""
