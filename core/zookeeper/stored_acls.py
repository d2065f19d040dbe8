"""The ACLs that a cluster keeps in ZooKeeper, as rules that are always up to date, and how they are changed.

    /kafka-acl/TYPE/NAME                     the ACLs of the resource of just that name
    /kafka-acl-extended/prefixed/TYPE/NAME   those of all resources whose names begin so
    /kafka-acl-changes/acl_changes_SEQ       a notice of a change: TOPIC:NAME
    /kafka-acl-extended-changes/acl_changes_SEQ
                                             {"version":1,"resourceType":"TOPIC","name":NAME,"patternType":"PREFIXED"}
    /delegation_token/tokens/ID              a delegation token

TYPE is Topic, Group, Cluster, TransactionalId, DelegationToken or User. A resource's node, which goes with the last of
its ACLs:

    {"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"},..]}

Kafka refuses a name with a slash, and reads no deeper nodes; nor are they read here. A node that can't be read may hold
an ACL that denies: nobody but super users may use its resources then.

Kafka's brokers hear of a change by its notice alone. Here new and deleted nodes are noticed without one, too: a tool
or a restored backup may have written them.

Source: kafka.zk.LiteralAclStore, kafka.zk.ExtendedAclStore, kafka.security.authorizer.AclEntry, AclAuthorizer and
kafka.zk.DelegationTokensZNode of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct, field, json

from core.common.clock import Clock
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError, PlogError, UsageError
from core.security.acl import ANY_HOST, Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from core.security.acl_rules import AclRules
from core.security.principal import ANY_USER, Principal
from core.zookeeper.change_notices import ChangeNotices
from core.zookeeper.znodes import decode_node, malformed, shown
from core.zookeeper.zookeeper_session import Watch, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Create, Delete, Node, Operation, Refusal, SetData, ZooKeeperError

_log = logging.getLogger("plog.zookeeper")

T = TypeVar("T")
Edit = Callable[[frozenset[Acl]], frozenset[Acl]]
"""Makes the ACLs of a resource of those that it has."""

_FOLDERS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
_NOTICES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
_TOKENS = "/delegation_token/tokens"
_READ_AT_ONCE = 500
_MOST_BYTES = 900_000
"""The limit for a node. ZooKeeper drops clients that send a megabyte at once (jute.maxbuffer)."""
_CONFLICTS = (Refusal.BAD_VERSION, Refusal.NODE_EXISTS, Refusal.NO_NODE)
_CHANGED_AT_ONCE = 100
_RETRIES = 10
_BACKOFF_S = (0.1, 0.15)
"""The shortest and the longest wait before a change is tried again, as AclAuthorizer's."""


_TYPES = {one.camel_name: one for one in ResourceType if one > ResourceType.ANY}
_OPERATIONS = {one.camel_name: one for one in AclOperation if one > AclOperation.ANY}
_PERMISSIONS = {one.camel_name: one for one in AclPermissionType if one > AclPermissionType.ANY}


