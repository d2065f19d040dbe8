"""The page of `plog stats --html`: what is wrong, who reads the logs, and their maps, as other commands say it."""

from __future__ import annotations

import json
import re
import shutil
import struct
from html.parser import HTMLParser
from pathlib import Path
from random import Random

import pytest

from cli.report.map_svg import map_svg
from core.pipeline.frontend import Progress
from core.pipeline.session import Session
from core.pipeline.stats_account import account_for
from core.view.figures.partition_map import read_map
from core.view.figures.stats_report import make_report
from tests.support.damage import plant, write_log
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA, directories
from tests.support.logs import fingerprint, make_batch
from tests.support.server import Server, call_plog

VOID = {"meta", "line", "rect"}
EVIL = '<img src="x">\x1b[2J\u202e'


class Page(HTMLParser):
    """What a reader sees of a page. Asserts that tags are closed, and that nothing is asked for from elsewhere."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.lines: list[str] = []
        self.titles: list[str] = []
        self.rects: list[tuple[str, float, float]] = []
        self.source = source
        assert source.startswith("<!doctype html>")
        assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", source) is None
        assert "url(" not in source
        assert "@import" not in source
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "link", "iframe", "object", "base", "form", "a"), tag
        for name, _ in attrs:
            assert name not in ("src", "href", "srcset", "xlink:href") and not name.startswith("on"), name
        if tag == "rect" and (kind := dict(attrs).get("class")) is not None and dict(attrs).get("x") is not None:
            x, width = (float(str(dict(attrs)[name]).removesuffix("%")) for name in ("x", "width"))
            self.rects.append((kind, x, width))
        if tag not in ("meta", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID, tag
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "line"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            (self.titles if self.open[-1] == "title" else self.lines).append(data)

    def has(self, *texts: str) -> bool:
        """Says whether these follow each other."""
        count = len(texts)
        return any(tuple(self.lines[at : at + count]) == texts for at in range(len(self.lines)))


def page_of(tmp_path: Path, *arguments: str | Path, code: int | None = None) -> Page:
    path = tmp_path / "report.html"
    done = call_plog("stats", *map(str, arguments), "--html", str(path))
    assert code is None or done.returncode == code, done.stderr
    return Page(path.read_text())


def ensure_findings(page: Page, *paths: Path) -> None:
    """Asserts that every line that `plog verify` prints is on the page, and that it names how many there are."""
    said = call_plog("verify", *map(str, paths)).stdout.decode().splitlines()
    for line in said:
        assert line in page.lines
    assert page.has(f"{len(said):,}", "findings")


def ensure_gaps(page: Page, *paths: Path) -> None:
    """Asserts that every gap that `plog gaps` lists is on the page, with its reason and evidence."""
    rows = json.loads(call_plog("gaps", *map(str, paths), "--output", "json").stdout)
    lost = 0
    for row in rows:
        last = row["end_offset"] - 1
        offsets = f"{row['start_offset']}-{last}" if row["count"] > 1 else str(last)
        assert page.has(offsets, f"{row['count']:,}", row["reason"], row["evidence"])
        lost += row["count"] * (row["reason"] in ("damaged", "missing", "truncated", "unknown"))
    assert page.has(f"{lost:,}", "offsets lost or unexplained")


def test_findings_and_gaps_are_those_of_verify_and_gaps(tmp_path: Path) -> None:
    before = fingerprint(SAMPLE_DATA)
    for place, code in ((SAMPLE_DATA / "damaged", 1), (SAMPLE_DATA / "partition", 0)):
        page = page_of(tmp_path, place, code=code)
        ensure_findings(page, place)
        ensure_gaps(page, place)
    assert fingerprint(SAMPLE_DATA) == before


@for_each("folder", directories("*.corrupt")[::3])
def test_a_damaged_folder_has_its_findings_gaps_and_map(folder: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, folder)
    ensure_findings(page, folder)
    ensure_gaps(page, folder)
    for name in ("segments", "damage", "transactions"):
        assert name in page.lines


def test_files_beside_the_logs_and_a_log_alone(tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(SAMPLE_DATA / "damaged", root)
    (root / "recovery-point-offset-checkpoint").write_text("nonsense")
    page = page_of(tmp_path, root, code=1)
    ensure_findings(page, root)
    assert "Findings of files beside the logs" in page.lines
    log = root / "c_bitflip_middle-0" / "00000000000000000000.log"
    page = page_of(tmp_path, log, code=1)
    ensure_findings(page, log)
    assert "Map" not in page.lines, "the place of a segment in its log is not looked for"
    both = page_of(tmp_path, root / "c_torn_tail-0", root / "c_bitflip_middle-0", code=1)
    ensure_findings(both, root / "c_torn_tail-0", root / "c_bitflip_middle-0")


def test_a_topic_of_a_data_directory_has_no_findings_of_others(tmp_path: Path) -> None:
    root = Path(shutil.copytree(SAMPLE_DATA / "damaged", tmp_path / "data"))
    page = page_of(tmp_path, "c_torn_tail", "--data-dir", root, code=1)
    ensure_findings(page, root / "c_torn_tail-0")


def test_the_map_is_to_scale(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    random = Random(11)
    write_log(folder, random, 60)
    planted = plant(folder, random)
    assert planted.first is not None
    page = page_of(tmp_path, folder, code=1)
    logs = sorted(folder.glob("*.log"))
    sizes = [path.stat().st_size for path in logs]
    whole = sum(sizes)
    drawn = page.rects[: len(sizes)]
    assert [round(width, 1) for _, _, width in drawn] == [round(100 * size / whole, 1) for size in sizes]
    assert [kind for kind, _, _ in drawn] == [("plain", "odd")[number % 2] for number in range(len(sizes))]
    path, position = planted.first
    at = 100 * (sum(sizes[: logs.index(path)]) + position) / whole
    assert any(kind in ("grave", "mild") and x - 0.5 <= at <= x + width + 0.5 for kind, x, width in page.rects)
    assert any(title.startswith("an error: bytes ") for title in page.titles)


def test_a_map_of_very_many_segments_stays_small(tmp_path: Path) -> None:
    for number in range(600):
        batch = bytes(make_batch(b"x").buffer)
        (tmp_path / f"{number:020d}.log").write_bytes(struct.pack(">q", number) + batch[8:])
    svg = map_svg(read_map(tmp_path, []).find_open())
    assert svg.count("<title>not looked for: ") == 1, "neighbours with one sign are drawn as one"
    assert '<text x="50.00%"' in svg, "its letter has the colour of the text, not that of letters on a dark ground"
    assert svg.partition('<ul class="legend">')[2].count("</b>") == 2, "damage is not looked for, transactions are none"
    assert 200 < svg.count("<rect") < 300
    assert len(svg) < 60_000
    assert "of log from left to right, 600 segments" in svg
    assert "open transactions are not known: too much of the log follows its newest snapshot" in svg


@pytest.mark.longer
def test_groups_are_those_of_group_describe_and_nothing_of_a_log_becomes_a_tag(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with Server(root) as server:
        at = ("--bootstrap-server", server.address)
        lines = b"".join(b"%s\t%d\n" % (EVIL.encode(), number) for number in range(30))
        assert call_plog("produce", "t", "--key-separator", "\t", *at, stdin=lines).returncode == 0
        for group, count in ((f"{EVIL}readers", "20"), ("all", "30")):
            call_plog("consume", "t", "--group", group, "--max-messages", count, *at)
        live = page_of(tmp_path, "t", *at, code=0)
        expected = json.loads(call_plog("group", "describe", "all", "--output", "json", *at).stdout)
    page = page_of(tmp_path, root / "t-0", code=0)
    for one in (live, page):
        assert "all: Empty, 0 members, lag 0 records" in one.lines
        assert r'<img src="x">\x1b[2J\u202ereaders: Empty, 0 members, lag 10 records' in one.lines
        assert one.has("t-0", "30", "30", "0")
        assert one.has("t-0", "20", "30", "10")
        assert any(line.startswith(r'<img src="x">\x1b[2J\u202e') for line in one.lines[one.lines.index("Keys") :])
    assert [(row["offset"], row["end_offset"], row["lag"]) for row in expected] == [(30, 30, 0)]
    assert "Map" in page.lines
    assert "Map" not in live.lines, "nobody knows a server's segments"


def test_what_can_not_be_read_is_said_and_the_rest_is_there(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    first = min(folder.glob("*.log"))
    first.unlink()
    first.mkdir()
    page = page_of(tmp_path, folder, code=1)
    ensure_findings(page, folder)
    ensure_gaps(page, folder)
    assert any(line.startswith(f"{first.name} can't be read") for line in page.lines)
    assert call_plog("stats", str(tmp_path / "none"), "--html", str(tmp_path / "r.html")).returncode == 3


def test_the_figures_stay_as_they_are(tmp_path: Path) -> None:
    """Whoever wants no page gets no checks, which read all once more."""

    class Nobody(Progress):
        def add(self, count: int, size_bytes: int = 0) -> None: ...

        def done(self) -> None: ...

    session = Session(directory=tmp_path)
    plain = account_for([str(SAMPLE_DATA / "partition")], session, Nobody())
    checked = account_for([str(SAMPLE_DATA / "partition")], session, Nobody(), with_checks=True)
    assert plain.figures == checked.figures
    assert (plain.checks, plain.beside) == ({}, [])
    report = make_report(checked, session)
    assert report.logs.keys() == plain.figures.keys()
