"""The security records of the metadata log: ACLs, SCRAM credentials, delegation tokens, quotas.

plog enforces none of them. They are kept by their subject, as Kafka keeps them (AclsImage, ScramImage,
DelegationTokenImage, ClientQuotasImage), so that a snapshot loses nothing and a broker can name them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.cluster.image.metadata_record import MetadataRecord
from core.cluster.image.persistent_map import MapChanges
from core.protocol.schema.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

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


def counts_text(counts: Sequence[tuple[int, str]]) -> str:
    """Returns the counts in words, as `2 ACLs and 1 quota`, or ""."""
    parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


class SecurityDelta:
    """A change of a security image by records; owned by the delta of the metadata."""

    def __init__(self, before: SecurityImage) -> None:
        self.acls = MapChanges(before.acls)
        self.scram_credentials = MapChanges(before.scram_credentials)
        self.delegation_tokens = MapChanges(before.delegation_tokens)
        self.client_quotas = MapChanges(before.client_quotas)

    def replay(self, record: MetadataRecord) -> bool:
        """Applies a record; returns whether it was one of these."""
        match record:
            case AccessControlEntryRecord():
                self.acls[record.id] = record
            case RemoveAccessControlEntryRecord():
                self.acls[record.id] = None
            case UserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = record
            case RemoveUserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = None
            case DelegationTokenRecord():
                self.delegation_tokens[record.token_id] = record
            case RemoveDelegationTokenRecord():
                self.delegation_tokens[record.token_id] = None
            case ClientQuotaRecord():
                entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
                self.client_quotas[entity, record.key] = None if record.remove else record
            case _:
                return False
        return True

    def apply(self) -> SecurityImage:
        """Returns the image with the changes."""
        return SecurityImage(
            self.acls.apply(),
            self.scram_credentials.apply(),
            self.delegation_tokens.apply(),
            self.client_quotas.apply(),
        )
