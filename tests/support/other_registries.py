"""Apicurio's registry (its own API, v2 and v3) and AWS Glue's, in this process: what serializers ask of them.

Made from their documents: the OpenAPI of Apicurio/apicurio-registry, the API reference of AWS Glue. Java's serializers
are held against them, too (tests/interop/test_java_serdes.py), so they answer as those expect it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

Answer = tuple[int, Any, dict[str, str]]


class _Server:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        """Each request: its method with its path, or what it asks for, and its body."""

        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                status, answer, more = owner.answer(self.command, self.path, self.headers, body)
                data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **more, "Content-Length": len(data)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815 - http.server's name

            def log_message(self, *arguments: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Any:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: str) -> Answer:
        raise NotImplementedError


class ApicurioServer(_Server):
    """Each text, with its references, has a content id from 101 on, each version of an artifact a global id from 1001
    on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[tuple[str, str, list[Any]]] = []
        self.versions: list[dict[str, Any]] = []

    def url(self, version: int) -> str:
        return f"{self.address}/apis/registry/v{version}"

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: str) -> Answer:
        self.asked.append((f"{method} {url}", body))
        parts = urlsplit(url)
        api, *path = [unquote(one) for one in parts.path.removeprefix("/apis/registry/v").strip("/").split("/")]
        query = dict(parse_qsl(parts.query))
        match method, path:
            case "GET", ["ids", space, number, *rest]:
                return self._by_id(space, number, rest, is_typed="returnArtifactType" in query)
            case "GET", ["groups", group, "artifacts", artifact] if api == "2":
                return self._version(api, group, artifact, "latest", ["content"])
            case "GET", ["groups", group, "artifacts", artifact, "meta"] if api == "2":
                return self._version(api, group, artifact, "latest", [])
            case "GET", ["groups", group, "artifacts", artifact, "versions", version, *rest]:
                if api == "2":  # the text is that of the path alone, and more is at /meta
                    rest = ["content"] if not rest else [one for one in rest if one != "meta"]
                return self._version(api, group, artifact, version.removeprefix("branch="), rest)
            case "POST", ["groups", group, "artifacts"]:
                return self._create(api, group, query, headers, body)
            case "POST", ["search", "versions"]:
                wanted = (query.get("groupId", "default"), query["artifactId"], body)
                found = [one for one in self.versions if (one["groupId"], one["artifactId"], self._text(one)) == wanted]
                return 200, {"count": len(found), "versions": found}, {}
            case "POST", ["groups", group, "artifacts", artifact, "meta"]:
                text = _content(body, headers)[0]
                wanted = (group, artifact, text)
                found = [one for one in self.versions if (one["groupId"], one["artifactId"], self._text(one)) == wanted]
                return (200, _of_v2(found[-1]), {}) if found else _nothing(artifact)
        return _nothing(url)

    def _text(self, version: dict[str, Any]) -> str:
        return self.contents[version["contentId"] - 101][0]

    def _by_id(self, space: str, name: str, rest: list[str], *, is_typed: bool) -> Answer:
        if space == "contentHashes":
            found = [
                number
                for number, (text, _, _) in enumerate(self.contents)
                if hashlib.sha256(text.encode()).hexdigest() == name
            ]
        elif space == "globalIds":
            found = [one["contentId"] - 101 for one in self.versions if str(one["globalId"]) == name]
        else:
            found = [number for number in range(len(self.contents)) if str(number + 101) == name]
        if not found:
            return _nothing(name)
        text, type_, references = self.contents[found[0]]
        if rest == ["references"]:
            return 200, references, {}
        more = {"X-Registry-ArtifactType": type_} if is_typed and space == "globalIds" else {}
        return 200, text, more

    def _version(self, api: str, group: str, artifact: str, version: str, rest: list[str]) -> Answer:
        found = [one for one in self.versions if (one["groupId"], one["artifactId"]) == (group, artifact)]
        if version != "latest":
            found = [one for one in found if one["version"] == version]
        if not found:
            return _nothing(artifact)
        text, _, references = self.contents[found[-1]["contentId"] - 101]
        if not rest:
            return 200, _of_v2(found[-1]) if api == "2" else found[-1], {}
        return 200, references if rest == ["references"] else text, {}

    def _create(self, api: str, group: str, query: dict[str, str], headers: Mapping[str, str], body: str) -> Answer:
        if api == "2":
            artifact, type_ = headers["X-Registry-ArtifactId"], headers["X-Registry-ArtifactType"]
            text, references = _content(body, headers)
        else:
            asked = json.loads(body)
            artifact, type_ = asked["artifactId"], asked["artifactType"]
            content = asked["firstVersion"]["content"]
            text, references = content["content"], content.get("references") or []
            assert content["contentType"] in ("application/json", "application/x-protobuf"), content
        for one in references:
            if self._version("3", one["groupId"] or "default", one["artifactId"], one["version"], [])[0] != 200:
                return 409, {"error_code": 409, "message": f"no such reference: {one}"}, {}
        earlier = [one for one in self.versions if (one["groupId"], one["artifactId"]) == (group, artifact)]
        if earlier and query.get("ifExists", "FAIL") == "FAIL":
            return 409, {"error_code": 409, "message": f"An artifact with ID '{artifact}' already exists."}, {}
        kept = (text, type_, references)
        if kept not in self.contents:
            self.contents.append(kept)
        content_id = 101 + self.contents.index(kept)
        found = [one for one in earlier if one["contentId"] == content_id]
        if not found:
            self.versions.append(
                {
                    "groupId": group, "artifactId": artifact, "version": str(len(earlier) + 1), "artifactType": type_,
                    "contentId": content_id, "globalId": 1001 + len(self.versions), "state": "ENABLED",
                }
            )  # fmt: skip
        made = (found or self.versions)[-1]
        if api == "2":
            return 200, {**_of_v2(made), "references": references}, {}
        return 200, {"artifact": {one: made[one] for one in ("groupId", "artifactId")}, "version": made}, {}


