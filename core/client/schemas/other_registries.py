"""Schema Registries with an API other than Confluent's: Apicurio's own, and AWS Glue.

    Apicurio  http://HOST/apis/registry/v2 or v3    GET /ids/globalIds/13, /ids/contentIds/7, /ids/contentHashes/HASH,
                                                    /groups/G/artifacts/A/versions/1 (v3: and /content), /references
                                                    POST /groups/G/artifacts
    AWS Glue  glue:REGION, glue:REGION/REGISTRY,    POST / X-Amz-Target: AWSGlue.GetSchemaVersion, signed (SigV4);
              glue:REGION@http://HOST               GetSchemaByDefinition, RegisterSchemaVersion, CreateSchema

Apicurio's answer is the text of the schema. Its type is in a header, if at all; without one the text shows it.

Sources: IdsResourceImpl and the OpenAPI documents of Apicurio/apicurio-registry, and RegistryClientFacadeImpl of its
serializers; the API reference of AWS Glue, AWS's Signature Version 4, and SchemaByDefinitionFetcher of
awslabs/aws-glue-schema-registry.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

from core.client.net.connect_notice import is_this_machine
from core.client.net.retry import Retry
from core.client.schemas.schema_id import MOST_BYTES, RegistryKind, SchemaId
from core.common.errors import UsageError
from core.security.client_settings import RegistrySettings
from core.security.secret import shown_url

if TYPE_CHECKING:
    import ssl


class SchemaText(NamedTuple):
    """A schema as a registry has it, by the names of Confluent's client."""

    schema_str: str
    schema_type: str
    references: Sequence[Reference] = ()


class Reference(NamedTuple):
    """Another schema, which a schema refers to by a name."""

    name: str
    schema_id: SchemaId


class Registered(NamedTuple):
    """One version of a schema of Apicurio."""

    schema_id: SchemaId
    coordinates: dict[str, str]
    """Its groupId, artifactId and version."""


def open_other_registry(url: str, settings: RegistrySettings | None, timeout_s: float) -> Apicurio | Glue | None:
    """Returns the registry, or None for the URL of one with Confluent's API. Raises UsageError."""
    if url.startswith("glue:"):
        return Glue(url, timeout_s)
    version = re.search(r"/apis/registry/v([23])/?$", urlsplit(url).path)
    return None if version is None else Apicurio(url, int(version[1]), settings, timeout_s)


# --- Apicurio

_SPACES = {2: "globalId", 3: "contentId"}
_JSON_TYPES = {"object", "integer", "number"}
_OF_JSON_SCHEMA = {"$schema", "$id", "$ref", "$defs", "properties", "anyOf", "oneOf", "allOf", "definitions"}


