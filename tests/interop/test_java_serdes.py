"""Java's serializers are the judges: what they write is read, and written back to equal bytes; what plog writes, they
read as the same value. Schemas and values are random, of Avro and of Protobuf.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.protobuf import message_factory

from core.client.schemas.avro_json import AvroJson
from core.client.schemas.protobuf_json import ProtobufJson
from core.client.schemas.schema_id import encode_indexes
from core.client.schemas.schema_registry import SchemaEncoder, SchemaRegistry
from core.client.schemas.undecoded import SchemaError
from core.records.record import Headers
from core.records.side_format import SchemaJson
from tests.support.java_serdes import JavaSerdes, descriptors, requires_serdes
from tests.support.other_registries import ApicurioServer, GlueServer
from tests.support.random_avro import RandomAvro
from tests.support.random_protobuf import fill, random_file
from tests.support.schema_registry import SchemaRegistryServer

pytestmark = [requires_serdes, pytest.mark.java]

SEEDS = 25
APICURIO = "io.apicurio.registry.serde"
GLUE = "com.amazonaws.services.schemaregistry"
PLAIN, TAGGED = SchemaJson.plain, SchemaJson.tagged
WHICH = "say which with --schema-json tagged"


@pytest.fixture(scope="module")
def apicurio() -> Iterator[JavaSerdes]:
    with JavaSerdes("apicurio") as found:
        yield found


@pytest.fixture(scope="module")
def registry() -> Iterator[ApicurioServer]:
    with ApicurioServer() as server:
        yield server


def settings(registry: ApicurioServer, version: int, **more: str) -> dict[str, str]:
    named = {f"apicurio.registry.{name.replace('__', '.').replace('_', '-')}": value for name, value in more.items()}
    return {
        "apicurio.registry.url": registry.url(version), "apicurio.registry.auto-register": "true",
        "apicurio.registry.serde.validation-enabled": "false", **named,
    }  # fmt: skip


LEGACY = f"{APICURIO}.Legacy8ByteIdHandler"
PROTO_FILES = 4
FRAMES: list[tuple[str, int, dict[str, str]]] = [
    ("", 3, {}),
    ("", 3, {"headers__enabled": "true"}),
    ("?id=globalId", 3, {"use_id": "globalId"}),
    ("", 2, {"use_id": "globalId", "id_handler": LEGACY}),
    ("", 2, {"use_id": "globalId", "headers__enabled": "true"}),
]
"""The URL's query, the API, and the serializer's settings."""


def record_of(schema: Any) -> Any:
    """The same bytes as of a record, which alone may be a value of Java's."""
    if isinstance(schema, dict) and schema["type"] == "record":
        return schema
    return {"type": "record", "name": "n.Top", "fields": [{"name": "v", "type": schema}]}


def without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_logical(part) for name, part in schema.items() if name != "logicalType"}
    return [without_logical(part) for part in schema] if isinstance(schema, list) else schema


def written(encoder: SchemaEncoder, text: bytes | None, side_headers: Headers) -> bytes:
    """As produce writes them: with a header if the record came with one."""
    assert text is not None
    if side_headers:
        assert encoder.headers
        return encoder.bare(text)
    found = encoder(text)
    assert found is not None
    return found


def or_refused(encoder: SchemaEncoder, plain: bytes | None, headers: Headers) -> bytes | None:
    """The same, or None if two readings fit."""
    try:
        return written(encoder, plain, headers)
    except SchemaError as error:
        if WHICH not in str(error):
            raise
        return None


