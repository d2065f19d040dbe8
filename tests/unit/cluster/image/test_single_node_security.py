"""What requests about ACLs and SCRAM users leave in a lone broker's metadata log."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from core.cluster.image import metadata_log as metadata_log_module
from core.cluster.image import single_node_security
from core.cluster.image.metadata_log import MetadataLog, read_metadata_image
from core.cluster.image.metadata_record import decode_metadata_record, encode_metadata_record
from core.cluster.image.security_image import acl_of_record
from core.cluster.image.security_store import DeletedAcl
from core.cluster.image.single_node_controller import SingleNodeController
from core.cluster.image.single_node_security import SingleNodeSecurity
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.filesystem import FileSystem
from core.protocol.schema.metadata_records import AccessControlEntryRecord, UserScramCredentialRecord
from core.protocol.schema.quotas_and_users import ScramCredentialDeletion, ScramCredentialUpsertion
from core.security.acl import Acl, AclFilter, AclOperation, AclPermissionType, PatternType, ResourceType
from tests.support.asking_disk import FailingDisk
from tests.support.disk import RecordingFileSystem, crash_states
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock
from tests.support.refusals import refused

TOPIC, LITERAL, READ, ALLOW = ResourceType.TOPIC, PatternType.LITERAL, AclOperation.READ, AclPermissionType.ALLOW
ANN = Acl(TOPIC, "t", LITERAL, "User:ann", "*", READ, ALLOW)  # isort: skip
ALL = AclFilter()
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SALTED_PENCIL = bytes.fromhex("c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d")
"""By PBKDF2 of the password `pencil` of RFC 7677."""


def open_controller(directory: Path, filesystem: FileSystem | None = None, level: int = 33) -> SingleNodeController:
    log = MetadataLog(directory, 1, ManualClock(NOW), filesystem or FileSystem())
    controller = SingleNodeController(log, 1, bytes(16))
    if not controller.image.features:
        controller.set_features({"metadata.version": level})
    return controller


def of(directory: Path, level: int = 33) -> SingleNodeSecurity:
    return open_controller(directory, level=level).security


def acls(count: int) -> list[Acl]:
    return [ANN._replace(resource_name=f"t{number}") for number in range(count)]


def stored(directory: Path) -> set[Acl]:
    image = read_metadata_image(directory)
    assert image is not None
    return set(map(acl_of_record, image.security.acls.values()))


def codes(outcomes: Sequence[Any]) -> list[ErrorCode]:
    return [ErrorCode.NONE if error is None else error.code for error in outcomes]


# --- records


def test_the_records_are_kafkas_bytes(tmp_path: Path) -> None:
    controller = open_controller(tmp_path)
    assert controller.security.create_acls([ANN]) == [None]
    (record,) = controller.image.security.acls.values()
    text = b"\x02t\x03\x09User:ann\x02*\x03\x03\x00"
    assert encode_metadata_record(record) == b"\x01\x12\x00" + record.id + b"\x02" + text
    assert controller.security.alter_scram_credentials(
        [ScramCredentialUpsertion("user", 1, 4096, SALT, SALTED_PENCIL)]
    ) == {"user": None}
    (credential,) = controller.image.security.scram_credentials.values()
    keys = ("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=", "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")
    stored_key, server_key = map(base64.b64decode, keys)
    expected = (
        b"\x01\x0b\x00\x05user\x01\x11" + SALT + b"\x21" + stored_key + b"\x21" + server_key + b"\x00\x00\x10\x00\x00"
    )
    assert encode_metadata_record(credential) == expected


def test_an_acl_of_kafkas_has_the_record_that_kafka_wrote(tmp_path: Path) -> None:
    image = read_metadata_image(Path(__file__).parents[3] / "golden" / "secured")
    assert image is not None
    assert image.security.acls
    controller = open_controller(tmp_path)
    theirs = list(image.security.acls.values())
    assert set(controller.security.create_acls(list(map(acl_of_record, theirs)))) == {None}
    ours = list(controller.image.security.acls.values())
    bare = [
        {encode_metadata_record(record).replace(record.id, b"") for record in records} for records in (ours, theirs)
    ]
    assert bare[0] == bare[1]


def test_a_request_is_one_batch(tmp_path: Path) -> None:
    controller = open_controller(tmp_path)
    end = controller.end_offset
    controller.security.create_acls(acls(50))
    assert controller.end_offset == end + 50
    batches = controller._log._log.segments.active.records.iter_batches()
    assert [batch.count for batch in batches][-1] == 50


# --- changes


def test_what_was_created_is_shown_and_what_was_deleted_is_not(tmp_path: Path) -> None:
    """Also after a start, and by a snapshot."""
    security = of(tmp_path)
    assert security.create_acls([*acls(3), ANN, ANN]) == [None] * 5
    assert security.create_acls([ANN]) == [None], "it was there"
    assert set(security.acls()) == {*acls(3), ANN} == stored(tmp_path)
    named = ALL._replace(resource_name="t1")
    first, second, none = security.delete_acls([named, ALL._replace(principal="User:ann", resource_name="t1"), named])
    assert first == second == none == [DeletedAcl(acls(2)[1])]
    assert set(security.acls()) == {acls(1)[0], acls(3)[2], ANN} == stored(tmp_path)
    assert set(of(tmp_path).acls()) == set(security.acls())


def test_an_exact_filter_deletes_its_acl_alone(tmp_path: Path) -> None:
    security = of(tmp_path)
    star = ANN._replace(resource_name="*")
    security.create_acls([ANN, star, ANN._replace(host="::1")])
    exact = AclFilter(*ANN)
    assert security.delete_acls([exact, exact._replace(principal="User:bob")]) == [[DeletedAcl(ANN)], []]
    match = exact._replace(pattern_type=PatternType.MATCH)
    assert security.delete_acls([match]) == [[DeletedAcl(star)]]


def test_random_changes_are_those_of_a_set(tmp_path: Path) -> None:
    """Filters find what a comparison with each ACL finds; a start in between changes nothing."""
    random = Random(60)
    security, known = of(tmp_path), set[Acl]()

    def some_acl() -> Acl:
        return Acl(
            random.choice((TOPIC, ResourceType.GROUP)),
            random.choice(("a", "ab", "*")),
            pattern_type=random.choice((LITERAL, PatternType.PREFIXED)),
            principal=random.choice(("User:ann", "User:*")),
            host="*",
            operation=random.choice((READ, AclOperation.ALL)),
            permission_type=ALLOW,
        )

    def some_filter() -> AclFilter:
        wanted = AclFilter(*some_acl())
        kind = random.choice((PatternType.ANY, PatternType.MATCH, wanted.pattern_type))
        name, principal = (random.choice((text, None)) for text in (wanted.resource_name, wanted.principal))
        return wanted._replace(pattern_type=kind, resource_name=name, principal=principal)

    for step in range(60):
        if step % 3 < 2:
            new = [some_acl() for _ in range(random.randint(1, 5))]
            assert set(security.create_acls(new)) == {None}
            known.update(new)
        else:
            filters = [some_filter() for _ in range(2)]
            matching = [{acl for acl in known if one.matches(acl)} for one in filters]
            outcomes = security.delete_acls(filters)
            assert [{one.acl for one in found} for found in outcomes if isinstance(found, list)] == matching
            known.difference_update(*matching)
        if step % 20 == 19:
            security = of(tmp_path)
        assert set(security.acls()) == known


def test_an_acl_that_two_records_hold_is_one_and_goes_with_both(tmp_path: Path) -> None:
    controller = open_controller(tmp_path)
    controller._submit([AccessControlEntryRecord(bytes([n] * 16), *ANN) for n in (1, 2)])
    assert list(controller.security.acls()) == [ANN]
    assert controller.security.delete_acls([ALL]) == [[DeletedAcl(ANN)]]
    assert not controller.image.security.acls
    assert not controller.security.acls()


def test_scram_users_are_set_shown_and_deleted(tmp_path: Path) -> None:
    security = of(tmp_path)
    sets = [ScramCredentialUpsertion(name, mechanism, 5000, b"s", b"p") for name, mechanism in (("a", 1), ("b", 2))]
    assert security.alter_scram_credentials(sets) == {"a": None, "b": None}
    assert security.alter_scram_credentials([ScramCredentialUpsertion("a", 2, 4096, b"s", b"p")]) == {"a": None}
    assert security.scram_users() == {"a": {1: 5000, 2: 4096}, "b": {2: 5000}} == of(tmp_path).scram_users()
    assert security.alter_scram_credentials([ScramCredentialDeletion("a", 1)]) == {"a": None}
    assert security.scram_users() == {"a": {2: 4096}, "b": {2: 5000}} == of(tmp_path).scram_users()


# --- refusals


@pytest.mark.parametrize(
    ("change", "level", "code", "message"),
    [
        ({"resource_type": ResourceType.UNKNOWN}, 33, ErrorCode.INVALID_REQUEST, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": PatternType.UNKNOWN}, 33, ErrorCode.INVALID_REQUEST, "Invalid patternType UNKNOWN"),
        ({"operation": AclOperation.UNKNOWN}, 33, ErrorCode.INVALID_REQUEST, "Invalid operation UNKNOWN"),
        ({"permission_type": AclPermissionType.UNKNOWN}, 33, ErrorCode.INVALID_REQUEST, "Invalid permissionType"),
        ({"principal": "ann"}, 33, ErrorCode.INVALID_REQUEST, "Could not parse principal from `ann` (no colon"),
        ({"host": ""}, 33, ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty"),
        ({"host": "10.0.0.0/33"}, 33, ErrorCode.INVALID_REQUEST, "Invalid CIDR notation '10.0.0.0/33': "),
        ({"host": "example.com/test"}, 33, ErrorCode.INVALID_REQUEST, "Invalid CIDR notation 'example.com/test': "),
        ({"host": "10.0.0.0/8"}, 31, ErrorCode.UNSUPPORTED_VERSION, "CIDR-based ACL host patterns require"),
        ({"host": "10.0.0.1/8"}, 33, None, ""),
        ({"host": "2001:db8::/32"}, 33, None, ""),
        ({"host": "any text", "principal": ":"}, 7, None, ""),
        ({"resource_name": "a\0b\u20ac", "operation": AclOperation.CREATE_TOKENS}, 33, None, ""),
    ],
)  # fmt: skip
def test_an_acl_is_checked_as_by_kafkas_controller(
    tmp_path: Path, change: dict[str, Any], level: int, code: ErrorCode | None, message: str
) -> None:
    (error, none) = of(tmp_path, level).create_acls([ANN._replace(**change), ANN])
    assert none is None
    if code is None:
        assert error is None
    else:
        assert error is not None
        assert error.code is code
        assert error.message.startswith(message)
    assert len(stored(tmp_path)) == (1 if code else 2), "the others are created"


def test_filters_of_a_later_kafka_are_refused_one_by_one(tmp_path: Path) -> None:
    security = of(tmp_path)
    security.create_acls([ANN])
    odd = [
        AclFilter(resource_type=ResourceType(99)),
        AclFilter(pattern_type=PatternType(99), operation=AclOperation(99)),
        AclFilter(operation=AclOperation(99)),
        ALL,
    ]
    *errors, found = security.delete_acls(odd)
    assert [str(error) for error in errors] == [
        "Unknown patternFilter.",
        "Unknown patternFilter.",
        "Unknown entryFilter.",
    ]
    assert found == [DeletedAcl(ANN)]


def test_scram_needs_its_metadata_version(tmp_path: Path) -> None:
    outcome = of(tmp_path, 10).alter_scram_credentials([ScramCredentialUpsertion("a", 1, 4096, b"s", b"p")])
    error = outcome["a"]
    assert error is not None
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert of(tmp_path / "next", 11).alter_scram_credentials([ScramCredentialUpsertion("a", 1, 4096, b"s", b"p")]) == {
        "a": None
    }


def test_a_request_changes_so_many_acls_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_node_security, "MOST_CHANGED_ACLS", 5)
    security = of(tmp_path)
    with refused(ErrorCode.POLICY_VIOLATION, "excessively large batch operation"):
        security.create_acls(acls(6))
    assert not stored(tmp_path)
    security.create_acls([*acls(5), *acls(5)])
    security.create_acls([*acls(5), ANN])
    with refused(ErrorCode.INVALID_REQUEST, "Cannot remove more than 5 acls"):
        security.delete_acls([ALL])
    assert len(stored(tmp_path)) == 6
    monkeypatch.setattr(single_node_security, "_MOST_COMPARED", 20)
    many = [ALL._replace(host=f"nope{number}") for number in range(4)]
    with refused(ErrorCode.INVALID_REQUEST, "Too many filters"):
        security.delete_acls(many)
    assert security.delete_acls([one._replace(resource_name="nope") for one in many]) == [[]] * 4
    exact = [AclFilter(*acl) for acl in acls(4)]
    assert security.delete_acls(exact * 3) == [[DeletedAcl(acl)] for acl in acls(4)] * 3
    assert len(stored(tmp_path)) == 2


def test_a_change_that_kafka_could_not_commit_at_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log_module, "_MAX_BATCH_BYTES", 400)
    security = of(tmp_path)
    with refused(ErrorCode.RECORD_LIST_TOO_LARGE, "expected at most 400"):
        security.create_acls(acls(20))
    huge = ScramCredentialUpsertion("a", 1, 4096, bytes(400), b"p")
    with refused(ErrorCode.RECORD_LIST_TOO_LARGE):
        security.alter_scram_credentials([huge])
    assert not stored(tmp_path)
    assert security.create_acls(acls(2)) == [None, None], "the log goes on"


# --- failing disks, and power cuts


def test_what_was_acknowledged_is_kept_whichever_operation_fails(tmp_path: Path) -> None:
    """And a request that was refused is not there, but for the answer that says perhaps."""
    answers = set()
    for first, window in ((number, 100 if number % 2 else 1) for number in range(10)):
        directory = tmp_path / str(first)
        disk = FailingDisk(window=window)
        security = open_controller(directory, disk).security
        security.create_acls(acls(2))
        disk.fails_from = disk.count + first
        known = [set(acls(2))]
        for after in ({ANN, *acls(2)}, {ANN, acls(2)[1]}):
            try:
                if known[0] == set(acls(2)):
                    security.create_acls([ANN])
                else:
                    security.delete_acls([AclFilter(*acls(1)[0])])
                answers.add(ErrorCode.NONE)
                known = [after]
            except KafkaError as error:
                answers.add(error.code)
                if error.code is metadata_log_module.PERHAPS_KEPT:
                    known.append(after)
                break
        assert set(security.acls()) == known[0], "what is obeyed is what was acknowledged"
        assert stored(directory) in known, f"operation {first}"
        assert set(of(directory).acls()) in known
    assert answers == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, metadata_log_module.PERHAPS_KEPT}


def test_a_power_cut_keeps_a_whole_request_or_none_of_it(tmp_path: Path) -> None:
    disk = RecordingFileSystem()
    controller = open_controller(tmp_path / "data", disk)
    controller.security.create_acls(acls(3))
    begun = len(disk.operations)
    controller.security.delete_acls([ALL])
    controller.security.create_acls([ANN, *acls(2)])
    states = [set(acls(3)), set(), {ANN, *acls(2)}]
    seen = set()
    random = Random(5)
    for end in range(begun, len(disk.operations) + 1):
        for number, state in enumerate(
            crash_states(tmp_path / "data", disk.operations[:end], random, subsets_up_to=3, samples=3)
        ):
            folder = tmp_path / f"{end}-{number}"
            folder.mkdir()
            state.write_to(folder)
            found = set(of(folder).acls())
            assert found in states
            seen.add(len(found))
    assert found == states[-1], "it was acknowledged"
    assert seen == {3, 0}


def test_a_snapshot_holds_acls_and_users(tmp_path: Path) -> None:
    controller = open_controller(tmp_path)
    controller.security.create_acls(acls(3))
    controller.security.alter_scram_credentials([ScramCredentialUpsertion("a", 1, 4096, b"s", b"p")])
    controller._log._write_snapshot()
    controller.security.create_acls([ANN])
    again = of(tmp_path)
    assert set(again.acls()) == {*acls(3), ANN}
    assert again.scram_users() == {"a": {1: 4096}}


def test_an_alteration_is_decoded_as_it_was_encoded() -> None:
    record = UserScramCredentialRecord("a", 2, b"s", b"k", b"v", 4096)
    assert decode_metadata_record(encode_metadata_record(record)) == record
