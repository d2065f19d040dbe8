"""What holds of every .proto file and every message: both forms give equal bytes; tagged is Protobuf's own JSON."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from google.protobuf import json_format, message_factory

from core.client.schemas.protobuf_json import ProtobufJson
from core.client.schemas.schema_id import encode_indexes
from tests.support.for_each import for_each
from tests.support.random_protobuf import fill, random_file


def forms(made: ProtobufJson, message: Any, indexes: list[int], pool: Any) -> None:
    """Checks a message in both forms."""
    written = message.SerializeToString(deterministic=True)
    data = encode_indexes(indexes) + written
    tagged, plain = made.decode_typed(data)
    for text in (tagged, plain):
        assert made.encode(text, indexes=indexes) == written, text
    try:
        own = own_json(message, pool)
    except (TypeError, json_format.Error):
        return  # it has none for this message
    if "paths" not in tagged.decode():
        assert list(json.loads(tagged).items()) == list(own.items())
    if "paths" not in tagged.decode() and "NULL_VALUE" not in str(message):  # which it writes in lists, and refuses
        assert own_json(json_format.Parse(plain, type(message)(), descriptor_pool=pool), pool) == own


def own_json(message: Any, pool: Any) -> dict[str, Any]:
    found: dict[str, Any] = json_format.MessageToDict(
        message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True, descriptor_pool=pool
    )
    return found


def check_file(seed: int, messages: int) -> None:
    random = Random(seed)
    made = ProtobufJson([], random_file(random, "proto3" if seed % 2 else "proto2"))
    pool = made._pool
    for one in made.messages():
        for _ in range(messages):
            message = find(pool, f"p.q.{one.name}")
            fill(random, message, lambda name: find(pool, name))
            forms(made, message, list(one.indexes), pool)


def find(pool: Any, name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()


def add_unknown(random: Random, message: Any) -> None:
    """Adds fields of a newer schema to some of the messages in it: by Protobuf's encoding of fields 20000 and 20001."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        is_map = field.message_type.GetOptions().map_entry
        if is_map and field.message_type.fields_by_name["value"].message_type is None:
            continue
        parts = list(value.values()) if is_map else list(value) if field.is_repeated else [value]
        for part in parts:
            add_unknown(random, part)
    if random.random() < 0.4:
        message.MergeFromString(random.choice((b"\x80\xe2\x09\x05", b"\x8a\xe2\x09\x02hi", b"\x85\xe2\x09abcd")))


@for_each("seed", range(1000, 1040), first=1)
def test_fields_of_a_newer_schema_are_kept(seed: int) -> None:
    random = Random(seed)
    made = ProtobufJson([], random_file(random, "proto3" if seed % 2 else "proto2"))
    pool, tried = made._pool, 0
    for one in made.messages():
        for _ in range(8):
            message = find(pool, f"p.q.{one.name}")
            fill(random, message, lambda name: find(pool, name))
            add_unknown(random, message)
            written = message.SerializeToString(deterministic=True)
            texts = made.decode_typed(encode_indexes(one.indexes) + written)
            for text in texts:
                assert made.encode(text, indexes=one.indexes) == written, text
            tried += b"[not_decoded]" in texts[0]
    assert tried or len(made.messages()) < 3


@for_each("seed", range(60), first=2)
def test_both_forms_give_equal_bytes(seed: int) -> None:
    check_file(seed, 8)