def test_avro_of_apicurio(registry: ApicurioServer, apicurio: JavaSerdes, tmp_path: Path) -> None:
    """plog registers the schemas: of those that refer to themselves Java's serializer can't."""
    for seed in range(SEEDS):
        made = RandomAvro(Random(seed))
        schema = json.dumps(record_of(made.schema))
        query, version, more = FRAMES[seed % len(FRAMES)]
        own = settings(registry, version, auto_register="false", find_latest="true", **more)
        config = {"config": own, "schema": schema, "topic": f"a{seed}"}
        registries = {form: SchemaRegistry(registry.url(version) + query, form=form) for form in SchemaJson}
        (tmp_path / "s.avsc").write_text(schema)
        registries[TAGGED].encoder(str(tmp_path / "s.avsc"), f"a{seed}", "value")
        for datum in made.data(3):
            value, headers = apicurio.serialize(
                "avro", datum.data, **{"class": f"{APICURIO}.avro.AvroKafkaSerializer"}, **config
            )
            tagged = registries[TAGGED].decode(value, headers=headers)
            encoder = registries[TAGGED].encoder(None, f"a{seed}", "value")
            assert encoder is not None
            assert written(encoder, tagged, headers) == value, (seed, tagged)
            if headers:
                assert sorted(encoder.headers) == sorted(headers)
            reader = {"class": f"{APICURIO}.avro.AvroKafkaDeserializer", **config}
            plain = registries[PLAIN].decode(value, headers=headers)
            again = registries[PLAIN].encoder(None, f"a{seed}", "value")
            assert again is not None
            found = or_refused(again, plain, headers)
            if found is not None:
                expected = apicurio.deserialize("avro", value, headers, **reader)
                assert apicurio.deserialize("avro", found, again.headers if headers else (), **reader) == expected


def same(one: Any, other: Any) -> bool:
    """Numbers are the same if they are the same float: Java shows those with fewer digits."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(part, other[name]) for name, part in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and one != other:
        return struct.pack("<f", one) == struct.pack("<f", other)
    return bool(one == other)


def test_avros_tagged_json_is_javas(apicurio: JavaSerdes) -> None:
    """Of types without decimals, which plog shows as numbers."""
    for seed in range(1000, 1000 + SEEDS):
        made = RandomAvro(Random(seed))
        schema = without_logical(record_of(made.schema))
        avro, more = AvroJson(schema, {}), {"schema": json.dumps(schema)}
        for datum in made.data(3):
            java = apicurio.ask("json", "avro", datum.data, **more)["json"]
            tagged = avro.decode(datum.data)
            assert same(json.loads(java or "{}"), json.loads(tagged)), (seed, schema, java, tagged)
            if b'NaN"' not in tagged and b'Infinity"' not in tagged:  # which Java writes so, and does not read
                again = apicurio.bytes_of("parse", "avro", text=tagged.decode(), **more)
                assert same(json.loads(avro.decode(again)), json.loads(tagged)), (seed, tagged)


SERIALIZER = {"class": f"{APICURIO}.protobuf.ProtobufKafkaSerializer"}
DESERIALIZER = {"class": f"{APICURIO}.protobuf.ProtobufKafkaDeserializer"}
NESTED = {
    "type": "record", "name": "a.Trip", "fields": [
        {"name": "legs", "type": {"type": "array", "items": {"type": "record", "name": "Leg", "fields": [
            {"name": "to", "type": {"type": "fixed", "name": "b.Code", "size": 3}},
            {"name": "kind", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["AIR", "SEA"]}]},
        ]}}},
        {"name": "home", "type": "b.Code"},
    ],
}  # fmt: skip
PARTS = {"q/leg.proto": 'syntax = "proto3"; package q; message Leg { string to = 1; }'}
TRIP = """syntax = "proto3"; package p; import "q/leg.proto";
message Trip { repeated q.Leg legs = 1; map<string, q.Leg> by = 2; }"""


def test_what_java_registers_with_references(registry: ApicurioServer, apicurio: JavaSerdes, tmp_path: Path) -> None:
    """Java makes a schema of each named type of Avro, and of each import; plog registers files with theirs."""
    datum = b"\2SFO\2\2\0JFK"
    config = {"config": settings(registry, 3), "topic": "trip"}
    read = SchemaRegistry(registry.url(3))
    value, _ = apicurio.serialize(
        "avro", datum, schema=json.dumps(NESTED), **config, **{"class": f"{APICURIO}.avro.AvroKafkaSerializer"}
    )
    shown = {"legs": [{"to": "SFO", "kind": {"a.Kind": "SEA"}}], "home": "JFK"}
    text = read.decode(value)
    assert json.loads(text or b"") == shown
    assert registry.contents[-1][2], "with references"
    encoder = read.encoder("trip-value", "t", "value")
    assert encoder is not None
    assert written(encoder, text, ()) == value
    for name, part in {**PARTS, "trip.proto": TRIP}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(part)
    message = b"\n\5\n\3SFO\x12\x0a\n\1h\x12\5\n\3JFK"
    asked = {"files": descriptors(tmp_path, "trip.proto"), "message": "Trip", **config, "topic": "ptrip"}
    value, _ = apicurio.serialize("protobuf", message, **asked, **SERIALIZER)
    text = read.decode(value)
    assert json.loads(text or b"") == {"legs": [{"to": "SFO"}], "by": {"h": {"to": "JFK"}}}
    own = read.encoder(str(tmp_path / "trip.proto"), "own", "value")
    assert own is not None
    assert written(own, text, ())[5:] == value[5:]


def without_zeros(value: Any) -> Any:
    if isinstance(value, list):
        return [without_zeros(part) for part in value]
    if not isinstance(value, dict):
        return value
    parts = {name: without_zeros(part) for name, part in value.items()}
    return {name: part for name, part in parts.items() if part not in (0, "", "0", [], {}, None)}


class Files:
    """One random .proto file and its descriptors."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        text = random_file(self.random, "proto3" if seed % 2 else "proto2")
        folder.mkdir()
        (folder / "random.proto").write_text(text)
        self.asked = {"files": descriptors(folder, "random.proto")}
        self.json = ProtobufJson([], text)
        self.names = [one.name for one in self.json.messages() if not one.name.endswith("Entry")]  # those of maps

        self.indexes = {one.name: one.indexes for one in self.json.messages()}

    def shown(self, name: str, message: bytes) -> Any:
        """The JSON without zeros: of proto3's optional fields Java's parser of .proto files forgets the presence."""
        return without_zeros(json.loads(self.json.decode(encode_indexes(self.indexes[name]) + message)))

    def message(self, name: str) -> bytes:
        def find(name: str) -> Any:
            pool = self.json._pool
            return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()

        message = find(f"p.q.{name}")
        fill(self.random, message, find)
        return bytes(message.SerializeToString(deterministic=True))


