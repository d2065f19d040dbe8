"""Files with schemas, and what they refer to.

wallet.avsc           Avro; an unknown name NS.NAME is that of NS.NAME.avsc, NAME.avsc, or of any .avsc beside it
order.proto:Order     Protobuf; imports are below its folder, or one above it; without a name its only message
all.desc:pkg.Order    what protoc --include_imports --descriptor_set_out writes
order.json            JSON Schema; "$ref" is a file beside it or below, and never an address
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core.common.errors import UsageError
from core.records.side_format import SCHEMA_FILES, SideFormat, SideFormats, split_file

KNOWN_IMPORTS = ("google/protobuf/", "google/type/", "confluent/")
"""Folders of files that need not be there: protoc and every registry know them."""

_MOST_FOLDERS_UP = 8
MOST_FILES = 1000
"""The most files of a folder that are searched."""


class SchemaFile(NamedTuple):
    """A file with a schema, by the names of Confluent's client."""

    path: Path
    schema_str: str
    schema_type: str
    references: list[FileReference]


class FileReference(NamedTuple):
    """Another file, and the name by which the schema refers to it."""

    name: str
    schema: SchemaFile | None
    """None for a schema that a registry has under another name, as the user says."""


TYPES = {SideFormat.avro: "AVRO", SideFormat.protobuf: "PROTOBUF", SideFormat.jsonschema: "JSON"}
"""The registry's names of the formats."""


def type_of(path: Path) -> str:
    return TYPES[SCHEMA_FILES[path.suffix]]


def read_schema_file(path: Path, elsewhere: Collection[str] = ()) -> SchemaFile:
    """Reads a file and those that it refers to, but for the references `elsewhere`, which need no file. Raises
    UsageError for one that is no schema, AccessError.
    """
    return _Reader(elsewhere).read(path)


def find_elsewhere(formats: SideFormats) -> dict[str, str]:
    """Returns by its name what each reference is in the registry. Raises UsageError for references without the files
    that make them.
    """
    found: dict[str, str] = {}
    for one in formats.references:
        name, _, subject = one.rpartition("=")
        if not name or not subject:
            raise UsageError(f"--schema-reference {one}: expected NAME=SUBJECT[:VERSION]")
        if name in found:
            raise UsageError(f"--schema-reference: {name} is given twice")
        found[name] = subject
    schemas = [formats.schema(side) or "" for side in ("value", "key") if formats.find(side) is SideFormat.registry]
    files = [Path(file[0]) for file in map(split_file, schemas) if file is not None]
    if found and not files:
        raise UsageError("--schema-reference goes with --schema-registry, and a file in --value-schema or --key-schema")
    _ensure_referred(files, found)
    return found


def _ensure_referred(paths: Sequence[Path], elsewhere: Collection[str]) -> None:
    left = set(elsewhere)
    for path in paths if elsewhere else ():
        reader = _Reader(elsewhere)
        reader.read(path)
        left -= reader.used
    if left:
        raise UsageError(
            f"--schema-reference {min(left)}: {' and '.join(map(str, paths))} refers to no such name",
            hint="the full name of an Avro type, the path of an import, or the text of a $ref",
        )


def read_text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"schema {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"schema {path} is no UTF-8") from error
    if not text.strip():
        raise UsageError(f"schema {path} is empty")
    return text


