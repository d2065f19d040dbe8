"""One term of a broker as the controller: from a won election to a lost one.

One task handles all events, one after the other: changes in ZooKeeper, requests of brokers and operators, answers to
control requests. Each is completed, with its writes through the fenced `ControllerStore`, before the next one starts.
If a write is refused, the term is over, and nothing of it goes on: waiting requests get NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from core.broker.controller.controller_sender import ControllerSender
from core.broker.serving.loop_tasks import LoopTasks
from core.cluster.controller.cluster_controller import ClusterController
from core.cluster.controller.controller_context import LiveBroker
from core.cluster.controller.controller_decisions import ControllerDecisions
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.controller.controller_writes import Decision, Write
from core.cluster.controller.elections import ElectionPolicy
from core.cluster.image.feature_levels import FeatureUpdate
from core.common.clock import Clock
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, MalformedMessageError
from core.common.pending import Pending
from core.protocol.message import Api
from core.protocol.schema.control_request import LEADER_AND_ISR, STOP_REPLICA
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsResponse
from core.zookeeper.controller_store import ControllerStore, OutOfOfficeError
from core.zookeeper.znodes import BROKER_IDS, DELETE_TOPICS, LOG_DIR_EVENTS, TOPICS, broker_path, topic_path
from core.zookeeper.zookeeper_session import Watch, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Node, ZooKeeperError

_log = logging.getLogger("plog.controller")

_PRODUCER_ID_BLOCK = 1000
_MAX_INT64 = 2**63 - 1
_FOLLOWED_AT_ONCE = 100

T = TypeVar("T")
U = TypeVar("U")

_LOOK_AT_RECOVERY_SECONDS = 0.25

Ask = Callable[[int, Api[Any, Any], int, Any], Awaitable[Any]]
"""Sends a broker one request, by its id, beside the control requests: `PeerPool.ask`."""

MakeQueue = Callable[[int, LiveBroker, Callable[[ControllerRequest, Any], None], Callable[[], None]], ControllerSender]
"""(broker id, its registration, callback for answers): the queue of requests to one life of a broker."""


class ActiveController:
    """Owned by the loop; `run` is its task."""

    def __init__(
        self,
        session: ZooKeeperSession,
        store: ControllerStore,
        *,
        node_id: int,
        epoch: int,
        make_queue: MakeQueue,
        ask: Ask,
        policy: ElectionPolicy,
        clock: Clock,
        read_settings: Callable[[], Awaitable[None]],
        on_over: Callable[[], None],
    ) -> None:
        """`read_settings` returns when `policy` knows all settings that were changed before the last read. `on_over` is
        called when the term can't go on, before another broker may have been elected.
        """
        self.epoch = epoch
        self._session = session
        self._store = store
        self._make_queue = make_queue
        self._ask = ask
        self._clock = clock
        self._read_settings = read_settings
        self._on_over = on_over
        self._office = ControllerDecisions(node_id, epoch, send=self._send, policy=policy)
        self.context = self._office.context
        self.controller = ClusterController(self._office)
        self._queues: dict[int, tuple[LiveBroker, ControllerSender]] = {}
        self._events: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._waiting: dict[Pending[Any], Callable[[KafkaError], Any]] = {}
        """Waiting requests, and the answer that each gets if the term ends first."""
        self._watches: dict[str, Watch] = {}
        """By path of the node."""
        self._waiting_once: set[str] = set()
        """The names of queued work that is done once, however often it is requested."""
        self.is_over = False
        """Whether the term can't go on, even if no other broker is elected yet."""
        self._tasks = LoopTasks()
        self._task = asyncio.get_running_loop().create_task(self._run())

    # --- the term

    async def _run(self) -> None:
        try:
            await self._begin()
            while True:
                event = await self._events.get()
                await event()
        except (OutOfOfficeError, ZooKeeperError, MalformedMessageError) as error:
            _log.warning("this broker is no longer the controller: %s", error)
            self._end()
            self._on_over()
        except Exception:  # noqa: BLE001 - a mistake of ours: another broker may do better
            _log.exception("the controller has failed")
            self._end()
            self._on_over()

    async def _begin(self) -> None:
        """Watches before it reads, so that no change is missed in between."""
        for path, refresh in (
            (BROKER_IDS, self._refresh_brokers),
            (TOPICS, self._refresh_topics),
            (DELETE_TOPICS, self._refresh_deletions),
            (LOG_DIR_EVENTS, self._refresh_disks),
        ):
            on_change = partial(self._on_change, path, refresh)
            self._watches[path] = await self._session.watch_children(path, on_change)
        await self._begin_features()
        brokers = await self._read_brokers()
        deleted = await self._store.deleted_topics()
        found = await self._store.read_topics(await self._store.topic_names())
        self.context.unreadable = found.unreadable
        self._sync_queues(brokers)
        await self.drive(self.controller.take_office(brokers, found.topics, deleted))
        _log.info(
            "in office as the controller in epoch %d, with %d brokers and %d topics",
            *(self.epoch, len(brokers), len(found.topics)),
        )
        await self._follow_brokers()
        await self._follow_topics()
        self._tasks.begin(self._look_at_recovery())

    async def _look_at_recovery(self) -> None:
        """Checks regularly whether partitions without a leader can get one."""
        while not self.is_over:
            await asyncio.sleep(_LOOK_AT_RECOVERY_SECONDS)
            if self._office.recovery.waiting:
                self._do_once(
                    "look at recovery", lambda: self.drive(self.controller.look_at_recovery(self._clock.now_ms()))
                )

    async def _begin_features(self) -> None:
        """Reads the finalized features. An unreadable node is left alone: no feature counts as finalized then."""
        try:
            finalized, version = await self._store.read_features()
        except MalformedMessageError as error:
            _log.error("no feature counts as finalized: %s", error)
            self.controller.features.leave_alone(str(error))
            return
        await self.drive(self.controller.features.begin(finalized, version))

    async def _read_brokers(self) -> dict[int, LiveBroker]:
        """Reads the registered brokers that support the finalized features, and then the settings that brokers which
        are gone may have used. With an older `min.insync.replicas` a broker might be elected that lacks records which
        they committed.
        """
        brokers = await self._store.read_brokers()
        await self._read_settings()
        return self.controller.features.compatible(brokers)

    def close(self) -> None:
        """Ends the term, because another broker was elected, or none is any longer."""
        self._task.cancel()
        self._end()

    def _give_up(self) -> None:
        """Ends the term, because a broker can't be informed of a decision: another controller may do better."""
        self.close()
        self._on_over()

    def _end(self) -> None:
        self.is_over = True
        self._tasks.cancel()
        for watch in self._watches.values():
            watch.cancel()
        for _, queue in self._queues.values():
            queue.close()
        self._queues.clear()
        waiting, self._waiting = self._waiting, {}
        for pending, at_the_end in waiting.items():
            pending.complete_with(at_the_end(KafkaError(ErrorCode.NOT_CONTROLLER)))

    # --- events

    def ask(self, work: Callable[[], Decision[T]]) -> Pending[T | KafkaError]:
        """Makes a decision after the queued ones; returns its result, or KafkaError(NOT_CONTROLLER) if the term ends
        first. A KafkaError that the decision raises is returned as well.
        """
        return self.do(lambda: self.drive(work()))

    def do(self, work: Callable[[], Awaitable[T]]) -> Pending[T | KafkaError]:
        """As `ask`, for work that reads first. Raises KafkaError(NOT_CONTROLLER) if the term is over."""
        pending = self._awaited(Pending[T | KafkaError](), lambda error: error)

        async def event() -> None:
            try:
                outcome: T | KafkaError = await work()
            except KafkaError as error:
                outcome = error
            self._give(pending, outcome)

        self._events.put_nowait(event)
        return pending

    def do_in_turns(
        self, names: Sequence[str], parts: Iterator[T], work: Callable[[T], Awaitable[Mapping[str, U]]]
    ) -> Pending[dict[str, U | KafkaError]]:
        """As `do`, for long work in parts, each with a turn of its own: queued events come before the next part.
        Returns the result for each name. After a KafkaError, such as that of a term that ends, no other part is done;
        the names without a result get that error.
        """
        outcomes: dict[str, U | KafkaError] = {}

        def with_rest(error: KafkaError) -> dict[str, U | KafkaError]:
            return {**dict.fromkeys(names, error), **outcomes}

        pending = self._awaited(Pending[dict[str, U | KafkaError]](), with_rest)

        async def event() -> None:
            try:
                part = next(parts, None)
                if part is not None:
                    outcomes.update(await work(part))
            except KafkaError as error:
                self._give(pending, with_rest(error))
                return
            if part is None:
                self._give(pending, outcomes)
            else:
                self._events.put_nowait(event)

        self._events.put_nowait(event)
        return pending

    def _awaited(self, pending: Pending[T], at_the_end: Callable[[KafkaError], T]) -> Pending[T]:
        if self.is_over:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        self._waiting[pending] = at_the_end
        return pending

    def _give(self, pending: Pending[T], outcome: T) -> None:
        self._waiting.pop(pending, None)
        pending.complete_with(outcome)

    async def write(self, writes: Sequence[Write]) -> None:
        """Writes to ZooKeeper, within work that `do` does."""
        await self._store.commit(writes)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range | ErrorCode:
        """Returns a block for a broker, within work that `do` does. Raises KafkaError if the next id can't be read, or
        no block is left.
        """
        try:
            first, version = await self._store.read_producer_ids()
        except MalformedMessageError as error:
            _log.error("no producer ids can be given out: %s", error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        if not 0 <= first <= _MAX_INT64 - _PRODUCER_ID_BLOCK:
            _log.error("no producer ids can be given out: %d would be the next", first)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
        return await self.drive(
            self.controller.allocate_producer_ids(broker_id, broker_epoch, first, version, _PRODUCER_ID_BLOCK)
        )

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        """Finalizes levels of features, within work that `do` does. Raises KafkaError if that is not allowed."""
        features = self.controller.features
        features.ensure_may_be(updates, await self._store.read_brokers())
        if not validate_only:
            await self.drive(features.update(updates))
            await self._refresh_brokers()  # a broker that was left out may support the lower level

    async def drive(self, decision: Decision[T]) -> T:
        """Runs a decision with all its writes, within work that `do` does. A KafkaError for a failed write is raised
        inside the decision, which may have to undo something.
        """
        try:
            writes = next(decision)
            while True:
                try:
                    versions = await self._write_or_wait(writes)
                except KafkaError as error:
                    writes = decision.throw(error)
                else:
                    writes = decision.send(versions)
        except StopIteration as end:
            made: T = end.value
            return made

    async def _write_or_wait(self, writes: Sequence[Write]) -> list[int]:
        if writes:
            return await self._store.commit(writes)
        await asyncio.sleep(0)  # GIVE_WAY
        return []

    def _on_change(self, path: str, refresh: Callable[[], Awaitable[None]], _names: Sequence[str] | None) -> None:
        self._do_once(path, refresh)

    def _do_once(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Queues work; once, however often it is requested before its turn."""
        if name not in self._waiting_once:
            self._waiting_once.add(name)

            async def event() -> None:
                self._waiting_once.discard(name)
                await work()

            self._events.put_nowait(event)

    async def _refresh_brokers(self) -> None:
        brokers = await self._read_brokers()
        before = {broker_id: broker.epoch for broker_id, broker in self.context.brokers.items()}
        now = {broker_id: broker.epoch for broker_id, broker in brokers.items()}
        if before != now:
            _log.info("brokers that live: %s", ", ".join(map(str, sorted(brokers))) or "none")
        if brokers != self.context.brokers:
            self._sync_queues(brokers)
            await self.drive(self.controller.on_brokers(brokers))
            await self._follow_brokers()

    async def _follow_brokers(self) -> None:
        on_change = partial(self._on_change, BROKER_IDS, self._refresh_brokers)
        await self._follow(BROKER_IDS, {broker_path(one): on_change for one in self.context.brokers})

    async def _refresh_topics(self) -> None:
        names = await self._store.topic_names()
        self.controller.on_topics_gone(self.context.topics.keys() - set(names))
        new = [name for name in names if name not in self.context.topics]
        found = await self._store.read_topics(new, self.controller.names)
        self.context.unreadable = found.unreadable
        if found.topics:
            await self.drive(self.controller.on_topics(found.topics))
        await self._follow_topics()

    async def _follow_topics(self) -> None:
        """Watches for partitions that are added to a topic in ZooKeeper by hand."""
        await self._follow(TOPICS, {topic_path(name): partial(self._on_topic, name) for name in self.context.topics})

    def _on_topic(self, name: str, node: Node | None) -> None:
        """Ignores this controller's own writes."""
        known = self.context.topics.get(name)
        if node is not None and known is not None and node.stat.version != known.version:
            self._on_change(topic_path(name), partial(self._refresh_topic, name), ())

    async def _refresh_topic(self, name: str) -> None:
        found = await self._store.read_topics([name], self.controller.names)
        if found.topics and name in self.context.topics and name not in self.context.deleted:
            await self.drive(self.controller.on_topics(found.topics))

    async def _follow(self, folder: str, wanted: Mapping[str, Callable[[Node | None], None]]) -> None:
        """Watches the data of those nodes of the folder, and of no others."""
        for path in [path for path in self._watches if path.startswith(f"{folder}/") and path not in wanted]:
            self._watches.pop(path).cancel()
        new = [path for path in wanted if path not in self._watches]

        async def follow(path: str) -> None:
            watch = await self._session.watch_data(path, wanted[path])
            if self.is_over:
                watch.cancel()  # watching another one failed meanwhile
            else:
                self._watches[path] = watch

        for start in range(0, len(new), _FOLLOWED_AT_ONCE):
            await asyncio.gather(*map(follow, new[start : start + _FOLLOWED_AT_ONCE]))

    async def _refresh_deletions(self) -> None:
        """Reads topics afterwards: a topic that is unknown then does not exist."""
        names = await self._store.deleted_topics()
        await self._refresh_topics()
        await self.drive(self.controller.on_deletions(names))

    async def _refresh_disks(self) -> None:
        for broker_id in await self._store.take_disk_events():
            await self.drive(self.controller.ask_for_disks(broker_id))

    # --- control requests

    def _sync_queues(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Keeps one queue for each life of a broker; requests for an earlier life are dropped. A broker with a new
        address gets its unanswered requests there: to get one twice does no harm.
        """
        left: dict[int, list[ControllerRequest]] = {}
        for broker_id, (known, queue) in list(self._queues.items()):
            broker = brokers.get(broker_id)
            if broker != known:
                unanswered = queue.close()
                del self._queues[broker_id]
                if broker is not None and broker.epoch == known.epoch:
                    left[broker_id] = unanswered
        for broker_id, broker in brokers.items():
            if broker_id not in self._queues:
                queue = self._make_queue(broker_id, broker, self._on_answer, self._give_up)
                self._queues[broker_id] = broker, queue
                for request in left.get(broker_id, ()):
                    queue.put(request)

    def _send(self, request: ControllerRequest) -> None:
        if request.api is LIST_OFFSETS:
            self._tasks.begin(self._question(request))
            return
        found = self._queues.get(request.broker_id)
        if found is not None and found[0].epoch == request.broker_epoch:
            found[1].put(request)

    async def _question(self, request: ControllerRequest) -> None:
        """Asks a holder for the ends of its logs. It answers when it has read them; no other request waits for that."""
        try:
            answer = await self._ask(request.broker_id, request.api, request.version, request.request)
        except (ConnectionFailedError, KafkaError):
            answer = ListOffsetsResponse()
        self._events.put_nowait(lambda: self.drive(self.controller.on_log_ends(request, answer)))

    @property
    def waiting_events(self) -> int:
        """How many events are queued."""
        return self._events.qsize()

    @property
    def unsent(self) -> int:
        """How many control requests have not been answered."""
        return sum(len(queue) for _, queue in self._queues.values())

    def _on_answer(self, request: ControllerRequest, answer: Any) -> None:
        """Queues the relevant part of an answer."""
        controller, broker_id, broker_epoch = self.controller, request.broker_id, request.broker_epoch
        if answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            _log.warning("broker %d obeys a newer controller", broker_id)
        if request.api is LEADER_AND_ISR:
            self._events.put_nowait(
                lambda: self.drive(controller.on_roles_taken(broker_id, broker_epoch, request.request, answer))
            )
        elif request.api is STOP_REPLICA:
            self._events.put_nowait(
                lambda: self.drive(controller.on_replicas_stopped(broker_id, broker_epoch, request.request, answer))
            )
            self._do_once("remove deleted topics", self._remove_deleted)

    async def _remove_deleted(self) -> None:
        """Removes the topics without replicas; of many, some in each turn."""
        if await self.drive(self.controller.remove_deleted()):
            self._do_once("remove deleted topics", self._remove_deleted)
