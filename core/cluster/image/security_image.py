"""The security records of the metadata log: ACLs, SCRAM credentials, delegation tokens, quotas.

An authorizer obeys the ACLs; plog enforces none of the others. They are kept by their subject, as Kafka keeps them
(AclsImage, ScramImage, DelegationTokenImage, ClientQuotasImage), so that a snapshot loses nothing and a broker can name
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.cluster.image.metadata_record import MetadataRecord
from core.protocol.schema.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from core.security.acl import Acl

_QuotaKey = tuple[frozenset[tuple[str, str | None]], str]


@dataclass(frozen=True, slots=True)
class SecurityImage:
    """Immutable."""

    acls: Mapping[bytes, AccessControlEntryRecord] = field(default_factory=dict)
    scram_credentials: Mapping[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=dict)
    client_quotas: Mapping[_QuotaKey, ClientQuotaRecord] = field(default_factory=dict)

    def to_records(self) -> Iterator[MetadataRecord]:
        """Yields records that make this image again; they are the image's own, and the caller must not change them."""
        yield from self.scram_credentials.values()
        yield from self.delegation_tokens.values()
        yield from self.client_quotas.values()
        yield from self.acls.values()

    def summary(self) -> str:
        """Returns the counts of all kinds in words, or ""."""
        counts = [
            (len(self.acls), "ACL"),
            (len({name for name, _ in self.scram_credentials}), "SCRAM user"),
            (len(self.delegation_tokens), "delegation token"),
            (len(self.client_quotas), "quota"),
        ]
        return counts_text(counts)


def acl_of_record(record: AccessControlEntryRecord) -> Acl:
    """Returns the ACL; a number that plog does not know becomes UNKNOWN, as in Kafka, and such an ACL never matches."""
    pattern = record.resource_type, record.resource_name, record.pattern_type
    return Acl.of_numbers(*pattern, record.principal, record.host, record.operation, record.permission_type)


def counts_text(counts: Sequence[tuple[int, str]]) -> str:
    """Returns the counts in words, as `2 ACLs and 1 quota`, or ""."""
    parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
