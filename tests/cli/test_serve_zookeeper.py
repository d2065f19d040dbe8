"""`plog serve` with a configuration that names a ZooKeeper: it joins a cluster by `--zookeeper` alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import run

_JOINS_NOTHING = """\
warning: zookeeper.connect joins no cluster: what is here is served by a broker of its own
hint: --zookeeper zk:1//x joins the cluster, with the same data directory and node id
"""
_ANOTHER = "warning: zookeeper.connect is zk:1//x, and --zookeeper wins: zk:2//x\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--read-only"], _JOINS_NOTHING),
        (["--zookeeper", "zk:1//x"], ""),
        (["--zookeeper", "zk:2//x"], _ANOTHER),
    ],
)
def test_a_configuration_alone_joins_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """A copy of a broker's disk comes with its server.properties: whoever looks at it must not join by that. What is
    started here ends with an error: there is no such directory, and //x is no chroot.
    """
    config = tmp_path / "server.properties"
    config.write_text("zookeeper.connect=zk:1//x\nbroker.id=3\n")
    directory = str(tmp_path / "missing")
    assert run(["serve", "--config", str(config), "--data-dir", directory, "--listen", ":0", *arguments]) != 0
    warnings, error, _ = capsys.readouterr().err.partition("error: ")
    assert (warnings, error) == (said, "error: ")
