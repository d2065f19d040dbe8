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
