"""Blocks of producer ids, which a scripted controller gives out."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from core.broker.coordinators.producer_ids import ProducerIdBlocks
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.controller_request import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.support.scripted_controller import ScriptedController, channel_to

NODE_ID, EPOCH = 7, 70


class Blocks:
    """Of 10 ids each; before each of them come the errors that are left."""

    def __init__(self, *errors: ErrorCode) -> None:
        self._numbers = count()
        self._errors = list(errors)

    def __call__(self, _: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        if self._errors:  # NONE stands for an empty block
            return AllocateProducerIdsResponse(error_code=self._errors.pop(0))
        return AllocateProducerIdsResponse(producer_id_start=next(self._numbers) * 10, producer_id_len=10)


def blocks_of(controller: ScriptedController) -> ProducerIdBlocks:
    return ProducerIdBlocks(channel_to(controller.find), node_id=NODE_ID, broker_epoch=lambda: EPOCH)


async def until_there(blocks: ProducerIdBlocks) -> None:
    while blocks._block is None:
        await asyncio.sleep(0)


async def test_a_block_is_always_there_in_advance() -> None:
    async with ScriptedController(Blocks()) as controller:
        blocks = blocks_of(controller)
        blocks.begin()
        blocks.begin()
        for number in range(3):
            await until_there(blocks)
            assert blocks.take() == range(number * 10, number * 10 + 10)
        await until_there(blocks)
        assert controller.asked == [AllocateProducerIdsRequest(NODE_ID, EPOCH)] * 4
        await blocks.close()


async def test_ids_are_those_of_one_block_after_the_other() -> None:
    async with ScriptedController(Blocks()) as controller:
        blocks, ids = blocks_of(controller), []
        blocks.begin()
        for _ in range(15):
            await until_there(blocks)
            ids.append(blocks.next(None, None))
        assert ids == list(range(15))
        await blocks.close()


async def test_until_the_controller_answers_clients_are_to_ask_again() -> None:
    async with ScriptedController(lambda _: None) as controller:
        blocks = blocks_of(controller)
        for _ in range(2):  # the first one has it asked for
            with pytest.raises(KafkaError) as refused:
                blocks.take()
            assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await controller.was_asked(1)
        await blocks.close()
        assert len(controller.asked) == 1


async def test_a_block_that_is_refused_is_asked_for_again() -> None:
    errors = [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]
    async with ScriptedController(Blocks(*errors)) as controller:
        blocks = blocks_of(controller)
        blocks.begin()
        await until_there(blocks)
        assert blocks.take() == range(10)
        await blocks.close()


async def test_a_closed_channel_ends_it() -> None:
    async with ScriptedController(lambda _: None) as controller:
        blocks = blocks_of(controller)
        blocks.begin()
        await controller.was_asked(1)
        task = blocks._errand._task
        assert task is not None
        blocks._channel.close()
        await task
        await blocks.close()
