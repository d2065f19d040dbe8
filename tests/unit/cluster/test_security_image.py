from __future__ import annotations

from core.cluster.security_image import SecurityImage
from core.protocol.schema.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)


def test_what_was_removed_is_gone() -> None:
    image = SecurityImage()
    user, client = EntityData("user", "alice"), EntityData("client-id", None)
    assert image.summary() == ""
    for record in (
        AccessControlEntryRecord(id=b"a" * 16),
        AccessControlEntryRecord(id=b"b" * 16),
        UserScramCredentialRecord(name="alice", mechanism=1),
        UserScramCredentialRecord(name="alice", mechanism=2),
        DelegationTokenRecord(token_id="t"),
        ClientQuotaRecord([user, client], "producer_byte_rate", 1.0),
        ClientQuotaRecord([user], "producer_byte_rate", 2.0),
    ):
        assert image.apply(record)
    assert image.summary() == "2 ACLs, 1 SCRAM user, 1 delegation token and 2 quotas"
    for record in (
        RemoveAccessControlEntryRecord(id=b"a" * 16),
        RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        RemoveDelegationTokenRecord(token_id="t"),
        ClientQuotaRecord([client, user], "producer_byte_rate", 0.0, remove=True),
    ):
        assert image.apply(record)
    assert image.summary() == "1 ACL, 1 SCRAM user and 1 quota"
    assert [type(record).__name__ for record in image.to_records()] == [
        "UserScramCredentialRecord",
        "ClientQuotaRecord",
        "AccessControlEntryRecord",
    ]


def test_other_records_are_not_its_own() -> None:
    assert not SecurityImage().apply(TopicRecord("t", bytes(16)))