class ResourcePattern(NamedTuple):
    """What the ACLs of one node are about."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    @property
    def path(self) -> str:
        return f"{_FOLDERS[self.pattern_type]}/{self.resource_type.camel_name}/{self.name}"

    def __str__(self) -> str:
        return f"{self.resource_type.camel_name}:{self.pattern_type.name}:{self.name}"

    @property
    def deny_all(self) -> Acl:
        """The ACL by which nobody but super users has a right."""
        return Acl(*self, str(ANY_USER), ANY_HOST, AclOperation.ALL, AclPermissionType.DENY)

    @property
    def notice(self) -> Create:
        kind, pattern_type = self.resource_type.name, self.pattern_type
        data = f"{kind}:{self.name}".encode()
        if pattern_type is not PatternType.LITERAL:
            data = json.encode(
                {"version": 1, "resourceType": kind, "name": self.name, "patternType": pattern_type.name}
            )
        return Create(f"{_NOTICES[pattern_type]}/acl_changes_", data, is_sequential=True)


class StoredAcls:
    """Owned by the loop's thread."""

    def __init__(
        self, session: ZooKeeperSession, rules: AclRules, on_change: Callable[[], None], *, clock: Clock
    ) -> None:
        """Puts the cluster's ACLs into the `rules`; calls `on_change` in the loop when ACLs or tokens have changed."""
        self.rules = rules
        self.tokens = 0
        """The number of delegation tokens."""
        self.has_folders = False
        """Whether an authorizer has ever run here."""
        self._session = session
        self._on_change = on_change
        self._known: dict[ResourcePattern, frozenset[Acl]] = {}
        self._notices = [
            ChangeNotices(session, folder, partial(self._apply, pattern_type), clock=clock)
            for pattern_type, folder in _NOTICES.items()
        ]
        self._watches: list[Watch] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Reads all ACLs, and watches for changes. Raises ZooKeeperError if it may not read them."""
        for notices in self._notices:  # first: a change while all are read is announced
            await notices.start()
        for pattern_type, folder in _FOLDERS.items():
            for kind, resource_type in _TYPES.items():
                on_names = partial(self._on_names, pattern_type, resource_type)
                self._watches.append(await self._session.watch_children(f"{folder}/{kind}", on_names))
        self._watches.append(await self._session.watch_children(_TOKENS, self._on_tokens))
        await asyncio.gather(*self._tasks)

    async def make_folders(self) -> None:
        """Creates what Kafka's authorizer creates when it starts."""
        kinds = [f"{folder}/{kind}" for folder in _FOLDERS.values() for kind in _TYPES]
        await self._session.ensure_paths([*kinds, *_NOTICES.values()])

    def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        for notices in self._notices:
            notices.stop()
        for task in self._tasks:
            task.cancel()

    # --- reading

    def _on_names(self, pattern_type: PatternType, resource_type: ResourceType, names: list[str] | None) -> None:
        self.has_folders |= names is not None
        found = {ResourcePattern(resource_type, name, pattern_type) for name in names or ()}
        known = {one for one in self._known if (one.pattern_type, one.resource_type) == (pattern_type, resource_type)}
        if changed := found ^ known:
            self._begin(self._read(changed))

    def _on_tokens(self, names: list[str] | None) -> None:
        self.tokens = len(names or ())
        self._on_change()

    async def _apply(self, pattern_type: PatternType, notices: Mapping[str, Node] | None) -> None:
        """Reads the ACLs that the notices name; all ACLs if `notices` is None, or if one can't be read."""
        try:
            named = {_decode_notice(pattern_type, node.data, path) for path, node in (notices or {}).items()}
        except MalformedMessageError as error:
            _log.error("a change of ACLs is unknown, and all are read again: %s", error)
            notices = None
        known = {one for one in self._known if one.pattern_type is pattern_type}
        await self._read(known if notices is None else named)

    async def _read(self, resources: Collection[ResourcePattern]) -> None:
        """Reads nodes, and takes their ACLs in the turn in which the answer comes: so a later read counts, of several
        at a time.
        """
        wanted = list(resources)
        for start in range(0, len(wanted), _READ_AT_ONCE):
            some = wanted[start : start + _READ_AT_ONCE]
            try:
                nodes = await self._session.read_many([one.path for one in some])
            except ZooKeeperError as error:
                if error.refusal not in (Refusal.NO_AUTH, Refusal.OTHER):
                    raise
                if len(some) > 1:
                    await asyncio.gather(*(self._read([one]) for one in some))
                else:
                    self._lock(some[0], error)
                continue
            for resource, node in zip(some, nodes, strict=True):
                self._take(resource, node)
        self._on_change()

    def _take(self, resource: ResourcePattern, node: Node | None) -> None:
        try:
            self._put(resource, _decode_acls(resource, node))
        except MalformedMessageError as error:
            self._lock(resource, error)

    def _lock(self, resource: ResourcePattern, error: Exception) -> None:
        _log.error("the ACLs of %s can't be read, so nobody but super users may use it: %s", resource, error)
        self._put(resource, frozenset([resource.deny_all]))

    def _put(self, resource: ResourcePattern, acls: frozenset[Acl]) -> None:
        before = self._known.pop(resource, frozenset())
        self.rules.change(added=acls - before, removed=before - acls)
        if acls:
            self._known[resource] = acls

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not (isinstance(error, ZooKeeperError) and error.refusal is Refusal.CLOSED):
            _log.error("the cluster's ACLs can't be read: %s", error)

    # --- changing

    async def change(self, edits: Mapping[ResourcePattern, Edit]) -> dict[ResourcePattern, PlogError]:
        """Changes the ACLs of resources to what each `Edit` makes of them, and has the rules obey it; an edit is called
        again if somebody else has changed them meanwhile. Returns why some were not changed, by resource.
        """
        failures: dict[ResourcePattern, PlogError] = {}
        wanted = list(edits)
        waiting = [wanted[start : start + _CHANGED_AT_ONCE] for start in range(0, len(wanted), _CHANGED_AT_ONCE)]
        while waiting:
            some = waiting.pop()
            try:
                failures |= await self._change({one: edits[one] for one in some})
            except (KafkaError, ZooKeeperError) as error:
                if len(some) == 1:
                    failures[some[0]] = error
                else:  # it may be the fault of one
                    waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
        await self._read(wanted)
        return failures

    async def _change(self, edits: Mapping[ResourcePattern, Edit]) -> dict[ResourcePattern, PlogError]:
        """Changes all in one transaction, but for nodes that can't be read, whose errors it returns."""
        for tries_left in reversed(range(_RETRIES + 1)):
            failures: dict[ResourcePattern, PlogError] = {}
            operations: list[Operation] = []
            nodes = await self._session.read_many([one.path for one in edits])
            for (resource, edit), node in zip(edits.items(), nodes, strict=True):
                try:
                    before = _decode_acls(resource, node)
                except MalformedMessageError as error:
                    failures[resource] = error
                    continue
                if (after := edit(before)) != before:
                    operations += [_write(resource, node, after), resource.notice]
            if sum(len(getattr(one, "data", b"")) for one in operations) > _MOST_BYTES:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {_MOST_BYTES} bytes of ACLs of a resource")
            try:
                if operations:
                    await self._session.commit(operations)
                break
            except ZooKeeperError as error:
                if not (tries_left and (error.is_lost or error.refusal in _CONFLICTS)):
                    raise
                if error.refusal is Refusal.NO_NODE:
                    await self.make_folders()
            await asyncio.sleep(random.uniform(*_BACKOFF_S))  # noqa: S311 - nobody is to be kept from guessing it
        return failures


