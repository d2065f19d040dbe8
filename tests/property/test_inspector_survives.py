"""Whatever lies in a file of a Kafka disk, the inspector says what is wrong: no traceback, nothing changed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import GOLDEN
from tests.support.server import call_plog

NAMES = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000005.snapshot",
    "00000000000000000005-0000000001.checkpoint",
    "leader-epoch-checkpoint",
    "damaged-ranges",
    "partition.metadata",
    "meta.properties",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
]
SAMPLES = {
    "00000000000000000000.log": GOLDEN / "txn_aborted",
    "00000000000000000000.index": GOLDEN / "multisegment",
    "00000000000000000000.timeindex": GOLDEN / "multisegment",
    "00000000000000000000.txnindex": GOLDEN / "txn_aborted",
    "00000000000000000030.snapshot": GOLDEN / "txn_aborted",
    "00000000000000000275-0000000001.checkpoint": GOLDEN / "__cluster_metadata-0",
    "leader-epoch-checkpoint": GOLDEN / "multisegment",
    "partition.metadata": GOLDEN / "multisegment",
    "meta.properties": GOLDEN / "_root",
    "recovery-point-offset-checkpoint": GOLDEN / "_root",
}
TEXT = st.text('0123456789 \n-.=:{}[]"abcvtopic_id\x00é٣', max_size=60).map(str.encode)
COMMANDS = [["dump-segment", "--format", f, "--print-data-log"] for f in ("kafka", "ndjson", "csv", "table", "arrow")]
COMMANDS += [["verify"], ["dump-segment", "--verify-index-only"], ["dump-segment", "--index-sanity-check"]]


def inspect(path: Path, content: bytes, command: list[str]) -> None:
    path.write_bytes(content)
    done = call_plog(*command, str(path))
    message = done.stderr.decode()
    assert done.returncode in (0, 1), message
    assert "Traceback" not in message
    assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    path.mkdir()
    return path


@pytest.mark.parametrize("name", NAMES)
@given(content=st.one_of(st.binary(max_size=200), TEXT), command=st.sampled_from(COMMANDS))
def test_any_bytes(name: str, content: bytes, command: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "t-0"
        folder.mkdir()
        inspect(folder / name, content, command)


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data(), command=st.sampled_from(COMMANDS))
def test_changed_bytes(name: str, data: st.DataObject, command: list[str]) -> None:
    """A sound file with some bytes changed, cut out or put in."""
    content = bytearray((SAMPLES[name] / name).read_bytes()[:3000])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        some = data.draw(st.binary(min_size=1, max_size=4))
        width = data.draw(st.sampled_from([0, len(some), 40]))
        content[at : at + width] = some
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / SAMPLES[name].name
        folder.mkdir()
        inspect(folder / name, bytes(content), command)


@pytest.mark.parametrize("name", ["txn_aborted", "multisegment", "codec_zstd_java", "mixed_v0_v1_v2"])
@given(data=st.data())
def test_a_partition_with_changed_bytes(name: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "t-0"
        shutil.copytree(GOLDEN / name, folder)
        path = data.draw(st.sampled_from(sorted(folder.iterdir())))
        content = bytearray(path.read_bytes())
        if not content:
            return
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        before = {p.name: p.read_bytes() for p in folder.iterdir()}
        for command in (["verify"], ["dump-segment", "--print-data-log"]):
            done = call_plog(*command, str(folder))
            assert done.returncode in (0, 1), done.stderr.decode()
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
