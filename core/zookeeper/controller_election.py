"""Elects the controller of a cluster with ZooKeeper: the broker that holds /controller.

A broker stands for election whenever there is no controller and it is registered: an unregistered one would elect
others for its own partitions. It creates /controller and raises /controller_epoch in one transaction; only one
broker succeeds. The node ends with the session of its broker; the epoch stays, and fences writes of earlier
controllers.

Source: kafka.zk.KafkaZkClient.registerControllerAndIncrementControllerEpoch, of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from core.common.clock import Clock
from core.common.errors import MalformedMessageError
from core.zookeeper import znodes
from core.zookeeper.zookeeper_session import SessionState, Watch, ZooKeeperSession, read_or_create
from core.zookeeper.zookeeper_transaction import (
    Check,
    Create,
    Delete,
    Node,
    NodeStat,
    Operation,
    Refusal,
    SetData,
    ZooKeeperError,
)

_log = logging.getLogger("plog.controller")

_AGAIN_SECONDS = 1.0
_NO_EPOCH = 0


async def _at_once() -> None:
    pass


class WonElection(NamedTuple):
    """The epoch of the new controller, and the version of /controller_epoch while it is in office."""

    epoch: int
    epoch_version: int


class ControllerElection:
    """Owned by the loop's thread. Calls `on_elected` when this broker becomes the controller, `on_lost` when it stops
    being the controller; in turns.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        broker_id: int,
        *,
        clock: Clock,
        on_elected: Callable[[WonElection], None],
        on_lost: Callable[[], None],
        until_registered: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        """`until_registered` waits until the broker is registered."""
        self._session = session
        self._broker_id = broker_id
        self._clock = clock
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._until_registered = until_registered
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_free = False
        self._complaint = ""
        self._session_in_office: int | None = None
        """The session that owns our /controller; None while the node is another broker's, or missing."""

    @property
    def _is_over(self) -> bool:
        """Whether the session has ended without a successor."""
        return self._session.state in (SessionState.CLOSED, SessionState.FAILED)

    async def start(self) -> None:
        """Stands for election from now on, whenever there is no controller."""
        self._session.subscribe(self._on_state)
        self._watch = await self._session.watch_data(znodes.CONTROLLER, self._on_controller)

    def stop(self) -> None:
        """Stops standing for election. A controller stays in office until its session is closed, or `resign`."""
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()

    async def resign(self) -> None:
        """Leaves office, so that another broker is elected, or this one again. Returns when our node is deleted, or its
        session has ended: while it exists, no broker decides anything. Until then it waits for a connection to
        ZooKeeper, and retries after any refusal.
        """
        session_id = self._session_in_office
        if session_id is None:
            return
        self._leave()
        while True:
            try:
                if not await self._free(session_id):
                    return
            except ZooKeeperError as error:
                if self._is_over:
                    return
                self._complain(f"no broker can become the controller until /controller is deleted: {error}")
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _free(self, session_id: int) -> bool:
        """Deletes /controller if it is that session's; returns whether it may still exist, as the connection was lost
        or another broker was elected meanwhile. Raises ZooKeeperError if it can't be deleted. Another broker's node
        would have the same version, but its election has raised the epoch, so the epoch is read first
        (KafkaZkClient.deleteController).
        """
        epoch, node = await self._session.read_many([znodes.CONTROLLER_EPOCH, znodes.CONTROLLER])
        if node is None or node.stat.ephemeral_owner != session_id:
            return False
        checks = [] if epoch is None else [Check(znodes.CONTROLLER_EPOCH, epoch.stat.version)]
        try:
            await self._session.commit([*checks, Delete(znodes.CONTROLLER)])
        except ZooKeeperError as error:
            if error.refusal not in (Refusal.CONNECTION_LOST, Refusal.NO_NODE, Refusal.BAD_VERSION):
                raise
            return True
        return False

    # --- news

    def _on_state(self, state: SessionState) -> None:
        if state in (SessionState.EXPIRED, SessionState.FAILED, SessionState.CLOSED):
            self._leave()

    def _on_controller(self, node: Node | None) -> None:
        self._is_free = node is None
        if node is None:
            self._leave()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._stand())
        elif self._session_in_office is not None and node.stat.ephemeral_owner != self._session_in_office:
            self._leave()

    def _leave(self) -> None:
        if self._session_in_office is not None:
            self._session_in_office = None
            self._on_lost()

    # --- standing

    async def _stand(self) -> None:
        try:
            while self._is_free and self._session_in_office is None:
                await self._until_registered()
                try:
                    won = await self._try()
                    if won is None:
                        await self._look()
                        continue
                except (ZooKeeperError, MalformedMessageError) as error:
                    if self._is_over:
                        return
                    self._complain(f"the election of a controller is tried again: {error}")
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                self._complaint = ""
                self._session_in_office = self._session.session_id
                self._on_elected(won)
        finally:
            self._task = None

    async def _look(self) -> None:
        """Looks for a controller. A node of our own comes from a try whose answer was lost: nobody is in office by it,
        so it is deleted.
        """
        while await self._free(self._session.session_id):
            pass
        self._is_free = await self._session.read(znodes.CONTROLLER) is None

    def _complain(self, problem: str) -> None:
        if problem != self._complaint:
            self._complaint = problem
            _log.error("%s", problem)

    async def _try(self) -> WonElection | None:
        """Returns the epoch that was won, or None if another broker is the controller."""
        epoch, version = await self._read_epoch()
        session_id = self._session.session_id
        me = znodes.ControllerNode(self._broker_id, znodes.Int64(self._clock.now_ms())).encode()
        operations: list[Operation] = [
            Create(znodes.CONTROLLER, me, is_ephemeral=True),
            SetData(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), version),
        ]
        try:
            stat = (await self._session.commit(operations))[1]
            assert isinstance(stat, NodeStat)
        except ZooKeeperError as error:
            if error.refusal in (Refusal.NODE_EXISTS, Refusal.BAD_VERSION):
                return None
            if error.refusal is not Refusal.CONNECTION_LOST:
                raise
            won = await self._find_won(session_id, epoch + 1)
        else:
            won = WonElection(epoch + 1, stat.version)
        is_over = session_id != self._session.session_id or self._session.state is SessionState.EXPIRED
        return None if is_over else won

    async def _find_won(self, session_id: int, epoch: int) -> WonElection | None:
        """Returns the epoch that was won by a transaction whose answer was lost, or None if it was not done. A
        controller elected since has raised the epoch: that is not ours, and its version would let us write in its name.
        """
        node = await self._session.read(znodes.CONTROLLER)
        if node is None or node.stat.ephemeral_owner != session_id:
            return None
        found, version = await self._read_epoch()
        return WonElection(epoch, version) if found == epoch else None

    async def _read_epoch(self) -> tuple[int, int]:
        """Reads the epoch of the last controller, and the version of its node; creates the node if need be."""
        data = znodes.encode_controller_epoch(_NO_EPOCH)
        node = await read_or_create(self._session, znodes.CONTROLLER_EPOCH, data)
        return znodes.decode_controller_epoch(node.data), node.stat.version
