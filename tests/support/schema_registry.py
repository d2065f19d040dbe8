"""A Schema Registry in this process: the part of Confluent's REST API that clients of it need to read and write."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SchemaRegistryServer:
    """Subjects with versions, each a schema with an id; equal schemas have one id."""

    def __init__(self, context: ssl.SSLContext | None = None, user: str = "") -> None:
        """Over TLS if there is a context; `user`, NAME:PASSWORD, is the one that it answers."""
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(registry.get(self.path.split("?")[0].strip("/").split("/")))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(registry.post(self.path.split("?")[0].strip("/").split("/"), body))

            def _answer(self, found: tuple[int, Any]) -> None:
                status, answer = found
                expected = f"Basic {base64.b64encode(user.encode()).decode()}"
                if user and self.headers["Authorization"] != expected:
                    status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
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

    def get(self, path: list[str]) -> tuple[int, Any]:
        match path:
            case ["subjects"]:
                return 200, list(self.subjects)
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                ids = self.subjects[subject]
                number = len(ids) if version in ("latest", "-1") else int(version)
                if 0 < number <= len(ids):
                    return 200, self._version(subject, number)
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, number: int) -> dict[str, Any]:
        schema_id = self.subjects[subject][number - 1]
        return {"subject": subject, "version": number, "id": schema_id, **self.schemas[schema_id - 1]}

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
                return 200, {"id": schema_id, "version": ids.index(schema_id) + 1, **schema}
            case ["subjects", subject] if schema in self.schemas:
                schema_id = self.schemas.index(schema) + 1
                if schema_id in self.subjects.get(subject, []):
                    return 200, self._version(subject, self.subjects[subject].index(schema_id) + 1)
        return 404, {"error_code": 40403, "message": "Schema not found"}
