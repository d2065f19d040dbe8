"""The ACLs and SCRAM credentials of a lone broker: checks a change of them, and writes it to the metadata log.

The checks, their order and their messages are those of Kafka 4.4 (org.apache.kafka.controller.AclControlManager,
ScramControlManager), and so are the records: one request is one batch, which the log keeps as a whole or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from core.cluster.image.feature_levels import METADATA_VERSION_FEATURE
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage
from core.cluster.image.metadata_record import MetadataRecord
from core.cluster.image.security_image import acl_of_record, counts_text
from core.cluster.image.security_store import (
    MECHANISM_NUMBERS,
    MECHANISMS,
    NOT_THERE,
    TWICE,
    DeletedAcl,
    ScramAlteration,
    ensure_sound,
    most_usual,
)
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import random_uuid
from core.protocol.schema.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from core.protocol.schema.quotas_and_users import ScramCredentialDeletion
from core.security.acl import ANY_HOST, Acl, AclFilter, PatternType, parse_host_range
from core.security.acl_rules import AclRules
from core.security.principal import Principal
from core.security.sasl.scram import ScramCredential

_log = logging.getLogger("plog.authorizer")

MOST_CHANGED_ACLS = 10_000
"""The most ACLs that one request adds or deletes: MAX_RECORDS_PER_USER_OP of Kafka's QuorumController."""

_MOST_COMPARED = 500_000
"""The most comparisons of filters with ACLs for one request, which take a second or two; Kafka knows no limit."""

_FIRST_LEVEL_WITH_SCRAM = 11  # metadata.version 3.5-IV2
_FIRST_LEVEL_WITH_RANGES = 32  # metadata.version 4.4-IV1, KIP-1276


