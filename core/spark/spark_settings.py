"""The settings that Spark starts with: plog's defaults, Spark's own configuration file, `--conf`, and `--name`.

They become one properties file, in this order: of two lines with one name, Java takes the later. (PySpark would put
them into the command line of its JVM, where other users see them.) The file may hold secrets: its owner alone can read
it, and it is gone when Spark has started. What must hold whatever the user says, `spark_session.py` sets after it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from core.common.errors import UsageError
from core.common.filesystem import access_error

_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_DEFAULT_MASTER = "local[*]"
_MASTERS = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|spark://.+|yarn|k8s://.+")
_OWNED = {
    "spark.master": "--master names it",
    "spark.app.name": "--name names it",
    "spark.submit.deployMode": "the driver is this command: its mode is client",
    "spark.sql.session.timeZone": "a replay's times are UTC on all machines",
    "spark.executorEnv.PYTHONSAFEPATH": "plog sets it, so that no file of a working directory stands in for a module",
    "spark.pyspark.python": "PYSPARK_PYTHON in the environment names it",
    "spark.pyspark.driver.python": "the driver's Python is the one that runs plog",
    "spark.remote": "a replay needs a driver of its own, not Spark Connect",
    "spark.api.mode": "a replay needs a driver of its own, not Spark Connect",
}
"""Settings that --conf can't have, and why."""

_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|account[.]?key")
"""Spark's default of spark.redaction.regex, and the keys of Azure's stores."""
_NAMES_NO_SECRET = re.compile(
    r"(?i)(file|path|dir|url|uri|endpoint|enabled|type|class|provider|algorithm|timeout|ttl)$"
)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What the user says of Spark on the command line. `conf` has secrets in it; `name` may be empty."""

    master: str
    name: str = ""
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, master: str, name: str, given: Sequence[str]) -> SparkSettings:
        """Takes an empty master from Spark's configuration file, else it is local. Raises UsageError as `parse_conf`
        does, and for a master that Spark does not know; AccessError if a configuration file can't be read.
        """
        files, _ = _configuration_files()
        master = master or _master_of(_read_files(files))
        if not _MASTERS.fullmatch(master):
            raise UsageError(
                f"--master {master}: Spark knows no such master, expected local[CORES], spark://HOST:PORT, yarn or "
                "k8s://https://HOST:PORT"
            )
        return cls(master, name, parse_conf(given))


def parse_conf(given: Sequence[str]) -> dict[str, str]:
    """Parses `--conf NAME=VALUE`, with what `${env:..}` and `${file:..}` refer to. Raises UsageError for a text without
    a name and an equals sign, for a name that Spark or plog does not take, and for a secret that is written out.
    """
    if not given:
        return {}
    from core.client.net.client_config_files import is_reference, replace_references

    found = {}
    for one in given:
        name, separator, value = one.partition("=")
        name = name.strip()
        if not separator or not name:
            raise UsageError(f"--conf {name or one}: expected NAME=VALUE", hint="--conf spark.executor.memory=4g")
        if not name.startswith("spark."):
            hint = f"--conf spark.hadoop.{name}=.. hands it to Hadoop" if name.startswith(("fs.", "dfs.")) else None
            raise UsageError(f"--conf {name}: Spark passes over names that do not begin with spark.", hint=hint)
        if name in _OWNED:
            raise UsageError(f"--conf {name} can't be set: {_OWNED[name]}")
        value = value.strip()
        if _SECRET.search(name) and not _NAMES_NO_SECRET.search(name) and value and not is_reference(value):
            raise UsageError(
                f"--conf {name}: other users can see a secret on the command line, and the shell keeps it",
                hint=f"{name} in SPARK_CONF_DIR/spark-defaults.conf, or --conf '{name}=${{env:NAME}}'",
            )
        found[name] = value
    return replace_references(found, "--conf")


# --- Spark's own configuration


def _configuration_files() -> tuple[list[Path], list[str]]:
    """Finds the files that Spark would read, which need not be there; and the words of PYSPARK_SUBMIT_ARGS without
    those that name such files.
    """
    others: list[str] = []
    own: list[Path] = []
    has_defaults = False
    rest = iter(shlex.split(os.environ.get(_SUBMIT_ARGS, "pyspark-shell")))
    for word in rest:
        option, has_value, value = word.partition("=")
        if option == "--properties-file":
            own = [Path(value if has_value else next(rest, ""))]
        elif word == "--load-spark-defaults":
            has_defaults = True
        else:
            others.append(word)
    return ([_defaults(), *own] if has_defaults or not own else own), others


def _defaults() -> Path:
    directory = os.environ.get("SPARK_CONF_DIR")
    if not directory:
        spec = find_spec("pyspark")
        home = os.environ.get("SPARK_HOME") or (str(Path(spec.origin).parent) if spec and spec.origin else "/")
        directory = f"{home}/conf"
    return Path(directory, "spark-defaults.conf")


def _read_files(paths: Sequence[Path]) -> str:
    """Reads the text of those that are there. Raises AccessError if one can't be read."""
    texts = []
    for path in paths:
        try:
            texts.append(path.read_text("utf-8", "surrogateescape"))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise access_error(error, path, "read") from error
    return "\n\n".join(texts)


def _master_of(text: str) -> str:
    found = re.findall(r"^[ \t]*spark\.master[ \t]*[ \t=:][ \t]*(\S+)", text, re.MULTILINE)
    return found[-1] if found else _DEFAULT_MASTER


@contextmanager
def settings_file(path: Path, defaults: Mapping[str, str], settings: SparkSettings) -> Iterator[None]:
    """Writes the file, and has each JVM that PySpark starts in the block read it. Raises AccessError if a file can't be
    read.
    """
    files, words = _configuration_files()
    named = {"spark.app.name": settings.name} if settings.name else {}
    parts = [_lines(defaults), _read_files(files), _lines({**settings.conf, **named})]
    before = os.environ.get(_SUBMIT_ARGS)
    try:
        path.touch(0o600, exist_ok=False)
        path.write_text("\n\n".join(parts), "utf-8", "surrogateescape")
        os.environ[_SUBMIT_ARGS] = shlex.join(["--properties-file", str(path), *words])
        yield
    finally:
        if before is None:
            os.environ.pop(_SUBMIT_ARGS, None)
        else:
            os.environ[_SUBMIT_ARGS] = before
        with suppress(FileNotFoundError):
            path.unlink()


def _lines(settings: Mapping[str, str]) -> str:
    r"""As Java reads properties: a backslash takes the meaning from the character after it, and \n is a new line."""
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in settings.items())


def _escape(text: str) -> str:
    escaped = re.sub(r"([\\=:#! ])", r"\\\1", text)
    return escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