def test_protobuf_of_apicurio(registry: ApicurioServer, apicurio: JavaSerdes, tmp_path: Path) -> None:
    """Messages are named in front of their bytes, and in headers."""
    registries = {form: SchemaRegistry(registry.url(3), form=form) for form in SchemaJson}
    for seed in range(PROTO_FILES):
        files = Files(tmp_path / str(seed), seed)
        config = settings(registry, 3, **({"headers__enabled": "true"} if seed % 3 == 0 else {}))
        for name in files.names:
            asked = {**files.asked, "config": config, "message": name, "topic": f"p{seed}"}
            message = files.message(name)
            value, headers = apicurio.serialize("protobuf", message, **asked, **SERIALIZER)
            if "." in name and sum(one.endswith(f".{name.rpartition('.')[2]}") for one in files.names) > 1:
                with pytest.raises(SchemaError, match=f"{name.rpartition('.')[2]} may be any of"):
                    registries[TAGGED].decode(value, headers=headers)
                continue
            for read in registries.values():
                text = read.decode(value, headers=headers)
                encoder = read.encoder(f"p{seed}-value:{name}", "t", "value")
                assert encoder is not None
                assert written(encoder, text, headers) == value, (seed, name, text)
                assert set(encoder.headers) <= set(headers) or not headers
            if "." not in name:  # Java's deserializer does not find others
                again = apicurio.deserialize("protobuf", value, encoder.headers, **asked, **DESERIALIZER)
                assert files.shown(name, again) == files.shown(name, message)


def test_protobuf_of_confluents_bytes(registry: ApicurioServer, apicurio: JavaSerdes, tmp_path: Path) -> None:
    """Any message of a file, by its indexes; a first message as 2 0, which Confluent's serializers write as 0."""
    more = {"serde__send_indexes": "true", "serde__send_type_ref": "false"}
    for seed in range(100, 100 + PROTO_FILES):
        files = Files(tmp_path / str(seed), seed)
        with SchemaRegistryServer() as confluent:
            registries = {form: SchemaRegistry(confluent.url, form=form) for form in SchemaJson}
            for name in files.names:
                asked = {**files.asked, "message": name, "topic": f"c{seed}"}
                message = files.message(name)
                value, _ = apicurio.serialize(
                    "protobuf", message, config=settings(registry, 3, **more), **asked, **SERIALIZER
                )
                confluent.post(
                    ["subjects", "t-value", "versions"],
                    {"schema": registry.contents[-1][0], "schemaType": "PROTOBUF"},
                )
                for read in registries.values():
                    text = read.decode(b"\0\0\0\0\1" + value[5:])
                    encoder = read.encoder(f"t-value:{name}", "t", "value")
                    assert encoder is not None
                    found = written(encoder, text, ())
                    assert found[5:] == (value[5:] if name != files.names[0] else b"\0" + value[7:]), (seed, name, text)


