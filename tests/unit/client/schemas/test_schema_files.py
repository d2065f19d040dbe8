"""Keys and values that are of a local schema throughout: files as strangers have them, with what they refer to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.client.schemas.named_schema import NamedSchema, open_named_schema
from core.client.schemas.schema_files import proto_imports
from core.client.schemas.undecoded import SchemaError
from core.common.errors import UsageError
from core.records.side_format import SideFormats
from tests.support.for_each import for_each

pytest.importorskip("fastavro")
WALLET = {
    "name": "CreateUserProfileWallet", "namespace": "Messaging.Contracts.WalletManager.Commands", "type": "record",
    "fields": [{"name": "CurrencyCode", "type": "string"}, {"name": "ExpiresOn", "type": ["null", "string"]}],
}  # fmt: skip
EUR = "0645555200"
SHOWN = {"CurrencyCode": "EUR", "ExpiresOn": None}


def write(folder: Path, **files: Any) -> None:
    """Files by their names, with __ for / and _ for the point."""
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def opened(schema: Path | str, format_: str | None = None) -> NamedSchema:
    return open_named_schema(SideFormats(value=format_, value_schema=str(schema)), "value", None)


def shown(schema: NamedSchema, data: str) -> Any:
    return json.loads(schema.decode(bytes.fromhex(data)))


@for_each(
    "data",
    [
        EUR,  # kafbat/kafka-ui#882
        "0000000000" + EUR,  # with an id in front: 0 of xk6-kafka#186, Confluent's, Apicurio's 8 bytes
        "000000001d" + EUR,
        "00000000000000000f" + EUR,
        "030089791762233641869674299b90a802e2" + EUR,  # AWS Glue's
        "c301420ebc36f808edcc" + EUR,  # a single object: edenhill/kcat#416
    ],
)
def test_avro(tmp_path: Path, data: str) -> None:
    write(tmp_path, wallet_avsc=WALLET)
    schema = opened(tmp_path / "wallet.avsc")
    assert shown(schema, data) == SHOWN
    assert schema.encode(b'{"CurrencyCode": "EUR"}').hex() == EUR


@for_each("data", ["c301420ebc36f808edcd" + EUR, "0645", "", "000000001d0645", "0300" + "00" * 16 + "06"])
def test_what_is_not_of_the_schema(tmp_path: Path, data: str) -> None:
    write(tmp_path, wallet_avsc=WALLET)
    with pytest.raises(SchemaError, match=r"^not of .*wallet\.avsc: ") as raised:
        shown(opened(tmp_path / "wallet.avsc"), data)
    assert raised.value.why


def test_what_fits_with_an_id_and_without_is_refused(tmp_path: Path) -> None:
    """The first of two branches, or an id, the second and its byte."""
    six, one = ({"type": "fixed", "name": f"F{size}", "size": size} for size in (6, 1))
    write(tmp_path, a_avsc=[six, one], b_avsc=[six], c_avsc='"bytes"')
    data = "0000000001" + "0278"
    with pytest.raises(SchemaError, match="for sure: it fits with and without the id in front"):
        shown(opened(tmp_path / "a.avsc"), data)
    assert shown(opened(tmp_path / "b.avsc"), data) == {"F6": "\0\0\0\1\2x"}
    assert shown(opened(tmp_path / "c.avsc"), "046162") == "ab", "Avro's own bytes have a length in front"


def test_avro_that_refers_to_other_files(tmp_path: Path) -> None:
    """By full name, by simple name, and in a file of another name; what these refer to as well."""
    write(
        tmp_path,
        order_avsc={
            "type": "record", "name": "Order", "namespace": "shop",
            "fields": [
                {"name": "lines", "type": {"type": "array", "items": "Line"}},
                {"name": "by", "type": ["null", "user.User"]},
            ],
        },
        Line_avsc={"type": "record", "name": "shop.Line", "fields": [{"name": "of", "type": "Good"}]},
        types_avsc={"type": "record", "name": "shop.Good", "fields": [{"name": "kind", "type": "shop.Kind"}]},
        zz_avsc={"type": "enum", "name": "Kind", "namespace": "shop", "symbols": ["A", "B"]},
        broken_avsc="{",
    )  # fmt: skip
    (tmp_path / "user.User.avsc").write_text('{"type": "fixed", "name": "user.User", "size": 1}')
    schema = opened(tmp_path / "order.avsc", "avro")
    assert shown(schema, "0202000278") == {"lines": [{"of": {"kind": "B"}}], "by": {"user.User": "x"}}
    (tmp_path / "zz.avsc").unlink()
    with pytest.raises(
        UsageError, match=r"types.avsc can't be used: no .avsc file beside it defines the type shop.Kind"
    ):
        opened(tmp_path / "order.avsc")


FILE = 'syntax = "proto3"; package p; message A { string a = 1; } message B { message C { int32 c = 1; } int64 b = 1; }'


def test_protobuf(tmp_path: Path) -> None:
    write(tmp_path, file_proto=FILE)
    path = tmp_path / "file.proto"
    for name, data, expected in (
        ("A", "0a0178", {"a": "x"}), ("p.B.C", "0805", {"c": 5}), ("B", "0805", {"b": "5"}),
        ("A", "00000000070402000805", {"c": 5}), ("B", "0000000007030a01410a0178", {"a": "x"}),
    ):  # fmt: skip
        schema = opened(f"{path}:{name}")
        assert shown(schema, data) == expected
    assert opened(path, "protobuf:B").encode(b'{"b": "5"}').hex() == "0805"
    for schema_text, format_, problem in (
        (str(path), None, "it has the messages A, B: say which, as in FILE:A"),
        (f"{path}:D", None, "there is no message D: the schema has A, B, B.C"),
        (f"{path}:A", "protobuf:B", "the format names message B, and schema .* another"),
        (str(path), "avro", "is of type PROTOBUF, and the format says AVRO"),
    ):
        with pytest.raises(UsageError, match=problem):
            opened(schema_text, format_)


def test_protobuf_that_imports_other_files(tmp_path: Path) -> None:
    """provectus/kafka-ui#3292: beside it; kafbat/kafka-ui#650: from the folder above, and the type of an Any."""
    write(
        tmp_path,
        wrappers_proto="""syntax = "proto3"; message StringValue { string value = 1; }
          message BytesValue { bytes value = 1; }""",
        someMessage_proto="""syntax = "proto3"; /* import "no.proto"; */ import "wrappers.proto";
          message SomeMessage { StringValue id = 1; string message = 2; string topic = 3; }""",
        above__common__main_proto="""syntax = "proto3"; import "google/protobuf/any.proto"; import 'common/more.proto';
          package common; message Main { string name = 1; google.protobuf.Any payload = 2; }""",
        above__common__more_proto='syntax = "proto3";',
        above__ref__referenced_proto='syntax = "proto3"; package ref; message R { string id = 1; }',
    )
    some = opened(tmp_path / "someMessage.proto", "protobuf:SomeMessage")
    assert shown(some, "0a040a026964120268691a0174") == {"id": {"value": "id"}, "message": "hi", "topic": "t"}
    main = opened(tmp_path / "above" / "common" / "main.proto")
    data = "0a016e121e0a16742e676f6f676c65617069732e636f6d2f7265662e5212040a026964"
    assert shown(main, data) == {"name": "n", "payload": {"@type": "t.googleapis.com/ref.R", "id": "id"}}
    write(tmp_path, above__broken_proto="no proto")
    assert shown(opened(tmp_path / "above" / "common" / "main.proto"), "0a016e")["name"] == "n"
    write(tmp_path, lone_proto='syntax = "proto3"; import "none.proto"; message A {}')
    with pytest.raises(UsageError, match=r"lone.proto can't be used: it imports 'none.proto', which is neither below"):
        opened(tmp_path / "lone.proto")