class Apicurio:
    kind = RegistryKind.apicurio

    def __init__(self, url: str, version: int, settings: RegistrySettings | None, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._version = version
        self._timeout_s = timeout_s
        query = parse_qs(parts.query)
        if query.keys() - {"id", "group"}:
            raise UsageError(f"--schema-registry {shown_url(url)}: expected ?id=contentId, ?id=globalId or ?group=NAME")
        self._group = query.get("group", ["default"])[0]
        self.space = query.get("id", [_SPACES[version]])[0]
        """That of the ids in front of the bytes."""
        self.has_long_ids = version == 2
        """Whether ids are written in 8 bytes, as the serializers of version 2 do it."""
        self._types: dict[SchemaId, str] = {}

        if self.space not in _SPACES.values():
            raise UsageError(f"?id={self.space}: expected globalId or contentId")
        self._headers: dict[str, str] = {}
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
        if settings is not None and settings.user is not None:
            user = settings.user.reveal()
        if user is not None:
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._context: ssl.SSLContext | None = None
        if settings is not None and settings.tls is not None:
            from core.files.tls_context import make_context

            self._context = make_context(settings.tls)

    def find(self, text: str) -> SchemaId:
        """Finds the id of an id, or of [GROUP/]ARTIFACT[/VERSION]. Raises what `get` raises."""
        return SchemaId(int(text), self.space) if text.isdecimal() else self.find_version(text).schema_id

    def find_version(self, text: str) -> Registered:
        """Finds [GROUP/]ARTIFACT[/VERSION], or with a colon before the version."""
        if text.rpartition(":")[2].isdecimal():
            text = "/".join(text.rsplit(":", 1)) if "/" in text else f"{self._group}/{'/'.join(text.rsplit(':', 1))}"
        parts = text.split("/")
        group, artifact, version = ([self._group, *parts, "latest"] if len(parts) == 1 else [*parts, "latest"])[:3]
        path = self._path(SchemaId(f"{group}/{artifact}/{version}", "version"))[0]
        return self._registered(json.loads(self._ask(path + ("/meta" if self._version == 2 else ""))[0]))

    def _registered(self, found: dict[str, Any]) -> Registered:
        schema_id = SchemaId(int(found[self.space]), self.space)
        self._types[schema_id] = found.get("artifactType") or found["type"]
        artifact = found.get("artifactId") or found["id"]
        coordinates = {"groupId": found.get("groupId") or "default", "artifactId": artifact}
        return Registered(schema_id, {**coordinates, "version": str(found["version"])})

    def register(self, artifact: str, text: str, type_: str, references: Sequence[Mapping[str, str]]) -> Registered:
        """Finds the version of the artifact that is this text with these references, or makes it. Raises what `get`
        raises.
        """
        path, content = f"/groups/{quote(self._group, safe='')}/artifacts?ifExists=", {"content": text}
        if self._version == 2:
            headers = {
                "Content-Type": "application/create.extended+json",
                "X-Registry-ArtifactId": artifact,
                "X-Registry-ArtifactType": type_,
            }
            extended = {**content, "references": references}
            return self._registered(json.loads(self._ask(f"{path}RETURN_OR_UPDATE", extended, headers)[0]))
        content["contentType"] = "application/x-protobuf" if type_ == "PROTOBUF" else "application/json"
        first = {"content": {**content, "references": references}}
        body = {"artifactId": artifact, "artifactType": type_, "firstVersion": first}
        made = json.loads(self._ask(f"{path}FIND_OR_CREATE_VERSION", body)[0])
        return self._registered({"artifactType": type_, **made["version"]})

    def get(self, schema_id: SchemaId) -> SchemaText:
        """Returns the schema. Raises SchemaRegistryError for a refusal, OSError without an answer."""
        path, content = self._path(schema_id)
        query = "?returnArtifactType=true" if schema_id.space == "globalId" and self._version > 2 else ""
        text, headers = self._ask(path + content + query)
        type_ = headers.get("X-Registry-ArtifactType") or self._types.get(schema_id) or _type_of(text)
        return SchemaText(text, type_, self._references(f"{path}/references"))

    def _path(self, schema_id: SchemaId) -> tuple[str, str]:
        """Returns the path of the schema, and what is appended for its text."""
        value = str(schema_id.value)
        if schema_id.space != "version":
            space = schema_id.space or self.space
            return f"/ids/{'contentHashes' if space == 'contentHash' else f'{space}s'}/{quote(value, safe='')}", ""
        group, rest = value.split("/", 1)
        artifact, version = rest.rsplit("/", 1)
        path = f"/groups/{quote(group, safe='')}/artifacts/{quote(artifact, safe='')}"
        if self._version == 2:
            return path + ("" if version == "latest" else f"/versions/{quote(version, safe='')}"), ""
        return f"{path}/versions/{'branch=latest' if version == 'latest' else quote(version, safe='')}", "/content"

    def _references(self, path: str) -> list[Reference]:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            found = json.loads(self._ask(path)[0])
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                return []
            raise
        return [
            Reference(
                one["name"],
                SchemaId(
                    f"{one.get('groupId') or 'default'}/{one['artifactId']}/{one.get('version') or 'latest'}", "version"
                ),
            )
            for one in found
        ]

    def _ask(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[str, Mapping[str, str]]:
        data = None if body is None else json.dumps(body).encode()
        sent = (
            self._headers if body is None else {"Content-Type": "application/json", **self._headers, **(headers or {})}
        )
        return _request(self._base + path, sent, data, self._timeout_s, self._context)


def _type_of(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return "PROTOBUF"
    if isinstance(found, dict) and (_OF_JSON_SCHEMA & found.keys() or found.get("type") in _JSON_TYPES):
        return "JSON"
    return "AVRO"


# --- AWS Glue

_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DEFAULT_REGISTRY = "default-registry"
_CONTENT_TYPE = "application/x-amz-json-1.1"


class Credentials(NamedTuple):
    """Of AWS."""

    key_id: str
    secret: str
    token: str = ""


class Glue:
    kind = RegistryKind.glue
    space = "glue"
    has_long_ids = False

    def __init__(self, url: str, timeout_s: float) -> None:
        place, _, endpoint = url.removeprefix("glue:").removeprefix("//").partition("@")
        region, _, self._registry = place.partition("/")
        self.region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
        if not re.fullmatch("[a-z0-9-]+", self.region):
            raise UsageError(
                f"--schema-registry {url}: {region or 'no region'}", hint="glue:REGION[/REGISTRY], as in glue:eu-west-1"
            )
        end = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        named = endpoint or os.environ.get("AWS_ENDPOINT_URL_GLUE") or os.environ.get("AWS_ENDPOINT_URL")
        self._url = (named or f"https://glue.{self.region}.{end}").rstrip("/") + "/"
        if urlsplit(self._url).scheme not in ("http", "https"):
            raise UsageError(f"--schema-registry {url}: expected glue:REGION@http://HOST:PORT")
        self._credentials = find_credentials()
        self._timeout_s = timeout_s

    def find(self, text: str) -> SchemaId:
        """Finds the id of a UUID of a schema's version, or of NAME[:VERSION]. Raises what `get` raises."""
        if _UUID.fullmatch(text):
            return SchemaId(text.lower(), self.space)
        name, _, version = text.rpartition(":") if text.rpartition(":")[2].isdecimal() else (text, "", "")
        number = {"VersionNumber": int(version)} if version else {"LatestVersion": True}
        found = self._ask("GetSchemaVersion", {"SchemaId": self._schema(name), "SchemaVersionNumber": number})
        return SchemaId(found["SchemaVersionId"], self.space)

    def _schema(self, name: str) -> dict[str, str]:
        return {"RegistryName": self._registry or _DEFAULT_REGISTRY, "SchemaName": name}

    def register(self, name: str, text: str, type_: str) -> SchemaId:
        """Finds the version of the schema that is this text, or makes it, and the schema. Raises what `get` raises, and
        SchemaRegistryError for a version that Glue does not take.
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        schema = {"SchemaId": self._schema(name), "SchemaDefinition": text}
        try:
            found = self._ask("GetSchemaByDefinition", schema)
        except SchemaRegistryError as error:
            if error.http_status_code != HTTPStatus.NOT_FOUND:
                raise
            if "Schema version" in error.error_message:
                found = self._ask("RegisterSchemaVersion", schema)
            else:
                registry = {"RegistryName": self._registry or _DEFAULT_REGISTRY}
                more = {"SchemaName": name, "DataFormat": type_, "Compatibility": "BACKWARD", "SchemaDefinition": text}
                found = self._ask("CreateSchema", {"RegistryId": registry, **more})
        schema_id, status = SchemaId(found["SchemaVersionId"], self.space), _status(found)
        if status == "PENDING":
            status = Retry(self._timeout_s).until(lambda: self._settled(schema_id)) or status
        if status != "AVAILABLE":
            raise SchemaRegistryError(HTTPStatus.CONFLICT, HTTPStatus.CONFLICT, f"the version is {status}: {schema_id}")
        return schema_id

    def _settled(self, schema_id: SchemaId) -> str | None:
        status = _status(self._ask("GetSchemaVersion", {"SchemaVersionId": str(schema_id)}))
        return None if status == "PENDING" else status

    def get(self, schema_id: SchemaId) -> SchemaText:
        """Returns the schema. Raises SchemaRegistryError for a refusal, OSError without an answer."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        if schema_id.space != "glue":
            raise SchemaRegistryError(404, 40403, f"{schema_id} is no id of AWS Glue")
        found = self._ask("GetSchemaVersion", {"SchemaVersionId": str(schema_id)})
        return SchemaText(found["SchemaDefinition"], found["DataFormat"])

    def _ask(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(asked).encode()
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {
            "content-type": _CONTENT_TYPE, "host": urlsplit(self._url).netloc, "x-amz-date": date,
            "x-amz-target": f"AWSGlue.{action}",
        }  # fmt: skip
        if self._credentials.token:
            headers["x-amz-security-token"] = self._credentials.token
        headers["authorization"] = authorization("POST", headers, body, self._credentials, self.region, "glue")
        found: dict[str, Any] = json.loads(_request(self._url, headers, body, self._timeout_s, None)[0])
        return found


def _status(found: Mapping[str, Any]) -> str:
    """Returns the status that an answer has by either name."""
    return str(found.get("Status") or found.get("SchemaVersionStatus") or "AVAILABLE")


def authorization(
    method: str, headers: Mapping[str, str], body: bytes, credentials: Credentials, region: str, service: str
) -> str:
    """Returns the header that signs a request to / with these headers, whose names are in lower case."""
    date = headers["x-amz-date"]
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in sorted(headers))
    request = f"{method}\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"AWS4-HMAC-SHA256 Credential={credentials.key_id}/{scope}, SignedHeaders={names}, Signature={key.hex()}"


def find_credentials() -> Credentials:
    """Returns the environment's, else those of the profile in ~/.aws/credentials. Raises UsageError."""
    from configparser import ConfigParser, Error

    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    found = Credentials(*(os.environ.get(name.upper(), "") for name in names))
    if found.key_id and found.secret:
        return found
    path = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    profile = os.environ.get("AWS_PROFILE") or "default"
    parser = ConfigParser(interpolation=None)
    with contextlib.suppress(Error, OSError, UnicodeDecodeError):
        parser.read(path, encoding="utf-8")
    found = Credentials(*(parser.get(profile, name, fallback="") for name in names))
    if found.key_id and found.secret:
        return found
    raise UsageError(
        f"AWS Glue wants credentials: neither the environment nor profile {profile} of {path} has them",
        hint="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for others: "
        "eval $(aws configure export-credentials --format env)",
    )


# --- HTTP


def _request(
    url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float, context: ssl.SSLContext | None
) -> tuple[str, Mapping[str, str]]:
    """Returns the answer's text and headers. Raises SchemaRegistryError for a refusal, OSError without an answer."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """Follows no redirect: the password goes only to the host that was named."""

        def redirect_request(self, *_: Any) -> None:
            return None

    own = [ProxyHandler({})] if is_this_machine(urlsplit(url).hostname or "") else []
    opener = build_opener(NoRedirects, HTTPSHandler(context=context), *own)
    try:
        with opener.open(Request(url, body, dict(headers)), timeout=timeout_s) as response:  # noqa: S310 - as the user says
            data = response.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise OSError(f"its answer has more than {MOST_BYTES:,} bytes")
            return data.decode("utf-8-sig"), response.headers
    except HTTPError as error:
        with error:
            raise _refusal(error.code, error.read(MOST_BYTES)) from None
    except URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else OSError(str(error.reason)) from None
    except HTTPException as error:
        raise OSError(f"{type(error).__name__} {error}".strip()) from None


def _refusal(status: int, body: bytes) -> Exception:
    from confluent_kafka.schema_registry import SchemaRegistryError

    try:
        found = json.loads(body)
        name = str(found.get("__type") or found.get("name") or "").rpartition("#")[2]
        message = found.get("message") or found.get("Message") or found.get("detail") or found.get("title") or name
    except (ValueError, AttributeError):
        return SchemaRegistryError(status, -1, body[:100].decode("utf-8", "replace"))
    if name == "EntityNotFoundException":  # Glue's, with status 400
        status = 404
    return SchemaRegistryError(status, status, f"{name}: {message}" if name and name != message else str(message))
