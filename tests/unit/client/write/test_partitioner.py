from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.client.write.partitioner import PARTITIONERS, murmur2_columns
from core.records.byte_strings import ByteStrings
from tests.support.for_each import for_each
from tests.support.murmur2 import murmur2


@for_each(
    "key, hash_",
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, hash_: int) -> None:
    """Values of Kafka's own test (org.apache.kafka.common.utils.UtilsTest)."""
    assert murmur2(key) == hash_ & 0xFFFFFFFF
    keys, values = ByteStrings.of_list([key]), ByteStrings.of_list([b"v"])
    assert PARTITIONERS["murmur2"](7, 1000)(keys, values).tolist() == [(hash_ & 0x7FFFFFFF) % 7]


@for_each("name, is_hashed", [("murmur2", True), ("fnv1a_random", True), ("crc32", True), ("consistent_random", False)])
def test_an_empty_key_is_a_key_but_for_librdkafkas_default(name: str, is_hashed: bool) -> None:
    """All records of a key are in one partition; without one they spread."""
    keys, values = ByteStrings.of_list([b""] * 200), ByteStrings.of_list([b"v" * 100] * 200)
    partitions = set(PARTITIONERS[name](5, 1000)(keys, values).tolist())
    assert (len(partitions) == 1) == is_hashed


@for_each(
    "key, partitions, numbers",
    [
        (b"TT0124", 15, {"murmur2": 10, "crc32": 9}),  # tulios/kafkajs#1154
        (b"fd7af248-ce5c-46a5-93d7-1c0c9005b99d", 32, {"murmur2": 26, "crc32": 23, "fnv1a": 19}),  # node-rdkafka#817
        (b"42", 6, {"murmur2": 4, "crc32": 2, "fnv1a": 5, "hash-ref": 3}),  # Sarama's two differ
        (b"order-42", 12, {"murmur2": 0, "crc32": 10, "fnv1a": 8}),
        (b"\0\0\0\x2a", 6, {"murmur2": 0}),
        (b"", 10, {"murmur2": 1, "crc32": 0, "fnv1a": 5, "hash-ref": 3}),
    ],
)
def test_a_key_goes_where_other_clients_put_it(key: bytes, partitions: int, numbers: dict[str, int]) -> None:
    keys = ByteStrings.of_list([key])
    found = {name: PARTITIONERS[name](partitions, 1000)(keys, keys).tolist() for name in numbers}
    assert found == {name: [number] for name, number in numbers.items()}


@given(st.lists(st.binary(max_size=20)))
def test_columns_of_keys_hash_as_each_key_alone(keys: list[bytes]) -> None:
    assert murmur2_columns(ByteStrings.of_list(keys)).tolist() == [murmur2(key) for key in keys]
