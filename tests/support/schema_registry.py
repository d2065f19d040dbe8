"""A Schema Registry in this process: the part of Confluent's REST API that clients of it need to read and write, and
answers of other registries as a test gives them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
import uuid
from collections import defaultdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class SchemaRegistryServer:
    """Subjects with versions, each a schema with an id; equal schemas have one id, and one GUID in all contexts."""

    def __init__(self, context: ssl.SSLContext | None = None, user: str = "") -> None:
        """Over TLS if there is a context; `user`, NAME:PASSWORD, is the one that it answers."""
        self.contexts: dict[str, _Context] = defaultdict(_Context)
        self.schemas = self.contexts[""].schemas
        self.subjects = self.contexts[""].subjects
        self.texts: dict[str, tuple[str, dict[str, str]]] = {}
        """What GET of a path, and POST of a body, answers beyond the API: a body, and headers."""

        self.incompatible: set[str] = set()
        """Subjects that take no other schema."""

        self.asked: list[tuple[str, dict[str, str]]] = []
        """The paths that were asked for, with their queries, and the headers."""

        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(registry.get(*_split(self.path)), self.path)

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._answer(registry.post(_split(self.path)[0], json.loads(text)), text)

            def _answer(self, found: tuple[int, Any], what: str) -> None:
                registry.asked.append((self.path, dict(self.headers)))
                status, answer = found
                more: dict[str, str] = {}
                if status != HTTPStatus.OK and what in registry.texts:
                    status, (answer, more) = 200, registry.texts[what]
                expected = f"Basic {base64.b64encode(user.encode()).decode()}"
                if user and self.headers["Authorization"] != expected:
                    status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
                data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                for name, value in more.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> SchemaRegistryServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def get(self, path: list[str], subject: str = "") -> tuple[int, Any]:
        if path == ["subjects"]:  # of all contexts, as Confluent's
            names = [(f":.{name}:" if name else "", context.subjects) for name, context in self.contexts.items()]
            return 200, [context + subject for context, subjects in names for subject in subjects]
        if path[:1] == ["contexts"]:
            return self.contexts[path[1].lstrip(".")].get(path[2:])
        if path[:2] == ["schemas", "guids"]:
            found = [one for context in self.contexts.values() for one in context.schemas if guid_of(one) == path[2]]
            return (200, {**found[0], "guid": path[2]}) if found else _NOT_FOUND
        context, subject = _context(subject or (path[1] if path[0] == "subjects" and len(path) > 1 else ""))
        return self.contexts[context].get([path[0], subject, *path[2:]] if path[0] == "subjects" and subject else path)

    def post(self, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        if path[:2] == ["compatibility", "subjects"] and path[2] in self.subjects:
            return 200, {"is_compatible": path[2] not in self.incompatible}
        if path[:1] != ["subjects"]:
            return _NOT_FOUND
        context, subject = _context(path[1])
        return self.contexts[context].post(["subjects", subject, *path[2:]], body)


_NOT_FOUND = 404, {"error_code": 40403, "message": "Schema not found"}


def guid_of(schema: dict[str, Any]) -> str:
    """Returns the GUID of a schema, as `post` takes it."""
    return str(uuid.UUID(bytes=hashlib.md5(json.dumps(schema).encode()).digest()))


def _split(url: str) -> tuple[list[str], str]:
    parts = urlsplit(url)
    return [unquote(piece) for piece in parts.path.strip("/").split("/")], parse_qs(parts.query).get("subject", [""])[0]


def _context(subject: str) -> tuple[str, str]:
    """Splits :.CONTEXT:SUBJECT."""
    if not subject.startswith(":."):
        return "", subject
    context, _, rest = subject[2:].partition(":")
    return context, rest


class _Context:
    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}

    def get(self, path: list[str]) -> tuple[int, Any]:
        match path:
            case ["subjects"]:
                return 200, list(self.subjects)
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                schema = self.schemas[int(number) - 1]
                return 200, {**schema, "guid": guid_of(schema)}
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                ids = self.subjects[subject]
                number = len(ids) if version in ("latest", "-1") else int(version)
                if 0 < number <= len(ids):
                    return 200, self._version(subject, number)
        return _NOT_FOUND

    def _version(self, subject: str, number: int) -> dict[str, Any]:
        schema_id = self.subjects[subject][number - 1]
        schema = self.schemas[schema_id - 1]
        return {"subject": subject, "version": number, "id": schema_id, **schema, "guid": guid_of(schema)}

    def post(self, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        schema = {key: body[key] for key in ("schema", "schemaType", "references") if body.get(key)}
        match path:
            case ["subjects", subject, "versions"]:
                if schema not in self.schemas:
                    self.schemas.append(schema)
                schema_id = self.schemas.index(schema) + 1
                ids = self.subjects.setdefault(subject, [])
                if schema_id not in ids:
                    ids.append(schema_id)
                return 200, {"id": schema_id, "version": ids.index(schema_id) + 1, **schema, "guid": guid_of(schema)}
            case ["subjects", subject] if schema in self.schemas:
                schema_id = self.schemas.index(schema) + 1
                if schema_id in self.subjects.get(subject, []):
                    return 200, self._version(subject, self.subjects[subject].index(schema_id) + 1)
        return _NOT_FOUND
