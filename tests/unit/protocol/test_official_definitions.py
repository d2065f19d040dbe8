"""plog's message tables against Kafka's own message definitions, field by field."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import Any

import pytest

from core.protocol import schema as schema_package
from core.protocol.message import Field, VersionRange, schema_of
from core.protocol.schema import (
    group_records,
    metadata_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)
from tests.support.oracle import KAFKA39_VERSION, KAFKA_VERSION, message_definition, requires_kafka, requires_kafka39
from tests.support.protocol_document import BETWEEN_BROKERS

pytestmark = [requires_kafka, pytest.mark.java, pytest.mark.longer]

CLIENTS = [
    module
    for _, name, _ in pkgutil.iter_modules(schema_package.__path__, f"{schema_package.__name__}.")
    if not name.endswith("_records") or name.endswith("control_records")
    if (module := importlib.import_module(name))
]
BETWEEN = [cls for api in BETWEEN_BROKERS for cls in (api.request, api.response)]
FILE_NAMES = {"ZkMigrationStateRecord": "ZkMigrationRecord"}


def messages(module: Any) -> list[type]:
    """The whole messages of a module: structs have no versions of their own."""
    return [
        cls
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and schema_of(cls).valid != VersionRange.parse("0+")
    ]


CASES = [
    *((cls, "kafka-clients", "common/message") for module in CLIENTS for cls in messages(module) if cls not in BETWEEN),
    *((cls, "kafka-metadata", "common/metadata") for cls in messages(metadata_records)),
    *((cls, "kafka-group-coordinator", "common/message") for cls in messages(group_records)),
    *((cls, "kafka-group-coordinator", "common/message") for cls in messages(share_group_records)),
    *((cls, "kafka-group-coordinator", "common/message") for cls in messages(streams_group_records)),
    *((cls, "kafka-transaction-coordinator", "common/message") for cls in messages(transaction_records)),
    *((cls, "kafka-share-coordinator", "common/message") for cls in messages(share_state_records)),
]


def test_tables_are_kafkas() -> None:
    wrong = [text for cls, jar, folder in CASES if (text := said_of(cls, jar, folder, KAFKA_VERSION))]
    assert not wrong, "\n".join(wrong)


@requires_kafka39
def test_tables_of_what_brokers_say_to_each_other_are_kafkas() -> None:
    wrong = [text for cls in BETWEEN if (text := said_of(cls, "kafka-clients", "common/message", KAFKA39_VERSION))]
    assert not wrong, "\n".join(wrong)


def said_of(cls: type, jar: str, folder: str, kafka: str) -> str:
    """What is not as Kafka has it."""
    try:
        assert_table(cls, jar, folder, kafka)
    except AssertionError as error:
        return f"{cls.__name__}: {error}"
    return ""


def assert_table(cls: type, jar: str, folder: str, kafka: str) -> None:
    official = message_definition(jar, folder, FILE_NAMES.get(cls.__name__, cls.__name__), kafka)
    schema = schema_of(cls)
    assert schema.name == official["name"]
    assert schema.api_key == official.get("apiKey", -1)
    valid = VersionRange.parse(official["validVersions"])
    if is_latest_unstable(official, jar, folder, kafka):
        valid = VersionRange(valid.first, valid.last - 1)
    assert schema.valid == valid
    flexible = VersionRange.parse(official["flexibleVersions"])
    assert [v in schema.flexible for v in versions(valid)] == [v in flexible for v in versions(valid)]
    common = {definition["name"]: definition["fields"] for definition in official.get("commonStructs", [])}
    assert_fields(schema.fields, official["fields"], valid, common)
    if schema.key is not None:
        key = message_definition(jar, folder, f"{schema.name.removesuffix('Value')}Key", kafka)
        assert (key["apiKey"], key["validVersions"], key["flexibleVersions"]) == (schema.api_key, "0", "none")
        assert_fields(schema_of(schema.key).fields, key["fields"], VersionRange(0, 0), {})


def is_latest_unstable(official: dict[str, Any], jar: str, folder: str, kafka: str) -> bool:
    """Not advertised by default; it is the request's definition that says so, also for the response."""
    if official["type"] == "response" and official["name"] != "ResponseHeader":
        official = message_definition(jar, folder, official["name"].replace("Response", "Request"), kafka)
    return bool(official.get("latestVersionUnstable"))


def versions(valid: VersionRange) -> range:
    return range(valid.first, valid.last + 1)


def assert_fields(
    fields: tuple[Field, ...], official: list[dict[str, Any]], valid: VersionRange, common: dict[str, Any]
) -> None:
    official = [{"versions": f.get("taggedVersions"), **f} for f in official]  # which it is where it is not said
    present = [f for f in official if any(v in VersionRange.parse(f["versions"]) for v in versions(valid))]
    fields = tuple(field for field in fields if any(v in field.versions for v in versions(valid)))
    assert [field.name for field in fields] == [snake_case(f["name"]) for f in present]
    for field, theirs in zip(fields, present, strict=True):
        assert_field(field, theirs, valid, common)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def assert_field(field: Field, theirs: dict[str, Any], valid: VersionRange, common: dict[str, Any]) -> None:
    for ours, key in (
        (field.versions, "versions"),
        (field.nullable, "nullableVersions"),
        (field.tagged, "taggedVersions"),
    ):
        expected = VersionRange.parse(theirs.get(key, "none"))
        assert [v in ours for v in versions(valid)] == [v in expected for v in versions(valid)], (field.name, key)
    assert field.tag == theirs.get("tag", -1)
    is_ever_absent = not all(v in field.versions for v in versions(valid))
    assert not is_ever_absent or field.ignorable == (str(theirs.get("ignorable", False)).lower() == "true")
    assert field.never_flexible == (theirs.get("flexibleVersions") == "none")
    type_ = theirs["type"]
    element = type_.removeprefix("[]")
    inner = theirs.get("fields") or common.get(element)
    if inner is not None:
        assert field.kind == ("array" if type_.startswith("[]") else "struct")
        assert isinstance(field.element, type)
        within = [v for v in versions(valid) if v in field.versions]  # a struct may stand in several fields
        assert_fields(schema_of(field.element).fields, inner, VersionRange(within[0], within[-1]), common)
    elif type_.startswith("[]"):
        assert (field.kind, field.element) == ("array", element)
    else:
        assert field.kind == type_
        assert field.default == default_of(theirs, type_), field.name


def default_of(theirs: dict[str, Any], type_: str) -> Any:
    text = theirs.get("default")
    if text == "null" or (type_ == "records" and text is None):
        return None
    if type_ == "string":
        return text or ""
    if type_ == "bytes":
        return b""
    if type_ == "uuid":
        return bytes(16)
    if type_ == "bool":
        return str(text).lower() == "true"
    return float(text or 0) if type_ == "float64" else int(str(text or 0), 0)
