"""The ACLs and SCRAM credentials of a cluster with ZooKeeper, as requests read and change them.

The checks are those of Kafka 3.9, and so are the nodes: kafka.security.authorizer.AclAuthorizer for ACLs,
kafka.server.ZkAdminManager for credentials, which are settings of users (/config/users):

    SCRAM-SHA-256    salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=N

Any broker changes them, while Kafka's controller alone changes credentials.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from core.broker.config.client_quotas import USER, is_legal_name
from core.broker.serving.loop_tasks import LoopTasks
from core.cluster.image.security_store import (
    MECHANISM_NUMBERS,
    NOT_THERE,
    TWICE,
    DeletedAcl,
    Deletions,
    ScramAlteration,
    ensure_sound,
    most_usual,
)
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, PlogError, UsageError
from core.common.pending import Pending
from core.protocol.schema.quotas_and_users import ScramCredentialDeletion
from core.security.acl import Acl, AclFilter, AclOperation, PatternType, ResourceType
from core.security.principal import Principal
from core.security.sasl.scram import ScramCredential
from core.zookeeper.stored_acls import Edit, ResourcePattern, StoredAcls
from core.zookeeper.znodes import DEFAULT_ENTITY, ConfigEntity

_log = logging.getLogger("plog.zookeeper")

_SCRAM = "SCRAM-"
"""The prefix of a user's settings that are credentials."""
_KEYS = ("salt", "stored_key", "server_key")
_ITERATIONS = re.compile(r"(?:^|,)iterations=(\d{1,9})(?:,|$)")

WriteSettings = Callable[[ConfigEntity, Mapping[str, str | None]], Awaitable[KafkaError | None]]


class ZooKeeperSecurity:
    """A `SecurityStore`; owned by the loop's thread."""

    def __init__(
        self,
        acls: StoredAcls,
        write: WriteSettings,
        tasks: LoopTasks,
        refusal: KafkaError | None = None,
        *,
        has_login: bool = False,
    ) -> None:
        """`write` changes the settings of a user; `refusal` is why nothing may be added here, or None. `has_login`:
        users may be added all the same, because they log in here.
        """
        self._has_login = has_login
        self.users: dict[str, Mapping[str, str]] = {}
        """The credentials of each user by their mechanisms; none if the user can't be read, who may have some."""
        self._credentials: dict[str, dict[str, ScramCredential]] = {name: {} for name in MECHANISM_NUMBERS}
        """Those that can be read, by mechanism and user."""
        self._usual: dict[str, ScramCredential | None] = {}
        self._acls = acls
        self._write = write
        self._tasks = tasks
        self._refusal = refusal

    def _ensure_obeyed(self) -> None:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    # --- ACLs

    def acls(self) -> Collection[Acl]:
        return self._acls.rules.find(AclFilter())

    def create_acls(self, acls: Sequence[Acl]) -> Pending[Sequence[KafkaError | None]]:
        self._ensure_obeyed()
        return self._tasks.pending(self._create_acls(acls))

    async def _create_acls(self, acls: Sequence[Acl]) -> Sequence[KafkaError | None]:
        outcomes = {acl: _find_problem(acl) for acl in acls}
        new: dict[ResourcePattern, set[Acl]] = defaultdict(set)
        for acl, problem in outcomes.items():
            if problem is None:
                new[ResourcePattern(*acl[:3])].add(acl)
        failures = await self._change({resource: frozenset(some).union for resource, some in new.items()})
        outcomes |= {acl: failures[resource] for resource in failures for acl in new[resource]}
        return [outcomes[acl] for acl in acls]

    def delete_acls(self, filters: Sequence[AclFilter]) -> Pending[Deletions]:
        """An ACL that several filters match is in the outcome of the first."""
        return self._tasks.pending(self._delete_acls(filters))

    async def _delete_acls(self, filters: Sequence[AclFilter]) -> Deletions:
        """Looks also into the nodes of resources that filters name: this broker may not know of their ACLs yet."""

        def find(acls: Iterable[Acl]) -> dict[Acl, int]:
            """Returns the ACLs that filters match, with the number of the first such filter."""
            firsts = ((acl, next((n for n, one in enumerate(filters) if one.matches(acl)), None)) for acl in acls)
            return {acl: first for acl, first in firsts if first is not None}

        found: dict[ResourcePattern, dict[Acl, int]] = {one: {} for one in map(_find_named, filters) if one is not None}
        for acl, first in find(self.acls()).items():
            found.setdefault(ResourcePattern(*acl[:3]), {})[acl] = first

        def remove(resource: ResourcePattern, known: frozenset[Acl]) -> frozenset[Acl]:
            found[resource] = find(known)
            return known - found[resource].keys()

        failures = await self._change({resource: partial(remove, resource) for resource in found})
        outcomes: list[list[DeletedAcl]] = [[] for _ in filters]
        for resource, matched in found.items():
            for acl, first in matched.items():
                outcomes[first].append(DeletedAcl(acl, failures.get(resource)))
        return outcomes

    async def _change(self, edits: Mapping[ResourcePattern, Edit]) -> dict[ResourcePattern, KafkaError]:
        failures = await self._acls.change(edits)
        return {resource: _client_error(str(resource), error) for resource, error in failures.items()}

    # --- users

    def take_user(self, name: str, settings: Mapping[str, str] | None) -> None:
        """Notes the present settings of a user; None if they can't be read."""
        found = {key: text for key, text in (settings or {}).items() if key.startswith(_SCRAM)}
        if found or settings is None:
            self.users[name] = found
        else:
            self.users.pop(name, None)
        for mechanism, known in self._credentials.items():
            before = known.pop(name, None)
            credential = _find_credential(found.get(mechanism, ""))
            if credential is not None:
                known[name] = credential
            if credential != before:
                self._usual.pop(mechanism, None)

    def find_scram_credential(self, name: str, mechanism: str) -> ScramCredential | None:
        return self._credentials[mechanism].get(name)

    def usual_scram_credential(self, mechanism: str) -> ScramCredential | None:
        """Remembered until the credentials change."""
        if mechanism not in self._usual:
            self._usual[mechanism] = most_usual(self._credentials[mechanism].values())
        return self._usual[mechanism]

    def scram_users(self) -> Mapping[str, Mapping[int, int]]:
        """The iterations are 0 if a credential can't be read."""
        return {
            user: {
                MECHANISM_NUMBERS[name]: _iterations(text) for name, text in found.items() if name in MECHANISM_NUMBERS
            }
            for user, found in self.users.items()
            if found
        }

    def alter_scram_credentials(
        self, alterations: Sequence[ScramAlteration]
    ) -> Pending[Mapping[str, KafkaError | None]]:
        """A user may be given credentials of both mechanisms at once, other than with KRaft."""
        if not self._has_login:
            self._ensure_obeyed()
        errors: dict[str, KafkaError | None] = {}
        changes: dict[str, dict[str, str | None]] = defaultdict(dict)
        times = Counter((one.name, one.mechanism) for one in alterations)
        for one in alterations:
            try:
                name, text = self._setting_of(one)
                if times[one.name, one.mechanism] > 1:
                    raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, TWICE)
                changes[one.name][name] = text
            except KafkaError as error:
                errors.setdefault(one.name, error)
        sound = {user: some for user, some in changes.items() if user not in errors}
        return self._tasks.pending(self._alter(sound, errors))

    async def _alter(
        self, changes: Mapping[str, Mapping[str, str | None]], outcomes: dict[str, KafkaError | None]
    ) -> Mapping[str, KafkaError | None]:
        for user, settings in changes.items():
            error = await self._write(ConfigEntity("users", user), settings)
            outcomes[user] = error and _client_error(f"user {user!r}", error)
        return outcomes

    def _setting_of(self, asked: ScramAlteration) -> tuple[str, str | None]:
        """Returns a user's setting: the mechanism, and the credential or None."""
        mechanism = ensure_sound(asked)
        if asked.name == DEFAULT_ENTITY or not is_legal_name(USER, asked.name):
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "No node of ZooKeeper can have the user's name")
        if isinstance(asked, ScramCredentialDeletion):
            if mechanism.name not in self.users.get(asked.name, {}):
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE)
            return mechanism.name, None
        salted = asked.salted_password
        parts = asked.salt, mechanism.stored_key(salted), mechanism.server_key(salted)
        texts = [f"{name}={b64encode(data).decode()}" for name, data in zip(_KEYS, parts, strict=True)]
        return mechanism.name, ",".join([*texts, f"iterations={asked.iterations}"])