class _Reader:
    """Reads each file once, and refuses a file that refers to itself, directly or by other files."""

    def __init__(self, elsewhere: Collection[str]) -> None:
        self._elsewhere = elsewhere
        self._found: dict[Path, SchemaFile | None] = {}
        self.used: set[str] = set()
        """References that need no file, so far."""

    def read(self, path: Path, root: Path | None = None) -> SchemaFile:
        key = path.resolve()
        if path.suffix == ".desc":
            raise UsageError(f"schema {path}: a registry holds the text of a .proto file, not descriptors")
        if key not in self._found:
            self._found[key] = None
            text = read_text(path)
            self._found[key] = SchemaFile(path, text, type_of(path), self._references(path, text, root))
        found = self._found[key]
        if found is None:
            raise UsageError(f"schema {path} can't be used: it refers to itself")
        return found

    def _references(self, path: Path, text: str, root: Path | None) -> list[FileReference]:
        if type_of(path) == "PROTOBUF":
            return self._imports(path, text, root)
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"schema {path} can't be used: not JSON: {error}") from error
        if type_of(path) == "AVRO":
            names = sorted(_avro_names(content, used=True) - _avro_names(content, used=False))
            return [self._reference(name, lambda name: self.read(_find_avro(path, name))) for name in names]
        names = sorted({ref.partition("#")[0] for ref in _json_refs(content)} - {""})
        return [
            self._reference(name, lambda name: self.read(_inside(path, path.parent / name)))
            for name in names
            if "://" not in name or name in self._elsewhere
        ]

    def _reference(self, name: str, read: Callable[[str], SchemaFile]) -> FileReference:
        if name not in self._elsewhere:
            return FileReference(name, read(name))
        self.used.add(name)
        return FileReference(name, None)

    def _imports(self, path: Path, text: str, root: Path | None) -> list[FileReference]:
        names = proto_imports(text)
        if root is None:
            root = find_root(path, [name for name in names if name not in self._elsewhere])
        found = []
        for name in names:
            if name in self._elsewhere or _inside(path, root / name, root).exists():
                found.append(self._reference(name, lambda name: self.read(root / name, root)))
            elif not name.startswith(KNOWN_IMPORTS):
                raise UsageError(
                    f"schema {path} can't be used: it imports {name!r}, which is neither below its folder nor one above"
                )
        return found


def _inside(path: Path, other: Path, root: Path | None = None) -> Path:
    """Returns the path of a file that another refers to. Raises UsageError if it is not below their folder."""
    folder = os.path.normpath((root or path.parent).absolute())
    if not Path(os.path.normpath(other.absolute())).is_relative_to(folder):
        raise UsageError(f"schema {path} can't be used: it refers to {str(other)!r}, which is not below {folder}")
    return other


# --- Avro


_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def _avro_names(schema: Any, space: str = "", *, used: bool) -> set[str]:
    """Returns the full names of types that the schema uses, or those that it defines."""
    if isinstance(schema, str):
        return (
            {schema if "." in schema or not space else f"{space}.{schema}"}
            if used and schema not in _PRIMITIVES
            else set()
        )
    if isinstance(schema, list):
        return set().union(*(_avro_names(one, space, used=used) for one in schema))
    if not isinstance(schema, dict):
        return set()
    kind = schema.get("type")
    found: set[str] = set()
    if kind in ("record", "error", "enum", "fixed"):
        name = str(schema.get("name", ""))
        space = name.rpartition(".")[0] or str(schema.get("namespace", space) or "")
        if not used:
            found.add(name if "." in name or not space else f"{space}.{name}")
        fields = schema.get("fields")
        inner = [one.get("type") for one in fields if isinstance(one, dict)] if isinstance(fields, list) else []
    elif kind in ("array", "map"):
        inner = [schema.get("items" if kind == "array" else "values")]
    else:
        inner = [kind]
    return found.union(*(_avro_names(one, space, used=used) for one in inner))


def _find_avro(path: Path, name: str) -> Path:
    """Finds the file beside `path` that defines the name."""
    folder = path.parent
    named = [folder / f"{one}.avsc" for one in (name, name.rpartition(".")[2])]
    others = sorted(folder.glob("*.avsc"))[:MOST_FILES]
    for other in dict.fromkeys([*(one for one in named if one.exists()), *others]):
        if other.resolve() == path.resolve() or not other.is_file():  # reading a FIFO would never end
            continue
        try:
            if name in _avro_names(json.loads(read_text(other)), used=False):
                return other
        except (UsageError, ValueError, RecursionError):
            continue  # a file that is not asked for
    raise UsageError(f"schema {path} can't be used: no .avsc file beside it defines the type {name}, which it uses")


# --- JSON Schema


def _json_refs(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        if isinstance(content.get("$ref"), str):
            yield content["$ref"]
        content = list(content.values())
    for one in content if isinstance(content, list) else ():
        yield from _json_refs(one)


# --- Protobuf

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?(["'])([^"'\n]+)\1\s*;""")


def proto_imports(text: str) -> list[str]:
    return list(dict.fromkeys(name for _, name in _IMPORT.findall(_COMMENT.sub(" ", text))))


def find_root(path: Path, names: list[str]) -> Path:
    """Returns the folder that the imports begin at: that of the file, or the first above it that has all of them."""
    wanted = [name for name in names if not name.startswith(KNOWN_IMPORTS)]
    folder = path.absolute().parent
    for one in [folder, *folder.parents[:_MOST_FOLDERS_UP]]:
        if all((one / name).exists() for name in wanted):
            return one
    return folder
