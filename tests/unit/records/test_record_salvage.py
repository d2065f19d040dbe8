"""Records of a damaged section: which are given is worked out from where each record was written."""

from __future__ import annotations

from itertools import accumulate
from random import Random

from core.inspector.recover.salvage import FoundRecord, Section, find_holes, find_records
from core.records.record import Record, encode_record
from tests.support.for_each import for_each

SECTOR = 512


class Written:
    """A section of `count` records, and where each of them lies."""

    def __init__(self, random: Random, count: int = 80, *, first: int = 0, step: int = 1) -> None:
        self.records: dict[int, Record] = {}
        for number in range(count):
            key = None if number % 5 == 0 else b"k%d" % number
            value = random.choice((None, b"", random.randbytes(300), b'{"n": %d}' % number * random.randint(1, 40)))
            headers = ((b"h", b"v"), (b"h", None)) if number % 3 == 0 else ()
            delta = first + number * step
            self.records[delta] = Record(delta, 1000 + number, key, value, headers)
        parts = [encode_record(delta, r.timestamp - 1000, *r[2:]) for delta, r in self.records.items()]
        ends = list(accumulate(map(len, parts)))
        self.data = b"".join(parts)
        self.places = dict(zip(self.records, zip([0, *ends], ends, strict=False), strict=True))
        self.last_delta = max(self.records)

    def outside(self, holes: list[tuple[int, int]]) -> set[int]:
        """The records of which no byte lies in them."""
        return {
            delta
            for delta, (start, end) in self.places.items()
            if not any(first < end and start < last for first, last in holes)
        }

    def ensure_right(self, found: list[FoundRecord]) -> set[int]:
        for one in found:
            record = self.records[one.offset_delta]
            assert one[3:] == (record.timestamp - 1000, *record[2:]), one
            assert (one.start, one.end) == self.places[one.offset_delta]
        return {one.offset_delta for one in found}


def search(data: bytes, last_delta: int | None, **fields: object) -> list[FoundRecord]:
    return list(find_records(Section(data, 0, len(data), find_holes(data), last_delta=last_delta, **fields)))  # type: ignore[arg-type]


def zeroed(data: bytes, *holes: tuple[int, int]) -> bytes:
    result = bytearray(data)
    for start, end in holes:
        result[start:end] = bytes(end - start)
    return bytes(result)


@for_each("size", [SECTOR, 8 * SECTOR])
def test_all_records_outside_a_hole_are_given_and_none_in_it(size: int) -> None:
    random = Random(size)
    written = Written(random)
    for _ in range(15):
        start = random.randrange(len(written.data) - size)
        holes = [(start, start + size)]
        given = written.ensure_right(search(zeroed(written.data, *holes), written.last_delta))
        assert given >= written.outside(holes)


def test_records_between_two_holes_are_given() -> None:
    random = Random(2)
    written = Written(random)
    for _ in range(8):
        start, end = sorted(
            random.sample(range(0, len(written.data) - SECTOR, 8 * SECTOR), 2)
        )  # with some records between
        holes = [(start, start + SECTOR), (end, end + SECTOR)]
        given = written.ensure_right(search(zeroed(written.data, *holes), written.last_delta))
        assert given >= written.outside(holes)


def test_a_section_whose_beginning_is_lost_is_read_from_its_end() -> None:
    written = Written(Random(3))
    data = zeroed(written.data, (0, SECTOR))
    given = written.ensure_right(search(data, None, has_start=False))
    assert given >= written.outside([(0, SECTOR)])


def test_a_section_that_is_cut_off_is_read_to_the_cut() -> None:
    written = Written(Random(4))
    for cut in range(len(written.data) - 700, len(written.data), 41):
        given = written.ensure_right(search(written.data[:cut], written.last_delta, is_cut=True))
        assert given == written.outside([(cut, len(written.data))])


def test_records_of_a_batch_that_was_cleaned_are_found() -> None:
    written = Written(Random(5), first=3, step=4)
    hole = (len(written.data) // 2, len(written.data) // 2 + SECTOR)
    data = zeroed(written.data, hole)
    assert written.ensure_right(search(data, written.last_delta + 7, is_thinned=True)) >= written.outside([hole])


def test_a_value_that_holds_records_is_not_taken_apart() -> None:
    """Its records go on to the end of the value, and that is not the batch's."""
    inner = Written(Random(6), count=40).data
    parts = [encode_record(delta, 0, None, inner) for delta in range(4)]
    data = b"".join(parts)
    hole = (len(parts[0]) - 100, len(parts[0]) + SECTOR)  # the beginning of the second one is lost
    found = search(zeroed(data, hole), 3)
    assert [(one.offset_delta, one.value == inner) for one in found] == [(2, True), (3, True)]


@for_each("size", [3, SECTOR])
def test_what_garbage_breaks_is_passed_over(size: int) -> None:
    """Where garbage lies is not known: a value that holds all of it is given, as are those before and after it."""
    random = Random(size)
    written = Written(random)
    for _ in range(8):
        start = random.randrange(len(written.data) - size)
        data = written.data[:start] + random.randbytes(size) + written.data[start + size :]
        given = {one.offset_delta for one in search(data, written.last_delta)}
        assert given >= written.outside([(start, start + size)])


def test_numbers_that_make_no_sense_end_quietly() -> None:
    for seed in range(50):
        random = Random(seed)
        search(random.randbytes(3000), random.choice((None, 5)), has_start=random.random() < 0.5)


@for_each("fill", [b"\x0c\0", b"\x80\x01\0", b"\x0c\0\0\0\1\1\0"])
def test_the_search_takes_no_more_time_than_there_are_bytes(fill: bytes) -> None:
    """Each beginning of a chain is followed once."""
    data = fill * (20_000 // len(fill)) + b"\xff"
    assert search(data, None, has_start=False) == []
