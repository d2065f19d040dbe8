"""The producers of one partition as their snapshot holds them, packed while batches are appended.

A roll writes a snapshot of all producers, and appends wait meanwhile. Packing 100,000 of them takes 150 ms; writing
packed ones takes 5. So a producer that changed is packed together with a thousand others, soon after it changed; one
that writes all the time is among the changed ones all the time, and is packed once.
"""

from __future__ import annotations

from core.files.producer_snapshot import ENTRY_BYTES, format_producer_snapshot, pack_producer
from core.log.producer_state import ProducerState

_MOST_CHANGED = 1024


class PackedProducers:
    """Owned by one task (the partition log's).

    I1 a producer that was packed has a slot of its own, and its `slot` says which
    I2 a slot holds its producer as it is, unless the producer is among those that changed
    """

    def __init__(self) -> None:
        self._packed = bytearray()
        self._by_slot: list[ProducerState] = []
        self._changed: dict[ProducerState, None] = {}  # in their order, so that equal logs have equal snapshots

    def note_change(self, state: ProducerState) -> None:
        """Is called when the producer is new, or another than it was."""
        self._changed[state] = None
        if len(self._changed) >= _MOST_CHANGED:
            self._pack()

    def remove(self, state: ProducerState) -> None:
        """Forgets the producer; the last one takes its slot."""
        self._changed.pop(state, None)
        slot, state.slot = state.slot, None
        if slot is None:
            return
        last = self._by_slot.pop()
        if last is not state:
            self._by_slot[slot], last.slot = last, slot
            self._packed[slot * ENTRY_BYTES : (slot + 1) * ENTRY_BYTES] = self._packed[-ENTRY_BYTES:]
        del self._packed[-ENTRY_BYTES:]

    def snapshot(self) -> bytes:
        """Returns the content of a `.snapshot` file."""
        self._pack()
        return format_producer_snapshot(self._packed)

    def _pack(self) -> None:
        for state in self._changed:
            if state.slot is None:
                state.slot = len(self._by_slot)
                self._by_slot.append(state)
                self._packed += bytes(ENTRY_BYTES)
            pack_producer(state.to_snapshot(), self._packed, state.slot * ENTRY_BYTES)
        self._changed.clear()

    def check_invariants(self) -> None:
        assert len(self._packed) == len(self._by_slot) * ENTRY_BYTES
        for slot, state in enumerate(self._by_slot):
            assert state.slot == slot
            if state not in self._changed:
                expected = bytearray(ENTRY_BYTES)
                pack_producer(state.to_snapshot(), expected, 0)
                assert self._packed[slot * ENTRY_BYTES : (slot + 1) * ENTRY_BYTES] == expected