def test_a_descriptor_set(tmp_path: Path) -> None:
    write(tmp_path, file_proto=FILE, b_proto='syntax = "proto3"; import "file.proto"; message D { p.A a = 1; }')
    out = tmp_path / "all.desc"
    options = [f"-I{tmp_path}", "--include_imports", f"--descriptor_set_out={out}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, "b.proto"], check=True)
    assert shown(opened(out), "0a030a0178") == {"a": {"a": "x"}}
    assert shown(opened(f"{out}:p.B.C"), "0805") == {"c": 5}
    for text, problem in ((f"{out}:E", "no file in it has a message E"), (f"{out}:A.b", "no file in it has a message")):
        with pytest.raises(UsageError, match=problem):
            opened(text)
    out.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="it is no descriptor set of protoc"):
        opened(out)


def test_json_schema(tmp_path: Path) -> None:
    write(
        tmp_path,
        order_json={"$id": "http://nowhere/order.json", "properties": {"leg": {"$ref": "legs/leg.json#/$defs/l"}}},
        legs__leg_json={"$defs": {"l": {"type": "object", "required": ["to"]}}},
    )  # fmt: skip
    schema = opened(tmp_path / "order.json")
    text = b'{"leg": {"to": 1}}'
    assert schema.decode(text) == schema.encode(text) == schema.decode(b"\0\0\0\0\7" + text) == text
    with pytest.raises(ValueError, match="'to' is a required property"):
        schema.encode(b'{"leg": {}}')
    write(tmp_path, up_json={"$ref": "../other.json"})
    with pytest.raises(UsageError, match=r"refers to .*, which is not below"):
        opened(tmp_path / "up.json")


@for_each(
    "name, content, problem",
    [
        ("a.avsc", "{", "not JSON"), ("a.json", "{", "not JSON"), ("a.avsc", " ", "is empty"),
        ("a.json", '{"$ref": "a.json"}', "refers to itself"),
        ("a.avsc", '{"type": "record"}', "can't be used"),
        ("a.proto", "message A {", "can't be used"), ("a.json", '{"type": 5}', "no JSON Schema"),
    ],
)  # fmt: skip
def test_files_that_are_no_schema(tmp_path: Path, name: str, content: str, problem: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=problem):
        opened(tmp_path / name)


def test_imports_of_a_file() -> None:
    text = """syntax = "proto3"; // import "a.proto";
      import public "b.proto"; import\tweak 'c/d.proto' ; /* import "e.proto";
      */ import "b.proto"; option x = "import";"""
    assert proto_imports(text) == ["b.proto", "c/d.proto"]


def test_fifos_among_the_files_are_left_alone(tmp_path: Path) -> None:
    """Whoever opens one waits for a writer."""
    write(tmp_path, a_avsc={"type": "record", "name": "R", "fields": [{"name": "e", "type": "E"}]})
    write(tmp_path, p_proto='syntax = "proto3"; import "google/protobuf/any.proto"; message M { string s = 1; }')
    write(tmp_path, others_avsc={"type": "enum", "name": "E", "symbols": ["A"]})
    for name in ("E.avsc", "fifo.avsc", "fifo.proto"):
        os.mkfifo(tmp_path / name)
    assert shown(opened(tmp_path / "a.avsc"), "00") == {"e": "A"}
    assert shown(opened(tmp_path / "p.proto"), "0a0178") == {"s": "x"}


@for_each("name", ["-dash.proto", "@file.proto"])
def test_names_of_files_are_no_options_of_protoc(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('syntax = "proto3"; message M { string s = 1; }')
    assert shown(opened(tmp_path / name), "0a0178") == {"s": "x"}
