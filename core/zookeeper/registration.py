"""A broker's registration: its node below /brokers/ids, whose czxid is the broker epoch, and the cluster's id.

One transaction makes the node, as in Kafka: create it empty, then set its data. Only the answer to the second operation
has the czxid.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from core.common.clock import Clock
from core.common.errors import AccessError, MalformedMessageError, PlogError, UsageError
from core.zookeeper import znodes
from core.zookeeper.zookeeper_session import SessionState, ZooKeeperSession, read_or_create
from core.zookeeper.zookeeper_transaction import Create, Node, NodeStat, Operation, Refusal, SetData, ZooKeeperError

_log = logging.getLogger("plog.zookeeper")

_BROKERS = znodes.BROKER_IDS.rpartition("/")[0]

_GRACE_MS = 3000
"""How long after a session's timeout ZooKeeper may take to end it."""


class Registration:
    """Keeps a broker registered, from `register` until the session is closed. Owned by the loop's thread.

    After an expiry the broker is registered again: `on_registered` is called with each broker epoch, `on_lost` when one
    ends, and `on_failed` if a later registration is refused (the node id is somebody else's by then).
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        broker_id: int,
        broker: znodes.BrokerNode,
        *,
        clock: Clock,
        on_registered: Callable[[int], None],
        on_lost: Callable[[], None] = lambda: None,
        on_failed: Callable[[PlogError], None] | None = None,
    ) -> None:
        self._session = session
        self._broker_id = broker_id
        self._broker = broker
        self._path = znodes.broker_path(broker_id)
        self._clock = clock
        self._on_registered = on_registered
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._task: asyncio.Task[None] | None = None
        self._first_epoch: int | None = None
        self._is_registered = asyncio.Event()
        self.epoch: int | None = None
        """The broker epoch, or None before the registration."""

    async def register(self) -> int:
        """Returns the broker epoch. Waits if an older session still has the node id, and raises AccessError if it still
        has it after that.
        """
        await self._session.ensure_paths(znodes.PERSISTENT_PATHS)
        await self._register()
        self._session.subscribe(self._on_state)
        assert self.epoch is not None
        return self.epoch

    def _on_state(self, state: SessionState) -> None:
        if state in (SessionState.EXPIRED, SessionState.FAILED, SessionState.CLOSED):
            if self.epoch is not None:
                self.epoch = None
                self._is_registered.clear()
                self._on_lost()
        elif state is SessionState.CONNECTED and self.epoch is None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._register_again())

    async def _register_again(self) -> None:
        """Survives further expiries. A session that ends is no failure of the registration."""
        try:
            await self._register()
        except PlogError as error:
            if self._session.state is not SessionState.CLOSED:
                _log.error("broker %d could not be registered again: %s", self._broker_id, error)
                if self._on_failed is not None:
                    self._on_failed(error)
        finally:
            self._task = None

    async def _register(self) -> None:
        while (epoch := await self._try()) is None:
            await until_free(self._session, self._broker_id)
        self.epoch = epoch
        if self._first_epoch is None:
            self._first_epoch = epoch
        where = ",".join(map(str, self._broker.endpoints))
        _log.info("broker %d is registered in ZooKeeper as %s, with broker epoch %d", self._broker_id, where, epoch)
        self._on_registered(epoch)
        self._is_registered.set()

    async def until_registered(self) -> None:
        """Waits until the broker is registered, as far as this session knows."""
        await self._is_registered.wait()

    async def _try(self) -> int | None:
        """Returns the epoch, or None if another session has the node: ours may have ended meanwhile. A lost connection
        may have registered us.
        """
        now_ms = self._clock.now_ms()
        data = replace(self._broker, timestamp_ms=now_ms, first_epoch=self._first_epoch).encode()
        operations: list[Operation] = [Create(self._path, is_ephemeral=True), SetData(self._path, data, version=0)]
        while True:
            try:
                stat = (await self._session.commit(operations))[1]
                assert isinstance(stat, NodeStat)
            except ZooKeeperError as error:
                if error.refusal is not Refusal.NODE_EXISTS and not error.is_lost:
                    raise
                node = await self._session.read(self._path)
                if node is None:
                    continue
                stat = node.stat
            is_over = self._session.state is SessionState.EXPIRED
            return stat.czxid if stat.ephemeral_owner == self._session.session_id and not is_over else None


async def until_free(session: ZooKeeperSession, broker_id: int) -> None:
    """Waits until no broker has that node id. Raises AccessError if one still has it after ZooKeeper's session
    timeout.
    """
    path = znodes.broker_path(broker_id)
    gone = asyncio.Event()
    holder: list[Node] = []

    def on_change(node: Node | None) -> None:
        if node is None:
            gone.set()
        else:
            holder[:] = [node]

    watch = await session.watch_data(path, on_change)
    try:
        if holder and not gone.is_set():
            who = _described(holder[0], path)
            _log.warning("node id %d is still that of %s: waiting for it to leave", broker_id, who)
        await asyncio.wait_for(gone.wait(), (session.timeout_ms + _GRACE_MS) / 1000)
    except TimeoutError:
        raise AccessError(
            f"node id {broker_id} is taken: ZooKeeper has {_described(holder[0], path)} with it",
            where=path,
            hint="each broker needs an id of its own: stop that broker, or choose another id: --node-id",
        ) from None
    finally:
        watch.cancel()


def _described(node: Node, path: str) -> str:
    session = f"session 0x{node.stat.ephemeral_owner & 2**64 - 1:x}"
    try:
        endpoints = ", ".join(map(str, znodes.decode_broker(node.data, path).endpoints))
    except MalformedMessageError:
        endpoints = "something unreadable"
    return f"a broker at {endpoints} ({session})"


async def ensure_cluster_id(session: ZooKeeperSession, known: str | None, new: str, *, may_begin: bool) -> str:
    """Returns the cluster's id. A new cluster gets the one from the data directory, else `new`. Raises UsageError if
    the directory is another cluster's, or, unless a new cluster `may_begin`, if there is no cluster: the chroot may be
    mistyped.
    """
    node = await session.read(znodes.CLUSTER_ID)
    if node is None:
        if not may_begin and await session.read(_BROKERS) is None:
            ours = f", and the data directory is of cluster {known}" if known else ""
            raise UsageError(
                f"ZooKeeper has no cluster there: {znodes.CLUSTER_ID} and {_BROKERS} are missing{ours}",
                hint="is the path after the address right? --new-cluster begins a cluster there",
            )
        await session.ensure_paths([znodes.CLUSTER_ID.rpartition("/")[0]])
        node = await read_or_create(session, znodes.CLUSTER_ID, znodes.encode_cluster_id(known or new))
    found = znodes.decode_cluster_id(node.data)
    if known and known != found:
        raise UsageError(
            f"the data directory is of cluster {known}, and ZooKeeper has cluster {found}",
            hint="use the directory or the ZooKeeper of the same cluster; is the chroot right?",
        )
    return found
