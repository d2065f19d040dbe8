"""A cluster as a client sees it: its topics, leaders, coordinators, and connections to the brokers.

`Connector` makes the connections: TCP, TLS on it, ApiVersions, SASL; as a `ClientSecurity` says.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from core.client.net.client_connection import ClientConnection, Connect, Req, Res, SocketTransport, ensure_as_many
from core.client.net.connect_notice import ConnectNotice
from core.client.net.retry import FAILOVER_SECONDS, RETRIABLE, Result, Retry
from core.common.endpoint import Endpoint, parse_endpoint
from core.common.error_code import ErrorCode
from core.common.errors import (
    ConnectionFailedError,
    KafkaError,
    PlogError,
    UnansweredError,
    UnreachableAddressError,
    ensure_success,
)
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition
from core.protocol.message import Api
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from ssl import SSLContext

    from core.client.net.address_map import AddressMap
    from core.client.net.authenticator import Authenticator
    from core.client.net.token_source import TokenSource
    from core.security.client_security import ClientSecurity


TIMEOUT_SECONDS = 30.0


class Connector:
    """Several clients may share one, each in its own thread: the TLS context and the token are read once. Modules that
    a plaintext connection does not need are not imported for it.
    """

    def __init__(
        self,
        security: ClientSecurity | None = None,
        *,
        timeout_s: float = TIMEOUT_SECONDS,
        routes: AddressMap | None = None,
    ) -> None:
        """Connects in plaintext without `security`; `routes` says where addresses can be reached from here. Raises
        UsageError for files of keys that can't be read.
        """
        self._tls = security.tls if security is not None else None
        self._login = security.login if security is not None else None
        self.timeout_s = timeout_s
        self.notice = ConnectNotice(routes)
        self._context: SSLContext | None = None
        self._tokens: TokenSource | None = None
        if self._tls is not None:
            from core.files.tls_context import make_context

            self._context = make_context(self._tls)
        if self._login is not None:
            from core.client.net.token_source import TokenSource
            from core.security.client_security import BearerLogin

            self._tokens = TokenSource(self._login) if isinstance(self._login, BearerLogin) else None

    def with_timeout(self, timeout_s: float | None) -> Connector:
        other = copy(self)
        other.timeout_s = self.timeout_s if timeout_s is None else timeout_s
        return other

    def __call__(self, host: str, port: int, *, is_hasty: bool = False) -> ClientConnection:
        """Opens a connection that is ready for requests; `is_hasty`: see `SocketTransport`. Raises
        ConnectionFailedError if nobody answers, AuthenticationError if one side does not trust the other, KafkaError if
        the broker refuses the login.
        """
        transport = SocketTransport(
            host,
            port,
            timeout_s=self.timeout_s,
            context=self._context,
            shows_certificate=self._tls is not None and self._tls.key_store is not None,
            is_trusted=False,
            notice=self.notice,
            is_hasty=is_hasty,
        )
        try:
            connection = ClientConnection(transport, None if transport.is_owners else self._authenticator())
        except BaseException:
            transport.close()
            raise
        transport.is_trusted = True
        return connection

    def _authenticator(self) -> Authenticator | None:
        if self._login is None:
            return None
        from core.client.net.authenticator import Authenticator

        return Authenticator(self._login, self._tokens, has_tls=self._tls is not None)


_logger = logging.getLogger("plog.client")

_LEADER_TIMEOUT_SECONDS = 10.0
_LOOK_SECONDS = 3.0
_LOOK_AGAIN_SECONDS = 1.0
_REFUSED_SECONDS = 10.0

_NOT_MADE_HINT = "the controller creates topics: its log says what it waits for, such as a ZooKeeper that is away"

Entry = TypeVar("Entry")
Address = tuple[str, int]
"""A host and a port."""

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_MAY_MOVE = RETRIABLE | {ErrorCode.BROKER_NOT_AVAILABLE}
"""The latter is `KafkaClient`'s own, for a broker that has just left."""

FindMetadata = Callable[[Sequence[str]], MetadataResponse]
"""Returns the answer that a broker would give about these topics."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """The replicas on brokers, or on disks, that are gone."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]


