"""What scripts/release does: gathers the changelog, builds and checks the packages, looks for wheels."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_13_0_x86_64", "macosx_13_0_arm64")
WITHOUT_WHEELS = ("crcmod",)
"""Installs from its sdist, without a compiler too (docs/dependencies.md)."""


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case []:
            return build()
        case ["--gather", version] if re.fullmatch(r"\d+\.\d+\.\d+", version):
            return gather(version)
        case ["--wheels"]:
            return look_for_wheels()
    print("usage: scripts/release [--gather MAJOR.MINOR.PATCH | --wheels]", file=sys.stderr)
    return 2


def gather(version: str) -> int:
    """Moves the fragments into CHANGELOG.md, as a list in the order of their names, and sets the version."""
    changelog = ROOT / "CHANGELOG.md"
    text = changelog.read_text()
    if f"\n## {version}\n" in text:
        print(f"error: CHANGELOG.md has {version} already", file=sys.stderr)
        return 1
    fragments = sorted(path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md")
    items = "".join(f"- {fragment.read_text().strip().replace(chr(10), chr(10) + '  ')}\n" for fragment in fragments)
    title, _, older = text.partition("\n## ")
    changelog.write_text(f"{title}\n## {version}\n\n{items}\n## {older}")
    for file, pattern in (("pyproject.toml", r'(?m)^version = ".*"'), ("core/__init__.py", r'(?m)^VERSION = ".*"')):
        path = ROOT / file
        path.write_text(
            re.sub(pattern, lambda found: f'{found[0].split("=")[0]}= "{version}"', path.read_text(), count=1)
        )
    for fragment in fragments:
        fragment.unlink()
    print(f"CHANGELOG.md has {len(fragments)} changes of {version}: read and group them by hand, then commit")
    return 0


def build() -> int:
    """Builds what would be uploaded, and checks that it says what the repository says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    if f"\n## {version}\n" not in (ROOT / "CHANGELOG.md").read_text():
        print(f"error: CHANGELOG.md has no section {version}", file=sys.stderr)
        return 1
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    _run("build", "--no-isolation", "--outdir", str(dist), str(ROOT))
    files = sorted(dist.iterdir())
    expected = [f"plog_kafka-{version}-py3-none-any.whl", f"plog_kafka-{version}.tar.gz"]
    if [file.name for file in files] != expected:
        print(f"error: dist/ has {[file.name for file in files]}, expected {expected}", file=sys.stderr)
        return 1
    _run("twine", "check", "--strict", *map(str, files))
    waiting = len(list((ROOT / "changes").glob("*.md"))) - 1
    print(f"\ndist/ has {project['name']} {version}. What is left to do, by hand:")
    if waiting:
        print(
            f"  0. changes/ has {waiting} fragments that are not in it: scripts/release --gather VERSION, or leave them"
        )
    print("  1. .ci/run passes on this commit; scripts/release --wheels")
    print("  2. docker build -t plog . and docker run --rm plog --version")
    print(f"  3. git tag -s v{version} && git push --tags")
    print("  4. twine upload dist/*   (first to the test index, and install it from there)")
    return 0


def look_for_wheels() -> int:
    """Whether a machine without a compiler could install plog: for each platform the locked versions, wheels alone."""
    lacking = 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [requirement for requirement in project["dependencies"] if not requirement.startswith(WITHOUT_WHEELS)]
    for platform in PLATFORMS:
        with tempfile.TemporaryDirectory() as target:
            arguments = [
                "download",
                "--quiet",
                "--only-binary=:all:",
                "--platform",
                platform,
                "--python-version",
                "3.11",
            ]
            arguments += [
                "--platform",
                platform.replace("2_28", "2_17"),
                "--platform",
                platform.replace("13_0", "11_0"),
            ]
            versions = Path(target, "versions")  # without hashes, which pip would ask of everything then
            locked = (ROOT / "requirements.lock").read_text().splitlines()
            versions.write_text("\n".join(line.removesuffix(" \\") for line in locked if "--hash" not in line))
            arguments += ["--constraint", str(versions), "--dest", target, *wanted]
            done = subprocess.run(
                [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False
            )
        print(f"{platform}: {'wheels for everything' if done.returncode == 0 else done.stderr.strip()}")
        lacking += done.returncode != 0
    return 1 if lacking else 0


def _run(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