class SingleNodeSecurity:
    """A `SecurityStore`; owned by the broker's task."""

    def __init__(
        self,
        find_image: Callable[[], MetadataImage],
        submit: Callable[[Sequence[MetadataRecord]], None],
        subscribe: Callable[[Callable[[MetadataDelta], None]], None],
    ) -> None:
        """`find_image` returns the present metadata, `submit` writes records as one batch, and `subscribe` is the
        controller's.
        """
        self._find_image = find_image
        self._submit = submit
        self._ids: dict[Acl, set[bytes]] = {}
        """The ids of each ACL's records: one, unless somebody else wrote the log."""
        self._by_name: dict[str, set[Acl]] = {}
        self._rules: list[AclRules] = []
        self._usual: tuple[Mapping[Any, Any], dict[int, ScramCredential | None]] = ({}, {})
        for id_, record in find_image().security.acls.items():
            self._add(acl_of_record(record), id_)
        subscribe(self._on_delta)

    def _add(self, acl: Acl, id_: bytes) -> None:
        self._ids.setdefault(acl, set()).add(id_)
        self._by_name.setdefault(acl.resource_name, set()).add(acl)

    def _remove(self, acl: Acl, id_: bytes) -> None:
        self._ids[acl].remove(id_)
        if not self._ids[acl]:
            del self._ids[acl]
            self._by_name[acl.resource_name].remove(acl)
            if not self._by_name[acl.resource_name]:
                del self._by_name[acl.resource_name]

    def _on_delta(self, delta: MetadataDelta) -> None:
        before = delta.before.security.acls
        added, removed = [], []
        for id_, record in delta.security.acls.changed.items():
            if (old := before.get(id_)) is not None:
                self._remove(acl := acl_of_record(old), id_)
                if acl not in self._ids:
                    removed.append(acl)
            if record is not None:
                self._add(acl := acl_of_record(record), id_)
                added.append(acl)
        for rules in self._rules:
            rules.change(added=filter(_can_match, added), removed=removed)

    # --- ACLs

    def make_rules(self, *, super_users: Collection[Principal], allows_everyone_if_none: bool) -> AclRules:
        """Returns the rules by these ACLs, which they follow from now on. An ACL of an unknown type of resources or
        patterns is about nothing that plog knows: it stays in the metadata, and out of the rules.
        """
        known = list(filter(_can_match, self._ids))
        if unknown := len(self._ids) - len(known):
            _log.warning("%s of the metadata with an unknown type: never matched", counts_text([(unknown, "ACL")]))
        rules = AclRules(known, super_users=super_users, allows_everyone_if_none=allows_everyone_if_none)
        self._rules.append(rules)
        return rules

    def acls(self) -> Collection[Acl]:
        return self._ids.keys()

    def create_acls(self, acls: Sequence[Acl]) -> Sequence[KafkaError | None]:
        level = self._find_image().features.get(METADATA_VERSION_FEATURE, 0)
        problems = [_find_problem(acl, level) for acl in acls]
        sound = (acl for acl, problem in zip(acls, problems, strict=True) if problem is None)
        new = [acl for acl in dict.fromkeys(sound) if acl not in self._ids]
        if len(new) > MOST_CHANGED_ACLS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        self._submit([AccessControlEntryRecord(random_uuid(), *acl) for acl in new])
        return problems

    def delete_acls(self, filters: Sequence[AclFilter]) -> Sequence[Sequence[DeletedAcl] | KafkaError]:
        """All or nothing, and each removed record counts once, however many filters match it."""
        removed: dict[bytes, None] = {}
        outcomes: list[Sequence[DeletedAcl] | KafkaError] = []
        left = _MOST_COMPARED
        for one in filters:
            if not all(one.codes):
                what = "entryFilter" if one.resource_type and one.pattern_type else "patternFilter"
                outcomes.append(KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown {what}."))
                continue
            candidates = self._candidates(one)
            left -= len(candidates)
            if left < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Too many filters.")
            found = list(filter(one.matches, candidates))
            removed.update((id_, None) for acl in found for id_ in self._ids[acl])
            if len(removed) > MOST_CHANGED_ACLS:
                message = f"Cannot remove more than {MOST_CHANGED_ACLS} acls in a single delete operation."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            outcomes.append([DeletedAcl(acl) for acl in found])
        self._submit([RemoveAccessControlEntryRecord(id_) for id_ in removed])
        return outcomes

    def _candidates(self, wanted: AclFilter) -> Collection[Acl]:
        """Returns ACLs among which are all that match."""
        if wanted.resource_name is None or wanted.pattern_type is PatternType.MATCH:
            return self._ids
        return self._by_name.get(wanted.resource_name, ())

    # --- SCRAM

    def scram_users(self) -> Mapping[str, Mapping[int, int]]:
        users: dict[str, dict[int, int]] = {}
        for (name, mechanism), record in self._find_image().security.scram_credentials.items():
            users.setdefault(name, {})[mechanism] = record.iterations
        return users

    def find_scram_credential(self, name: str, mechanism: str) -> ScramCredential | None:
        found = self._find_image().security.scram_credentials.get((name, MECHANISM_NUMBERS[mechanism]))
        return None if found is None else _credential_of(found)

    def usual_scram_credential(self, mechanism: str) -> ScramCredential | None:
        """Remembered until the credentials change."""
        known, number = self._find_image().security.scram_credentials, MECHANISM_NUMBERS[mechanism]
        if self._usual[0] is not known:
            self._usual = (
                known,
                {
                    each: most_usual(_credential_of(one) for one in known.values() if one.mechanism == each)
                    for each in MECHANISMS
                },
            )
        return self._usual[1][number]

    def alter_scram_credentials(self, alterations: Sequence[ScramAlteration]) -> Mapping[str, KafkaError | None]:
        """A user who is named twice gets an error, also for two mechanisms, as with Kafka."""
        records: dict[str, MetadataRecord] = {}
        errors: dict[str, KafkaError | None] = {}
        for one in alterations:
            if one.name in errors:
                continue
            try:
                if records.pop(one.name, None) is not None:
                    raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, TWICE)
                records[one.name] = self._record_of(one)
            except KafkaError as error:
                errors[one.name] = error
        self._submit(list(records.values()))
        return dict.fromkeys(records) | errors

    def _record_of(self, asked: ScramAlteration) -> MetadataRecord:
        if self._find_image().features.get(METADATA_VERSION_FEATURE, 0) < _FIRST_LEVEL_WITH_SCRAM:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
        mechanism = ensure_sound(asked)
        if isinstance(asked, ScramCredentialDeletion):
            if (asked.name, asked.mechanism) not in self._find_image().security.scram_credentials:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE)
            return RemoveUserScramCredentialRecord(asked.name, asked.mechanism)
        salted = asked.salted_password
        keys = mechanism.stored_key(salted), mechanism.server_key(salted)
        return UserScramCredentialRecord(asked.name, asked.mechanism, asked.salt, *keys, asked.iterations)


def _credential_of(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


def _can_match(acl: Acl) -> bool:
    return bool(acl.resource_type and acl.pattern_type)


def _find_problem(acl: Acl, level: int) -> KafkaError | None:
    """Returns why Kafka's controller would refuse the ACL at that level of metadata.version, or None."""
    for what, value in zip(("resourceType", "patternType", "operation", "permissionType"), acl.codes, strict=True):
        if not value:
            return KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid {what} {value.name}")
    if ":" not in acl.principal:
        reason = "no colon is present separating the principal type from the principal name"
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Could not parse principal from `{acl.principal}` ({reason})")
    if not acl.host:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty")
    if acl.host == ANY_HOST or "/" not in acl.host:
        return None
    if level < _FIRST_LEVEL_WITH_RANGES:
        message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    try:
        parse_host_range(acl.host)
    except ValueError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation '{acl.host}': {error}")
    return None