class KafkaClient:
    """Owned by one task."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        connect: Connect | None = None,
        *,
        security: ClientSecurity | None = None,
        connector: Connector | None = None,
        routes: AddressMap | None = None,
        place: str | None = None,
        find_metadata: FindMetadata | None = None,
    ) -> None:
        """Connects. `connect` replaces sockets, `connector` the one made from `security` and `routes`; `place` says for
        people where the cluster is, if the bootstrap addresses don't. `find_metadata` describes topics without a
        broker. Raises what a `Connector` raises, ConnectionFailedError if none of the bootstrap addresses answers.
        """
        self.place = place or f"on {','.join(str(Endpoint(*address)) for address in bootstrap)}"
        self._bootstrap = self._named = bootstrap
        self._find_metadata = find_metadata
        self._connect = connect
        self._connector = connector or Connector(security, routes=routes)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, ClientConnection] = {}
        self._any: ClientConnection | None = None
        self._reached: set[Address] = set()
        self._topics: dict[str, TopicInfo] = {}
        self._once_known: set[str] = set()
        self.controller_id = -1
        self.cluster_id: str | None = None
        self.any_connection()

    def another(self, *, timeout_s: float | None = None) -> KafkaClient:
        """Returns another client of the same cluster, with connections of its own and that timeout. If none of the
        bootstrap addresses answers, it asks the brokers that this client knows.
        """
        made = KafkaClient(
            list(dict.fromkeys([*self._bootstrap, *self._brokers.values()])),
            self._connect,
            connector=self._connector.with_timeout(timeout_s),
            place=self.place,
            find_metadata=self._find_metadata,
        )
        made._named, made._reached = self._named, set(self._reached)
        return made

    # --- connections

    def _open(self, address: Address, *, is_hasty: bool = False, timeout_s: float | None = None) -> ClientConnection:
        if self._connect is not None:
            return ClientConnection(self._connect(*address))
        return self._connector.with_timeout(timeout_s)(*address, is_hasty=is_hasty)

    def any_connection(self) -> ClientConnection:
        """Returns a connection to any broker that answers. A broker that is silent for some seconds is asked again
        after all others, with the full timeout.
        """
        if self._any is None:
            self._any = self._open_any()
        return self._any

    def _open_any(self) -> ClientConnection:
        failure = ConnectionFailedError("no live broker is known", where="a broker")
        turns = self._addresses()
        brokers = len(turns)
        for number, address in enumerate(turns):
            is_hasty = number < brokers > 1
            try:
                return self._open(address, is_hasty=is_hasty)
            except ConnectionFailedError as error:
                failure = error
                if is_hasty and isinstance(error, UnansweredError):
                    turns.append(address)  # which has its full timeout then
                    if turns[number + 1] != address:
                        self._connector.notice.pass_over(address, turns[number + 1])
        raise failure

    def _addresses(self) -> list[Address]:
        """Returns the addresses of brokers; those that were silent when they were asked last come last."""
        addresses = dict.fromkeys([*self._bootstrap, *self._brokers.values()])
        return sorted(addresses, key=self._connector.notice.silent.__contains__)

    def ask_any(self, api: Api[Req, Res], request: Req) -> Res:
        """Returns any broker's answer to a repeatable request: another broker is asked if the first is silent, or has
        closed the connection, as brokers do with idle ones.
        """
        for others in reversed(range(len(self._addresses()))):
            connection = self.any_connection()
            try:
                return connection.call(api, request, is_hasty=others > 0)
            except ConnectionFailedError as error:
                self._forget_any()
                if not others:
                    raise
                if isinstance(error, UnansweredError):
                    _logger.warning("%s does not answer; asking another broker", error.where)
        raise AssertionError("a client has a broker's address")

    def _forget_any(self) -> None:
        """Forgets the connection of `any_connection`: a late answer on it would belong to an earlier request."""
        if self._any is not None:
            self._any.close()
        self._any = None

    def connection_to(self, node_id: int) -> ClientConnection:
        connection = self._connections.get(node_id)
        if connection is None:
            address = self._brokers.get(node_id)
            if address is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster's metadata do not name broker {node_id}")
            try:
                connection = self._connections[node_id] = self._open(address)
            except ConnectionFailedError as error:
                self._ensure_may_come(address, error)
                raise
            self._reached.add(address)
        return connection

    def _ensure_may_come(self, address: Address, error: ConnectionFailedError) -> None:
        """Raises UnreachableAddressError if bootstrap servers answer, and none of the addresses that they advertise can
        be reached: then retries do not help. If others can be reached, this broker may be down, unless the name is
        unknown here and `--resolve` leaves it out.
        """
        if address in self._named or address in self._reached:
            return
        if self._routes is not None and self._routes.unmapped([address]):
            if isinstance(error.__cause__, socket.gaierror):
                raise self.unreachable(error) from error
            error.hint = self._unreachable_hint()
        if self._reached or not self._answers(self._named):
            return
        if error.message.startswith("lost"):  # there was a connection
            return
        if not self._answers([one for one in self._brokers.values() if one != address]):
            raise self.unreachable(error) from error

    def ensure_routes(self) -> None:
        """Asks which addresses the cluster advertises, if something says that they are elsewhere. Raises UsageError if
        that can't be.
        """
        if self._routes is not None:
            self.refresh([])

    @property
    def _routes(self) -> AddressMap | None:
        return self._connector.notice.routes

    def unreachable(self, error: ConnectionFailedError) -> UnreachableAddressError:
        """Turns an error about an address into one that names the server that advertised it."""
        return UnreachableAddressError(
            f"{error.message}; the server {self.place} answers, and names that address for its clients",
            where=error.where,
            hint=self._unreachable_hint(),
        )

    def _unreachable_hint(self) -> str:
        from core.client.net.address_map import unreachable_hint

        if not self._brokers:
            self.refresh([])
        return unreachable_hint(set(self._brokers.values()), self._named, self._routes)

    def _answers(self, addresses: Iterable[Address]) -> bool:
        for address in addresses:
            with suppress(PlogError):
                self._open(address, is_hasty=True).close()
                return True
        return False

    @contextmanager
    def connection_at(self, address: str, *, timeout_s: float) -> Iterator[ClientConnection]:
        """Opens a new connection to the broker at HOST:PORT; any thread may. Raises what a `Connector` raises."""
        endpoint = parse_endpoint(address)
        with closing(self._open((endpoint.host, endpoint.port), timeout_s=timeout_s)) as connection:
            yield connection

    @property
    def node_ids(self) -> list[int]:
        """Returns the brokers that the last refresh found."""
        return list(self._brokers)

    def controller_connection(self) -> ClientConnection:
        """Returns a connection to the controller, after asking for its id; in a cluster of KRaft that is any broker.
        Raises KafkaError(BROKER_NOT_AVAILABLE) if there is no controller just now.
        """
        self.refresh([])
        if self.controller_id not in self._brokers:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no controller now")
        try:
            return self.connection_to(self.controller_id)
        except ConnectionFailedError as error:
            error.hint = (
                f"broker {self.controller_id} is the cluster's controller, which makes this change: is it running?"
            )
            raise

    def forget_connections(self) -> None:
        """Closes all connections, as after one broke: the next request opens a new one."""
        for node_id in list(self._connections):
            self.forget_connection(node_id)
        self._forget_any()

    close = forget_connections

    def forget_connection(self, node_id: int) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def retry_while_leader_moves(self, work: Callable[[], Result]) -> Result:
        """Returns what `work` returns, which finds its broker through this client. Repeats it, with new metadata, while
        that broker can't be reached, or answers with a retriable error. If an answer was lost, the work is done twice.

        Raises KafkaError if the error stays for 10 s, ConnectionFailedError if the broker stays away for 30 s; at once
        if the cluster has no other one.
        """

        def forget(error: PlogError) -> None:
            if isinstance(error, ConnectionFailedError):
                self.forget_connections()
                if len(self.node_ids) < 2:
                    raise error
            self.forget_topics()

        return Retry(FAILOVER_SECONDS).call(
            lambda: Retry(_REFUSED_SECONDS).call(work, _MAY_MOVE, forget), ConnectionFailedError, forget
        )

    # --- metadata

    def refresh(
        self, topics: Iterable[str] | None = None, *, may_create: bool = False, skips_unknown: bool = False
    ) -> dict[str, TopicInfo]:
        """Returns topics by name, all unless some are named. Raises KafkaError if a named topic has an error of its
        own; with `skips_unknown` an unknown topic is missing instead.
        """
        response = self._ask_metadata(None if topics is None else list(topics), may_create=may_create)
        self._brokers = {b.node_id: (b.host, b.port) for b in response.brokers}
        self._connector.notice.note_advertised(self._brokers)
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id
        found = {}
        for topic in response.topics:
            if skips_unknown and topic.error_code == _UNKNOWN:
                continue
            if topic.error_code:
                raise _topic_error(ErrorCode.of(topic.error_code), topic.name or "")
            assert topic.name is not None
            partitions = {
                p.partition_index: PartitionInfo(
                    p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes), tuple(p.offline_replicas)
                )
                for p in topic.partitions
            }
            found[topic.name] = TopicInfo(topic.name, topic.topic_id, topic.is_internal, partitions)
        self._topics |= found
        self._once_known |= found.keys()
        return found

    def _ask_metadata(self, topics: list[str] | None, *, may_create: bool) -> MetadataResponse:
        """Asks `find_metadata` about named topics; a broker about all else, and to create a topic."""
        if self._find_metadata is not None and topics:
            found = self._find_metadata(topics)
            if not may_create or all(topic.error_code != _UNKNOWN for topic in found.topics):
                return found
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(wanted, allow_auto_topic_creation=may_create)
        return self.ask_any(METADATA, request)

    def topic(self, name: str, *, may_create: bool = False, guesses: bool = True) -> TopicInfo:
        """Returns a topic. If the topic existed before, or with `may_create`, it waits a while for it: a broker that
        has just started may not know the topic yet. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) if the topic does not
        exist. With `guesses` it then asks for all topics, and the hint has the most similar name.
        """
        known = self._topics.get(name)
        if known is not None:
            return known
        is_awaited = may_create or name in self._once_known
        try:
            return Retry(_LEADER_TIMEOUT_SECONDS).call(
                lambda: self.refresh([name], may_create=may_create)[name],
                RETRIABLE | {_UNKNOWN} if is_awaited else RETRIABLE,
            )
        except KafkaError as error:
            if may_create:
                raise self._not_made(name, error) from None
            raise (self._unknown(name, error) if error.code is _UNKNOWN and guesses else error) from None

    def _unknown(self, name: str, error: KafkaError) -> KafkaError:
        meant = did_you_mean(name, self.refresh())
        return KafkaError(error.code, error.message, hint=meant or error.hint)

    def _not_made(self, name: str, error: KafkaError) -> KafkaError:
        """Explains the error of a topic that could not be created: brokers answer LEADER_NOT_AVAILABLE for it; for an
        existing topic the error is about its partitions.
        """
        if error.code is not ErrorCode.LEADER_NOT_AVAILABLE or name in self._once_known:
            return error
        text = f"topic {name!r} does not exist, and could not be created yet"
        return KafkaError(error.code, text, hint=_NOT_MADE_HINT)

    def leader_of(self, partition: TopicPartition) -> int:
        """Returns the leader, and waits a while for one. Raises KafkaError without one, or without such a partition."""

        def look() -> int | None:
            found = self.find_leader(partition)
            if found is None:
                self.forget_topic(partition.topic)
            return found

        leader = Retry(_LEADER_TIMEOUT_SECONDS).until(look)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader")
        return leader

    def by_leader(self, entries: Iterable[tuple[TopicPartition, Entry]]) -> dict[int, dict[str, list[Entry]]]:
        """Groups the entries of partitions by leader and topic, as requests have them. Raises what `leader_of` does."""
        found: dict[int, dict[str, list[Entry]]] = {}
        for partition, entry in entries:
            found.setdefault(self.leader_of(partition), {}).setdefault(partition.topic, []).append(entry)
        return found

    def find_leader(self, partition: TopicPartition) -> int | None:
        """Returns the leader that the metadata name, or None. Raises KafkaError if the partition does not exist."""
        info = self.topic(partition.topic).partitions.get(partition.partition)
        if info is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {partition}")
        return info.leader if info.leader >= 0 else None

    def has_other_replicas(self, partition: TopicPartition) -> bool:
        """Returns whether another broker may lead it soon, if the disk of its leader fails."""
        info = self.topic(partition.topic).partitions.get(partition.partition)
        return info is not None and len(info.replicas) > 1

    def receive_from_leader(self, node_id: int, partitions: Collection[TopicPartition], *, may_repeat: bool) -> Any:
        """Returns the oldest answer under way from a broker, which was sent a request about these partitions. If it is
        silent, and the request `may_repeat`, raises UnansweredError once another broker leads one of the partitions.
        """

        def ensure_led() -> None:
            if may_repeat and self.is_replaced(node_id, partitions):
                where = f"broker {node_id}"
                text = f"{where} does not answer, and other brokers lead partitions that it was asked about"
                raise UnansweredError(text, where=where)

        return self.connection_to(node_id).receive(on_silence=ensure_led)

    def is_replaced(self, node_id: int, partitions: Collection[TopicPartition]) -> bool:
        """Returns whether brokers now name another leader than this one for one of the partitions; False if none
        answers in a few seconds. The client's metadata stay as they are: requests to those leaders may be under way.
        """
        if len(self._brokers) < 2:
            return False
        try:
            with closing(self.another(timeout_s=_LOOK_SECONDS)) as asked:
                found = asked.refresh(sorted({partition.topic for partition in partitions}))
        except PlogError:
            return False
        leaders = {
            TopicPartition(topic.name, number): one.leader
            for topic in found.values()
            for number, one in topic.partitions.items()
        }
        return any(leaders.get(partition, -1) not in (-1, node_id) for partition in partitions)

    def forget_topic(self, name: str) -> None:
        """Forgets the metadata of the topic: they are out of date."""
        self._topics.pop(name, None)

    def forget_topics(self) -> None:
        self._topics.clear()


class KnownLeaders:
    """Owned by one task. A partition without a leader is reported once, until it has one."""

    def __init__(self, client: KafkaClient, report: Callable[[str], None]) -> None:
        self._client = client
        self._report = report
        self._leaderless: set[TopicPartition] = set()
        self._next_look_s = 0.0  # when the metadata may be asked for again

    def find(
        self,
        partitions: Iterable[TopicPartition],
        may_wait: Callable[[list[TopicPartition]], bool],
        *,
        must_find: bool = True,
    ) -> dict[TopicPartition, int]:
        """Finds the leaders of the partitions, for one round of requests. Partitions without a leader are left out if
        they `may_wait`; otherwise, or with `must_find` if no partition has a leader, this waits for the leader of one
        of them and returns it alone.

        Raises what `KafkaClient.leader_of` raises; LEADER_NOT_AVAILABLE after a wait in vain.
        """
        leaders = {partition: self._client.find_leader(partition) for partition in partitions}
        found = {partition: leader for partition, leader in leaders.items() if leader is not None}
        if len(found) == len(leaders):
            self._leaderless.clear()
            return found
        missing = [partition for partition, leader in leaders.items() if leader is None]
        if (must_find and not found) or not may_wait(missing):
            return {missing[0]: self._client.leader_of(missing[0])}
        if found:
            for partition in missing:
                if partition not in self._leaderless:
                    self._report(f"partition {partition} has no leader; the other partitions do not wait for it")
            self._leaderless = set(missing)
        if time.monotonic() >= self._next_look_s:
            self._next_look_s = time.monotonic() + _LOOK_AGAIN_SECONDS
            for topic in {partition.topic for partition in missing}:
                self._client.forget_topic(topic)
        return found


def _topic_error(code: ErrorCode, name: str) -> KafkaError:
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        make = "brokers make it when it is first needed" if name.startswith("__") else f"plog topic create {name}"
        return KafkaError(code, f"no topic {name!r}", hint=f"plog topic list, or {make}")
    return KafkaError(code, f"topic {name!r}: {code.text}")


_FIRST_BATCHED_VERSION = 4  # KIP-699


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def find_coordinator(client: KafkaClient, type_: CoordinatorType, key: str) -> int:
    """Returns the node id of the key's coordinator, which the client can connect to afterwards. Raises KafkaError if
    there is no coordinator yet.
    """
    from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest

    connection = client.any_connection()
    is_batched = connection.version_of(FIND_COORDINATOR) >= _FIRST_BATCHED_VERSION
    request = FindCoordinatorRequest("" if is_batched else key, type_, [key] if is_batched else [])
    answer = connection.call(FIND_COORDINATOR, request)
    (found,) = ensure_as_many(answer.coordinators, 1, FIND_COORDINATOR) if is_batched else [answer]
    ensure_success(found.error_code, key, found.error_message)
    if found.node_id not in client.node_ids:
        client.refresh([])
    return found.node_id


def at_coordinator(
    client: KafkaClient, type_: CoordinatorType, key: str, work: Callable[[ClientConnection], Result]
) -> Result:
    """Returns what `work` returns at the coordinator; repeats it, for a while, if the coordinator moves, loads or is
    being created, or dies and another broker takes over (`KafkaClient.retry_while_leader_moves`).
    """
    return client.retry_while_leader_moves(lambda: work(client.connection_to(find_coordinator(client, type_, key))))
