"""What the metadata log adds up to of security: ACLs, SCRAM credentials, delegation tokens, quotas.

plog obeys none of them. They are kept by what they are about, as Kafka keeps them (AclsImage, ScramImage,
DelegationTokenImage, ClientQuotasImage), so that a snapshot loses nothing and a broker can say what it does not obey.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.cluster.metadata_record import MetadataRecord
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


class SecurityImage:
    """Owned by the image of the metadata."""

    def __init__(self) -> None:
        self.acls: dict[bytes, AccessControlEntryRecord] = {}
        self.scram_credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.delegation_tokens: dict[str, DelegationTokenRecord] = {}
        self.client_quotas: dict[_QuotaKey, ClientQuotaRecord] = {}

    def apply(self, record: MetadataRecord) -> bool:
        """Whether it was a record of these."""
        match record:
            case AccessControlEntryRecord():
                self.acls[record.id] = record
            case RemoveAccessControlEntryRecord():
                self.acls.pop(record.id, None)
            case UserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = record
            case RemoveUserScramCredentialRecord():
                self.scram_credentials.pop((record.name, record.mechanism), None)
            case DelegationTokenRecord():
                self.delegation_tokens[record.token_id] = record
            case RemoveDelegationTokenRecord():
                self.delegation_tokens.pop(record.token_id, None)
            case ClientQuotaRecord():
                entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
                self.client_quotas.pop((entity, record.key), None)
                if not record.remove:
                    self.client_quotas[entity, record.key] = record
            case _:
                return False
        return True

    def to_records(self) -> Iterator[MetadataRecord]:
        """Records that make this image again; they are the image's own, not to be changed."""
        yield from self.scram_credentials.values()
        yield from self.delegation_tokens.values()
        yield from self.client_quotas.values()
        yield from self.acls.values()

    def summary(self) -> str:
        """How much there is of each, for people; empty if there is nothing."""
        counts = [
            (len(self.acls), "ACL"),
            (len({name for name, _ in self.scram_credentials}), "SCRAM user"),
            (len(self.delegation_tokens), "delegation token"),
            (len(self.client_quotas), "quota"),
        ]
        parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
        return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
