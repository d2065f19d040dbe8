from __future__ import annotations

from core.cluster.image.metadata_delta import SecurityDelta
from core.cluster.image.security_image import SecurityImage
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
    delta = SecurityDelta(SecurityImage())
    user, client = EntityData("user", "alice"), EntityData("client-id", None)
    assert delta.apply().summary() == ""
    for record in (
        AccessControlEntryRecord(id=b"a" * 16),
        AccessControlEntryRecord(id=b"b" * 16),
        UserScramCredentialRecord(name="alice", mechanism=1),
        UserScramCredentialRecord(name="alice", mechanism=2),
        DelegationTokenRecord(token_id="t"),
        ClientQuotaRecord([user, client], "producer_byte_rate", 1.0),
        ClientQuotaRecord([user], "producer_byte_rate", 2.0),
    ):
        assert delta.replay(record)
    before = delta.apply()
    assert before.summary() == "2 ACLs, 1 SCRAM user, 1 delegation token and 2 quotas"
    for record in (
        RemoveAccessControlEntryRecord(id=b"a" * 16),
        RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        RemoveDelegationTokenRecord(token_id="t"),
        ClientQuotaRecord([client, user], "producer_byte_rate", 0.0, remove=True),
    ):
        assert delta.replay(record)
    image = delta.apply()
    assert image.summary() == "1 ACL, 1 SCRAM user and 1 quota"
    assert [type(record).__name__ for record in image.to_records()] == [
        "UserScramCredentialRecord",
        "ClientQuotaRecord",
        "AccessControlEntryRecord",
    ]
    assert before.summary() == "2 ACLs, 1 SCRAM user, 1 delegation token and 2 quotas", "an image stays as it is"


def test_other_records_are_not_its_own() -> None:
    assert not SecurityDelta(SecurityImage()).replay(TopicRecord("t", bytes(16)))
