"""The names of APIs, held against kio, another implementation, and docs/protocol.md, made of Kafka's definitions."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import kio.schema

from core.protocol.api_names import API_NAMES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "protocol.md"


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def test_kios_names() -> None:
    theirs: dict[int, str] = {}
    for module in pkgutil.iter_modules(kio.schema.__path__):
        folder = Path(str(kio.schema.__path__[0])) / module.name
        request = min(folder.glob("v*/request.py"), default=None)  # none of records, and of headers
        if request is not None:
            found = vars(importlib.import_module(f"kio.schema.{module.name}.{request.parent.name}.request"))
            keys = {int(one.__api_key__) for one in found.values() if hasattr(one, "__api_key__")}
            theirs |= dict.fromkeys(keys, module.name)
    assert len(theirs) > 70
    assert {key: snake_case(API_NAMES[key]) for key in theirs} == theirs


def test_the_documents_names() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert len(rows) > 60
    assert {int(key): name for key, name in rows}.items() <= API_NAMES.items()