def _content(body: str, headers: Mapping[str, str]) -> tuple[str, list[Any]]:
    """Returns the text of v2's body, which may be in JSON with the references."""
    if "create.extended" not in headers["Content-Type"] and "get.extended" not in headers["Content-Type"]:
        return body, []
    found = json.loads(body)
    return found["content"], found.get("references") or []


def _of_v2(version: dict[str, Any]) -> dict[str, Any]:
    return {**version, "id": version["artifactId"], "type": version["artifactType"]}


def _nothing(what: str) -> Answer:
    return 404, {"error_code": 404, "name": "NotFoundException", "message": f"No {what} was found."}, {}


class GlueServer(_Server):
    """Schemas by registry and name, each with versions, which are there at the second look (`PENDING` before)."""

    def __init__(self) -> None:
        super().__init__()
        self.schemas: dict[tuple[str, str], tuple[str, list[str]]] = {}
        """The format, and the texts of the versions."""
        self.pending: set[str] = set()

    def url(self, registry: str = "") -> str:
        return f"glue:eu-west-1{registry and '/'}{registry}@{self.address}"

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: str) -> Answer:
        action, asked = headers["X-Amz-Target"].removeprefix("AWSGlue."), json.loads(body)
        self.asked.append((action, body))
        if not headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 Credential="):
            return _refused("AccessDeniedException", "no signature")
        try:
            return 200, getattr(self, f"_{action}")(asked), {"Content-Type": "application/x-amz-json-1.1"}
        except LookupError as error:
            return _refused("EntityNotFoundException", str(error.args[0]))
        except ValueError as error:
            return _refused("AlreadyExistsException", str(error))

    def version_id(self, registry: str, name: str, number: int) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{registry}/{name}/{number}"))

    def _find(self, asked: dict[str, Any]) -> tuple[str, str]:
        schema = asked["SchemaId"]
        found = schema["RegistryName"], schema["SchemaName"]
        if found not in self.schemas:
            raise LookupError(f"Schema is not found. RegistryName: {found[0]}, SchemaName: {found[1]}, SchemaArn: null")
        return found

    def _answer(self, key: tuple[str, str], number: int) -> dict[str, Any]:
        format_, texts = self.schemas[key]
        name = self.version_id(*key, number)
        status = "PENDING" if name in self.pending else "AVAILABLE"
        self.pending.discard(name)
        return {
            "SchemaVersionId": name, "SchemaDefinition": texts[number - 1], "DataFormat": format_,
            "SchemaArn": f"arn:aws:glue:eu-west-1:123456789012:schema/{key[0]}/{key[1]}", "VersionNumber": number,
            "Status": status,
        }  # fmt: skip

    def _GetSchemaVersion(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "SchemaVersionId" in asked:
            for key, (_, texts) in self.schemas.items():
                for number in range(1, len(texts) + 1):
                    if self.version_id(*key, number) == asked["SchemaVersionId"]:
                        return self._answer(key, number)
            raise LookupError("Schema version is not found.")
        key, wanted = self._find(asked), asked["SchemaVersionNumber"]
        number = len(self.schemas[key][1]) if wanted.get("LatestVersion") else wanted["VersionNumber"]
        if not 0 < number <= len(self.schemas[key][1]):
            raise LookupError("Schema version is not found.")
        return self._answer(key, number)

    def _GetSchemaByDefinition(self, asked: dict[str, Any]) -> dict[str, Any]:
        key = self._find(asked)
        if asked["SchemaDefinition"] not in self.schemas[key][1]:
            raise LookupError(f"Schema version is not found. RegistryName: {key[0]}, SchemaName: {key[1]}")
        return self._answer(key, 1 + self.schemas[key][1].index(asked["SchemaDefinition"]))

    def _RegisterSchemaVersion(self, asked: dict[str, Any]) -> dict[str, Any]:
        key = self._find(asked)
        texts = self.schemas[key][1]
        if asked["SchemaDefinition"] not in texts:
            texts.append(asked["SchemaDefinition"])
            self.pending.add(self.version_id(*key, len(texts)))
        number = 1 + texts.index(asked["SchemaDefinition"])
        found = self.version_id(*key, number)
        return {
            "SchemaVersionId": found, "VersionNumber": number,
            "Status": "PENDING" if found in self.pending else "AVAILABLE",
        }  # fmt: skip

    def _CreateSchema(self, asked: dict[str, Any]) -> dict[str, Any]:
        key = asked["RegistryId"]["RegistryName"], asked["SchemaName"]
        if key in self.schemas:
            raise ValueError("Schema already exists.")
        self.schemas[key] = asked["DataFormat"], [asked["SchemaDefinition"]]
        return {
            "RegistryName": key[0], "SchemaName": key[1], "DataFormat": asked["DataFormat"], "LatestSchemaVersion": 1,
            "SchemaVersionId": self.version_id(*key, 1), "SchemaVersionStatus": "AVAILABLE",
        }  # fmt: skip

    def _PutSchemaVersionMetadata(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"SchemaVersionId": asked["SchemaVersionId"]}

    def _GetTags(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Tags": {}}

    def _QuerySchemaVersionMetadata(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"SchemaVersionId": asked["SchemaVersionId"], "MetadataInfoMap": {}}


def _refused(name: str, message: str) -> Answer:
    return 400, {"__type": name, "Message": message}, {"Content-Type": "application/x-amz-json-1.1"}
