"""Replays into HDFS (a MiniDFSCluster) and S3 (moto): what their folders promise, and a replay that is killed.

`scripts/torture --spark-stores` runs them: their jars are 760 MB.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from core.common.errors import AccessError, DirectoryLockedError
from core.spark.lake_folder import HadoopFolder
from core.spark.replay import Replay
from core.spark.spark_session import spark_session
from core.spark.spark_settings import SparkSettings
from tests.interop.test_spark_lake import RECORDS, command, data_dir  # noqa: F401 - a fixture
from tests.support.free_ports import free_ports
from tests.support.oracle import fetch_jars
from tests.support.server import PLOG, run_plog
from tests.support.waiting import wait_until

MOTO = os.environ.get("PLOG_TORTURE_MOTO", "")
pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(not MOTO, reason="only scripts/torture --spark-stores fetches their jars"),
]
HERE = Path(__file__).parents[1] / "support" / "spark"


@contextmanager
def hdfs(directory: Path) -> Iterator[tuple[str, list[str]]]:
    jars = fetch_jars(HERE / "hdfs-pom.xml", "hdfs")
    node = ["java", "-cp", f"{jars}/*", str(HERE / "MiniDfs.java"), str(directory)]
    with (directory.with_suffix(".log")).open("w") as log:
        process = subprocess.Popen(node, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), []


@contextmanager
def s3(directory: Path) -> Iterator[tuple[str, list[str]]]:
    jars, port = fetch_jars(HERE / "s3-pom.xml", "s3", "-DexcludeArtifactIds=hadoop-client-api"), free_ports(1)[0]
    address = f"http://127.0.0.1:{port}"
    settings = {
        "endpoint": address, "endpoint.region": "us-east-1", "path.style.access": "true",
        "connection.ssl.enabled": "false", "aws.credentials.provider":
        "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    }  # fmt: skip
    conf = [f"spark.driver.extraClassPath={jars}/*", *(f"spark.hadoop.fs.s3a.{k}={v}" for k, v in settings.items())]

    def made() -> bool:
        try:
            with urlopen(Request(f"{address}/bucket", method="PUT")):
                return True
        except OSError:
            return False

    with (directory.with_suffix(".log")).open("w") as log:
        process = subprocess.Popen([MOTO, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        wait_until(made, "moto")
        yield "s3a://bucket", conf
    finally:
        process.kill()
        process.wait()


STORES = {"s3": s3, "hdfs": hdfs}
"""S3 first: this process keeps the JVM, with the jars of its start."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a")


@pytest.mark.parametrize("store", STORES)
def test_a_folder_does_what_it_promises(tmp_path: Path, store: str) -> None:
    with (
        STORES[store](tmp_path / "store") as (url, conf),
        spark_session(SparkSettings.of("local[1]", "", conf), tmp_path) as session,
    ):
        folder = HadoopFolder(session, f"{url}/a b")
        assert folder.is_exclusive
        assert (folder.read("x"), folder.names(), folder.sizes(), folder.rename("x", "y")) == (None, None, {}, False)
        folder.delete("x")
        assert folder.create("_plog/x", b"1")
        assert not folder.create("_plog/x", b"2")
        folder.replace("_plog/y", b"23")
        folder.replace("_plog/y", b"234")
        assert (folder.read("_plog/x"), folder.read("_plog/y"), folder.names("_plog")) == (b"1", b"234", ["x", "y"])
        assert folder.rename("_plog/y", "k=a%20b/z")
        assert not folder.rename("_plog/y", "k=a%20b/z")
        assert folder.rename("_plog/x", "k=a%20b/z")  # over the one that is there
        assert folder.sizes() == {"k=a%20b/z": 1}
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(lambda n: folder.create("_plog/one", b"%d" % n), range(8))) == 1
        folder.delete("_plog")
        with Replay(folder).locked(), pytest.raises(DirectoryLockedError), Replay(folder).locked():
            pass
        folder.delete("")
        assert folder.names() is None
        with pytest.raises(AccessError, match="could not use"):
            HadoopFolder(session, "hdfs://127.0.0.1:1/x" if store == "hdfs" else "s3a://no-such-bucket/x")


@pytest.mark.parametrize("store", STORES)
def test_a_replay_that_is_killed_goes_on(data_dir: Path, tmp_path: Path, store: str) -> None:  # noqa: F811
    with STORES[store](tmp_path / "store") as (url, conf):
        settings = [option for one in conf for option in ("--conf", one)]
        replay = command(data_dir, f"json:{url}/out", "--partition-by", "key", *settings, range_size="500")
        with subprocess.Popen([PLOG, *replay], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert any(line.startswith("replaying ") for line in process.stderr)
            process.kill()
        done = run_plog(*replay)
        assert done.returncode == 0, done.stderr
        assert f"{RECORDS} records in ".encode() in done.stderr
        assert b"is done already" in run_plog(*replay).stderr
        verified = run_plog("spark-replay", "--verify", f"{url}/out", "--master", "local[2]", *settings)
        assert b"exact: as the manifest and the log say" in verified.stderr
