"""`--conf`, Spark's configuration files and plog's defaults, in one file that only its owner reads. No Spark here."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import AccessError, UsageError
from core.spark.spark_session import _start
from core.spark.spark_settings import SparkSettings, parse_conf, settings_file
from tests.support.for_each import for_each


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spark-defaults.conf of the user."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    (tmp_path / "conf").mkdir()
    return tmp_path / "conf" / "spark-defaults.conf"


def written(path: Path, settings: SparkSettings) -> tuple[str, str]:
    """The file, and what PySpark would pass to spark-submit."""
    with settings_file(path, {"spark.ui.enabled": "false"}, settings):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        found = path.read_text(), os.environ["PYSPARK_SUBMIT_ARGS"]
    assert not path.exists()
    return found


def test_the_users_settings_come_after_plogs(defaults: Path, tmp_path: Path) -> None:
    defaults.write_text("spark.ui.enabled true\nspark.executor.memory 2g\\")
    text, arguments = written(
        tmp_path / "a b.conf",
        SparkSettings("local", "night", {"spark.executor.memory": "4g", "spark.x": "a\\b = c\nd"}),
    )
    assert text == (
        "spark.ui.enabled=false\n\n\n"
        "spark.ui.enabled true\nspark.executor.memory 2g\\\n\n"
        "spark.executor.memory=4g\nspark.x=a\\\\b\\ \\=\\ c\\nd\nspark.app.name=night\n"
    )
    assert arguments == f"--properties-file '{tmp_path}/a b.conf' pyspark-shell"
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


@for_each(
    "arguments, passed, has",
    [
        ("--jars a.jar pyspark-shell", "--jars a.jar pyspark-shell", "of-defaults"),
        ("--properties-file {0}/own pyspark-shell", "pyspark-shell", "of-own"),
        ("--load-spark-defaults --properties-file={0}/own pyspark-shell", "pyspark-shell", "of-defaults of-own"),
    ],
)
def test_what_the_user_says_to_spark_submit(
    arguments: str, passed: str, has: str, defaults: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults.write_text("spark.a of-defaults")
    (tmp_path / "own").write_text("spark.b of-own")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments.format(tmp_path))
    text, found = written(tmp_path / "spark.conf", SparkSettings("local"))
    assert [word for word in ("of-defaults", "of-own") if word in text] == has.split()
    assert found == f"--properties-file {tmp_path}/spark.conf {passed}"
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == arguments.format(tmp_path)


@for_each(
    "text, given, master",
    [
        ("", "", "local[*]"),
        ("", "yarn", "yarn"),
        ("spark.master spark://a:7077", "", "spark://a:7077"),
        ("spark.master=yarn\n# spark.master local\nspark.master.x y\n  spark.master : local[2]", "", "local[2]"),
        ("spark.master yarn", "local", "local"),
    ],
)
def test_the_master_of_sparks_configuration(text: str, given: str, master: str, defaults: Path) -> None:
    defaults.write_text(text)
    assert SparkSettings.of(given, "", ()).master == master


@for_each("master", ["mesos://a:5050", "local[two]", "localhost", "spark:a:7077", "k8s", "https://a:6443"])
def test_a_master_that_spark_does_not_know(master: str, defaults: Path) -> None:
    defaults.write_text("")
    with pytest.raises(UsageError, match=r"Spark knows no such master"):
        SparkSettings.of(master, "", ())


def test_a_configuration_that_can_not_be_read(defaults: Path) -> None:
    defaults.mkdir()
    with pytest.raises(AccessError, match=r"could not read .*spark-defaults.conf"):
        SparkSettings.of("", "", ())


def test_settings_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    given = (
        "spark.a=1", "spark.a = 2", "spark.b=x=y", "spark.c=", "spark.hadoop.fs.s3a.secret.key=${env:KEY}",
        "spark.kubernetes.authenticate.oauthTokenFile=/run/token", "spark.hadoop.fs.s3a.secret.key=${env:KEY}",
        "spark.hadoop.fs.azure.account.oauth.provider.type=ClientCredsTokenProvider",
    )  # fmt: skip
    found = parse_conf(given)
    assert found["spark.a"] == "2"
    assert found["spark.b"] == "x=y"
    assert found["spark.c"] == ""
    assert found["spark.hadoop.fs.s3a.secret.key"] == "s3cret"
    assert "s3cret" not in repr(SparkSettings("local", "", found))


@for_each(
    "given, said, hint",
    [
        ("a", "--conf a: expected NAME=VALUE", "--conf spark.executor.memory=4g"),
        ("=1", "--conf =1: expected NAME=VALUE", "--conf spark.executor.memory=4g"),
        ("x=1", "--conf x: Spark passes over names that do not begin with spark.", None),
        (
            "fs.s3a.endpoint=e",
            "--conf fs.s3a.endpoint: Spark passes over names that do not begin with spark.",
            "--conf spark.hadoop.fs.s3a.endpoint=.. hands it to Hadoop",
        ),
        ("spark.master=yarn", "--conf spark.master can't be set: --master names it", None),
        ("spark.app.name=n", "--conf spark.app.name can't be set: --name names it", None),
        (
            "spark.submit.deployMode=cluster",
            "--conf spark.submit.deployMode can't be set: the driver is this command: its mode is client",
            None,
        ),
        (
            "spark.sql.session.timeZone=CET",
            "--conf spark.sql.session.timeZone can't be set: a replay's times are UTC on all machines",
            None,
        ),
        (
            "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net=abc",
            ("--conf spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net: other users can see a secret on the "
            "command line, and the shell keeps it"),
            ("spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net in SPARK_CONF_DIR/spark-defaults.conf, or "
            "--conf 'spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net=${env:NAME}'"),
        ),
        ("spark.ssl.keyPassword=${env:NOT_THERE}", ("--conf: spark.ssl.keyPassword: ${env:NOT_THERE}: the environment "
         "has no NOT_THERE"), "export NOT_THERE=.."),
    ],
)  # fmt: skip
def test_settings_that_are_refused(given: str, said: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse_conf([given])
    assert caught.value.message == said
    assert caught.value.hint == hint
    assert "abc" not in str(caught.value)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a session is started with, once `_start` was called: no JVM is. `file` is its settings file."""
    spark = pytest.importorskip("pyspark.sql", reason="the extra spark is not installed")
    for name in ("PYTHONSAFEPATH", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr("core.spark.spark_session.java_environment", lambda _: {})
    found: dict[str, str] = {}

    def start(builder: Any) -> None:
        found.update(builder._options)
        found["file"] = (tmp_path / "spark.conf").read_text()

    monkeypatch.setattr(spark.SparkSession.Builder, "getOrCreate", start)
    return found


@pytest.mark.longer
def test_what_plog_sets_after_the_user_is_refused_from_the_user(
    defaults: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: dict[str, str]
) -> None:
    """So no setting that --conf takes is set again behind it."""
    monkeypatch.setenv("PLOG_MAX_EXPANSION", "1G")
    settings = SparkSettings("local", conf={"spark.executorEnv.PLOG_MAX_EXPANSION": "2G"})
    _start(settings, tmp_path, tmp_path / "log", is_light=False)
    lines = started.pop("file").splitlines()
    of_limit = [line for line in lines if line.startswith("spark.executorEnv.PLOG_MAX_EXPANSION")]
    assert [line.rpartition("=")[2] for line in of_limit] == ["1G", "2G"]
    assert "spark.sql.session.timeZone" in started
    for name in started:
        with pytest.raises(UsageError, match="can't be set"):
            parse_conf([f"{name}=x"])


@pytest.mark.longer
@pytest.mark.parametrize("is_light", [True, False])
def test_a_light_jvm_does_without_its_second_compiler(
    is_light: bool, defaults: Path, tmp_path: Path, started: dict[str, str]
) -> None:
    """Spark puts the default options before the extra ones, and a JVM takes the later of two."""
    settings = SparkSettings("local", conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"})
    _start(settings, tmp_path, tmp_path / "log", is_light=is_light)
    options = dict(re.findall(r"^spark\.driver\.(\w+)=(.*)$", started["file"].replace("\\", ""), re.MULTILINE))
    assert options["defaultJavaOptions"].endswith(" -XX:TieredStopAtLevel=1") == is_light
    assert options["extraJavaOptions"] == "-XX:TieredStopAtLevel=4"
    assert "-Duser.timezone=UTC" in options["defaultJavaOptions"]
    record = logging.LogRecord("root", logging.ERROR, "py4j/java_gateway.py", 1, "Exception", (), None)
    assert not logging.getLogger().filter(record)  # as when the command is stopped