def _write(resource: ResourcePattern, node: Node | None, acls: Collection[Acl]) -> Operation:
    if not acls:
        assert node is not None
        return Delete(resource.path, node.stat.version)
    data = encode_acls(acls)
    return Create(resource.path, data) if node is None else SetData(resource.path, data, node.stat.version)


# --- formats


def encode_acls(acls: Iterable[Acl]) -> bytes:
    entries = [
        {
            "principal": acl.principal,
            "permissionType": acl.permission_type.camel_name,
            "operation": acl.operation.camel_name,
            "host": acl.host,
        }
        for acl in sorted(acls)
    ]
    return json.encode({"version": 1, "acls": entries})


class _Entry(Struct):
    principal: str
    host: str
    operation: str
    permission: str = field(name="permissionType")


class _Entries(Struct):
    acls: list[_Entry]


def _decode_acls(resource: ResourcePattern, node: Node | None) -> frozenset[Acl]:
    if node is None or not node.data:
        return frozenset()
    path = resource.path
    return frozenset(
        Acl(
            *resource,
            _ensure_principal(one.principal, path),
            one.host,
            _find_word(_OPERATIONS, one.operation, path),
            _find_word(_PERMISSIONS, one.permission, path),
        )
        for one in decode_node(node.data, path, _Entries, 1).acls
    )


class _Notice(Struct):
    kind: str = field(name="resourceType")
    name: str
    pattern_type: Literal["PREFIXED"] = field(name="patternType")


def _decode_notice(pattern_type: PatternType, data: bytes, path: str) -> ResourcePattern:
    if pattern_type is PatternType.LITERAL:
        kind, _, name = data.decode(errors="replace").partition(":")
    else:
        notice = decode_node(data, path, _Notice, 1)
        kind, name = notice.kind, notice.name
    if not name:
        raise malformed(path, "it names no resource")
    return ResourcePattern(_find_word({one.name: one for one in _TYPES.values()}, kind, path), name, pattern_type)


def _ensure_principal(text: str, path: str) -> str:
    try:
        return str(Principal.parse(text))
    except UsageError:
        raise malformed(path, f"{shown(text)}, expected TYPE:NAME") from None


def _find_word(known: Mapping[str, T], word: str, path: str) -> T:
    if word not in known:
        raise malformed(path, f"{shown(word)}, expected one of {', '.join(known)}")
    return known[word]
