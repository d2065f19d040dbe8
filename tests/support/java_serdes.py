"""Java's serializers of Apicurio and AWS Glue, and its libraries of Avro and Protobuf, as judges.

Confluent's own are not on Maven Central. Apicurio's write the same bytes: Java's Avro and Protobuf make them, and an id
of 4 bytes with message indexes is one of its settings.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.class_archives import quick_options
from tests.support.oracle import fetch_jars

_HERE = Path(__file__).resolve().parent / "serdes"
_WHY_NOT = next((f"no {name} on the PATH" for name in ("java", "mvn") if shutil.which(name) is None), "")
requires_serdes = pytest.mark.skipif(bool(_WHY_NOT), reason=f"needs Java's serializers: {_WHY_NOT}")


class JavaSerdes:
    """One JVM; a context manager."""

    def __init__(self, profile: str) -> None:
        jars = fetch_jars(_HERE / "pom.xml", f"serdes-{profile}", f"-P{profile}")
        command = ["java", *quick_options(), "-cp", f"{jars}/*", str(_HERE / "Serdes.java")]
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "marked"}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> JavaSerdes:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, do: str, format_: str, data: bytes = b"", **more: Any) -> Any:
        """The answer to one request. Raises AssertionError with Java's own error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"do": do, "format": format_, "topic": "t", "data": base64.b64encode(data).decode(), **more}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def bytes_of(self, do: str, format_: str, data: bytes = b"", **more: Any) -> bytes:
        return base64.b64decode(self.ask(do, format_, data, **more)["data"])

    def serialize(self, format_: str, data: bytes, **more: Any) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """The bytes of a record's value, and its headers."""
        found = self.ask("serialize", format_, data, **more)
        headers = [(name.encode(), base64.b64decode(value)) for name, value in found["headers"].items()]
        return base64.b64decode(found["data"]), headers

    def deserialize(
        self, format_: str, data: bytes, headers: Sequence[tuple[bytes, bytes | None]] = (), **more: Any
    ) -> bytes:
        """What it makes of the value of a record: the datum, written again."""
        shown = {name.decode(): base64.b64encode(value or b"").decode() for name, value in headers}
        return self.bytes_of("deserialize", format_, data, headers=shown, **more)


def descriptors(folder: Path, name: str) -> str:
    """The descriptors of a .proto file and of those that it imports, as protoc makes them."""
    import sys

    out = folder / "descriptors"
    arguments = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={out}", name]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True, stderr=subprocess.DEVNULL)
    return base64.b64encode(out.read_bytes()).decode()


KEPT = Path(__file__).resolve().parent.parent / "golden" / "java-serdes.json"
"""What `written_values` returned once: `python -m tests.support.java_serdes` writes it again."""

_WALLET = {
    "type": "record", "name": "W",
    "fields": [{"name": "c", "type": "string"}, {"name": "e", "type": ["null", "string"]}],
}  # fmt: skip
_PROTO = 'syntax = "proto3"; package p.q; message A { map<string, int64> a = 1; } message B { int64 b = 1; }'
_GLUE = "com.amazonaws.services.schemaregistry.serializers.GlueSchemaRegistryKafkaSerializer"


def written_values() -> dict[str, Any]:
    """Values that Java's serializers write, with what the registries have then."""
    import tempfile

    from tests.support.other_registries import ApicurioServer, GlueServer

    headers = {"apicurio.registry.headers.enabled": "true"}
    long_ids = {"apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy8ByteIdHandler"}
    with tempfile.TemporaryDirectory() as folder, ApicurioServer() as apicurio, GlueServer() as glue:
        Path(folder, "p.proto").write_text(_PROTO)
        asked: dict[str, list[tuple[str, bytes, dict[str, Any]]]] = {
            "avro": [("avro", bytes.fromhex("0645555200"), {"schema": json.dumps(_WALLET)})],
            "protobuf": [
                ("protobuf", data, {"files": descriptors(Path(folder), "p.proto"), "message": name})
                for name, data in (("A", b"\n\5\n\1x\x10\7"), ("B", b"\x08\5"))
            ],
        }
        values = []
        with JavaSerdes("apicurio") as java:
            for version, space, more in (
                (3, "contentId", {}), (3, "contentId", headers), (2, "globalId", long_ids), (2, "globalId", headers),
            ):  # fmt: skip
                config = {"apicurio.registry.url": apicurio.url(version), "apicurio.registry.auto-register": "true"}
                config |= {"apicurio.registry.use-id": space, **more}
                for format_, cases in asked.items():
                    serializer = f"io.apicurio.registry.serde.{format_}.{format_.title()}KafkaSerializer"
                    for _, data, own in cases:
                        made = java.serialize(
                            format_, data, topic=f"t-{format_}", config=config, **own, **{"class": serializer}
                        )
                        values.append(_kept(f"apicurio{version}", *made))
        with JavaSerdes("glue") as java:
            for compression in ("NONE", "ZLIB"):
                config = {
                    "region": "eu-west-1", "endpoint": glue.address, "schemaAutoRegistrationEnabled": "true",
                    "avroRecordType": "GENERIC_RECORD", "compression": compression,
                }  # fmt: skip
                for format_, cases in asked.items():
                    own_config = {**config, "dataFormat": format_.upper()}
                    for _, data, own in cases:
                        made = java.serialize(
                            format_, data, topic=f"t-{format_}", config=own_config, **own, **{"class": _GLUE}
                        )
                        values.append(_kept("glue", *made))
        return {
            "values": values,
            "contents": [list(one) for one in apicurio.contents],
            "versions": apicurio.versions,
            "glue": [[*key, *value] for key, value in glue.schemas.items()],
        }


def _kept(registry: str, value: bytes, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"registry": registry, "value": value.hex(), "headers": [[n.decode(), v.hex()] for n, v in headers]}


if __name__ == "__main__":
    KEPT.write_text(json.dumps(written_values(), indent=1) + "\n")