def test_protobufs_tagged_json_is_read_by_java(apicurio: JavaSerdes, tmp_path: Path) -> None:
    """By its own JSON mapping, but for what that has no text for."""
    tried = 0
    for seed in range(200, 204 + PROTO_FILES):
        files = Files(tmp_path / str(seed), seed)
        for name in files.names:
            message, indexes = files.message(name), encode_indexes(files.indexes[name])
            text = files.json.decode(indexes + message)
            if any(mark in text.decode() for mark in ('"seconds"', '"paths"', "not_decoded", "[p.q.")):
                continue
            tried += 1
            found = apicurio.bytes_of("parse", "protobuf", text=text.decode(), message=name, **files.asked)
            assert json.loads(files.json.decode(indexes + found)) == json.loads(text)
    assert tried > PROTO_FILES


# --- AWS Glue


@pytest.fixture(scope="module")
def glue() -> Iterator[JavaSerdes]:
    with JavaSerdes("glue") as found:
        yield found


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[GlueServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "marked")
    with GlueServer() as server:
        yield server


def glue_cases(folder: Path, seed: int) -> Iterator[tuple[str, str, bytes, dict[str, Any], str]]:
    """The type, the format's name for Java, the data, what Java needs to know, and the message."""
    schema = json.dumps(record_of(RandomAvro(Random(seed)).schema))
    made = RandomAvro(Random(seed))
    yield "AVRO", "avro", next(made.data(1)).data, {"schema": schema}, ""
    yield "JSON", "glue-json", b'{"n":1}', {"schema": JSON_SCHEMA}, ""
    files = Files(folder / str(seed), seed)
    for name in files.names:
        yield "PROTOBUF", "protobuf", files.message(name), {**files.asked, "message": name}, f":{name}"


def test_glue(aws: GlueServer, glue: JavaSerdes, tmp_path: Path) -> None:
    """What Java registers and writes is read and written back; what plog registers and writes is read by Java."""
    registries = {form: SchemaRegistry(aws.url(), form=form) for form in SchemaJson}
    for seed in range(PROTO_FILES):
        compression = "ZLIB" if seed % 3 == 0 else "NONE"
        for kind, format_, data, asked, message in glue_cases(tmp_path, seed):
            topic = f"{kind}{seed}"
            config = {
                "region": "eu-west-1", "endpoint": aws.address, "schemaAutoRegistrationEnabled": "true",
                "compression": compression, "dataFormat": kind, "avroRecordType": "GENERIC_RECORD",
                "protobufMessageType": "DYNAMIC_MESSAGE",
            }  # fmt: skip
            own = {**asked, "config": config, "topic": topic}
            writer = {**own, "class": f"{GLUE}.serializers.GlueSchemaRegistryKafkaSerializer"}
            reader = {**own, "class": f"{GLUE}.deserializers.GlueSchemaRegistryKafkaDeserializer"}
            value, _ = glue.serialize(format_, data, **writer)
            expected = glue.deserialize(format_, value, **reader)
            for form, registry in registries.items():
                text = registry.decode(value)
                encoder = registry.encoder(topic + message, topic, "value")
                assert encoder is not None
                found = or_refused(encoder, text, ()) if form is PLAIN else written(encoder, text, ())
                if found is None:
                    continue
                assert found[2:18] == value[2:18], "the same version"
                if compression == "NONE" and not (kind == "AVRO" and form is PLAIN):
                    assert found == value, (seed, text)
                assert glue.deserialize(format_, found, **reader) == expected
            if kind == "PROTOBUF":
                continue
            file = tmp_path / ("s.avsc" if kind == "AVRO" else "s.json")
            file.write_text(asked["schema"])
            own_encoder = registries[TAGGED].encoder(str(file), f"own-{topic}", "value")
            assert own_encoder is not None
            tagged = registries[TAGGED].decode(value)
            assert glue.deserialize(format_, written(own_encoder, tagged, ()), **reader) == expected


JSON_SCHEMA = (
    '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"n":{"type":"integer"}}}'
)
