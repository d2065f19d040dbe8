"""What is fetched from elsewhere is named by its content, and what is published goes to nobody but this machine."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.for_each import for_each

ROOT = Path(__file__).parents[2]
PUBLISHED = [ROOT / "Dockerfile", ROOT / "compose.yaml", ROOT / "README.md", *ROOT.glob("docs/**/*.md")]


@for_each("name", ["requirements.lock", "requirements-image.lock"])
def test_each_locked_package_has_hashes(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    packages = [line for line in text.splitlines() if not line.startswith("#")]
    assert packages
    for line in packages:
        assert re.match(r"[\w.-]+==\S+", line), line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line


def test_the_image_has_the_versions_that_are_tested() -> None:
    tested, shipped = (
        set(re.findall(r"^[\w.-]+==\S+", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-image.lock")
    )
    assert shipped <= tested


def test_the_image_is_made_of_what_is_named_by_its_content() -> None:
    text = (ROOT / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases
    for base in bases:
        assert re.fullmatch(r"[\w.:/-]+@sha256:[0-9a-f]{64}", base)
    for install in re.findall(r"pip install (.*)", text):
        assert "--require-hashes" in install or install.endswith("--no-deps /src")


def test_actions_of_others_are_named_by_their_commit() -> None:
    text = (ROOT / "action.yml").read_text()
    for used in re.findall(r"^\s+uses: (\S+)", text, re.MULTILINE):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", used)
    assert "/tmp" not in text


def test_no_port_is_published_on_all_addresses() -> None:
    """This machine's own, or one address of a network, which a page says who needs."""
    found = []
    for path in PUBLISHED:
        text = path.read_text()
        found += re.findall(r"docker run[^\n]*(?:-p|--publish)[ =](\S+)", text)
        found += re.findall(r'ports: \["([^"]+)"', text)
    assert found
    assert [port for port in found if not port.startswith(("127.0.0.1:", "10.0.0.5:"))] == []