def _client_error(what: str, error: PlogError) -> KafkaError:
    """Returns the error for the client. An error that was not foreseen is logged, and becomes UNKNOWN_SERVER_ERROR."""
    if isinstance(error, KafkaError) and error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
        return error
    _log.error("ACLs or credentials of %s were not changed: %s", what, error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _iterations(credential: str) -> int:
    found = _ITERATIONS.search(credential)
    return int(found[1]) if found else 0


def _find_credential(text: str) -> ScramCredential | None:
    """Returns a user's credential by its setting, or None if it can't be read (ScramCredentialUtils)."""
    parts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    try:
        salt, stored_key, server_key = (b64decode(parts[name], validate=True) for name in _KEYS)
        return ScramCredential(salt, stored_key, server_key, int(parts["iterations"]))
    except (KeyError, ValueError):
        return None


def _find_problem(acl: Acl) -> KafkaError | None:
    """Returns why no node can hold the ACL, or None."""
    if not _has_path(acl.resource_name):
        reason = f"ACL binding contains invalid resource name: {acl.resource_name:.100}"
        return KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if acl.operation is AclOperation.TWO_PHASE_COMMIT:
        return KafkaError(ErrorCode.INVALID_REQUEST, "Kafka's brokers with ZooKeeper do not know TWO_PHASE_COMMIT")
    try:
        Principal.parse(acl.principal)
    except UsageError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, error.message)
    return None


def _has_path(name: str) -> bool:
    return "/" not in name and is_legal_name(USER, name)


def _find_named(wanted: AclFilter) -> ResourcePattern | None:
    """Returns the one resource that the filter is about, if it is about one that a node can have."""
    kind, name, pattern_type = wanted[:3]
    is_one = kind > ResourceType.ANY and pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
    return ResourcePattern(kind, name, pattern_type) if is_one and name and _has_path(name) else None
