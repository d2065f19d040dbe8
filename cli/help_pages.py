"""The pages of `plog help`: Markdown files beside the commands, and their sections on findings."""

from __future__ import annotations

import re
from importlib.resources import files

OTHER_NAMES = {
    "checksum": "crc",
    "crc-32c": "crc",
    "hw": "high-watermark",
    "in-sync-replicas": "isr",
    "kafkacat": "kcat",
    "last-stable-offset": "lso",
    "profile": "config-file",
    "rebalance": "consumer-group",
}
"""Other words -> the page that explains them."""

_PAGES = files(__package__) / "help"
_FINDING = re.compile(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def page_names() -> list[str]:
    return sorted(page.name.removesuffix(".md") for page in _PAGES.iterdir() if page.name.endswith(".md"))


def page(name: str) -> str:
    """A page as Markdown, its title first."""
    return (_PAGES / f"{name}.md").read_text(encoding="utf-8")


def title(name: str) -> str:
    return page(name).split("\n", 1)[0].removeprefix("# ")


def findings() -> dict[str, str]:
    """For each finding of `plog verify`, by its code, a short page of its own."""
    return {
        code: f"# {code}\n\n- severity: {severity}\n- what is wrong: {wrong}\n- how to repair it: {repair}\n\n"
        "See also: `plog help findings`.\n"
        for code, severity, wrong, repair in _FINDING.findall(page("findings"))
    }
