"""The folder of a replay, as the driver sees it: a plain folder, or a URL of Hadoop's file systems.

All names are paths below the folder, with /. Both kinds have the same methods and promises:

    where, url            what the user calls the folder, and what Spark takes
    read                  the content of a file; None if it is missing
    sizes                 the bytes of all files below a folder, by their names below it; none if it is missing
    names                 the names of what is directly in a folder; None if it is missing
    create                writes a new file, whole; False if there is one already. Of two that create the same name at
                          once only one gets True, if the folder `is_exclusive`. With `holds` the process has the
                          system's lock on it, until `let_go`, if the folder `has_locks`
    replace               writes a file, whole
    rename                moves a file to its place, and makes folders for it; False if it is not there (any more)
    delete                removes a file, or a folder with everything in it; nothing happens if it is missing
    is_held               whether a process has the system's lock on a file; None if that can't be known
    begin_in              from now on all that is written begins in this folder, until `let_go`

A plain folder renames what it writes out of that folder, and what it removes into it. So it changes nothing any more
when another driver has removed that folder (replay_lock.py).

Hadoop's stores promise less than disks. A rename may be a copy of the whole object and a removal, and `create` is
exclusive on S3 only by a conditional put (If-None-Match), which Hadoop has from 3.4.2 on.
Source: Hadoop's FileSystem specification, and the page about S3A's conditional writes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from core.common.errors import AccessError
from core.common.filesystem import FileSystem, accessing, open_regular
from core.common.out_file import open_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def open_folder(where: str, start: Callable[[], SparkSession]) -> LakeFolder:
    """Opens the folder; `start` is called if it takes Spark. Raises AccessError if Hadoop doesn't reach it."""
    scheme, _, path = where.partition(":")
    if scheme.lower() == "file" and re.match("/(//|[^/]|$)", path):
        return PlainFolder(Path("/" + path.lstrip("/")), where)
    if re.match("[A-Za-z][A-Za-z0-9+.-]*:/", where):
        return HadoopFolder(start(), where)
    return PlainFolder(Path(where))


class PlainFolder:
    """A folder that this machine's system reaches. Raises AccessError if the system refuses."""

    is_exclusive = True
    has_locks = True

    def __init__(self, directory: Path, where: str = "", filesystem: FileSystem | None = None) -> None:
        self.where = where or str(directory)
        self.directory = directory.absolute()
        self.filesystem = filesystem or FileSystem()
        self.url = f"file://{self.directory}"  # as it is: Hadoop's paths are not encoded
        self._beside: Path | None = None
        self._held = ExitStack()

    def read(self, name: str) -> bytes | None:
        with (
            accessing(self.directory / name, "read"),
            suppress(FileNotFoundError, NotADirectoryError),
            os.fdopen(open_regular(self.directory / name, os.O_RDONLY), "rb") as file,
        ):
            return file.read()
        return None

    def sizes(self, name: str = "") -> dict[str, int]:
        folder = self.directory / name
        found = {}
        with accessing(self.directory / name, "read"):
            for path in folder.rglob("*"):
                with suppress(FileNotFoundError):
                    if not path.is_dir():
                        found[path.relative_to(folder).as_posix()] = path.lstat().st_size
        return found

    def names(self, name: str = "") -> list[str] | None:
        with accessing(self.directory / name, "read"), suppress(FileNotFoundError):
            return sorted(path.name for path in (self.directory / name).iterdir())
        return None

    def create(self, name: str, content: bytes, *, holds: bool = False) -> bool:
        with ExitStack() as stack:
            with accessing(self.directory / name, "write"), self._written(name, content) as beside:
                if holds:
                    fd = open_regular(beside, os.O_RDWR)
                    stack.callback(os.close, fd)
                    with suppress(OSError):  # a file system without such locks
                        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                try:
                    self.filesystem.link(beside, self.directory / name)
                except FileExistsError:
                    return False
                self.filesystem.sync_directory((self.directory / name).parent)
            if holds:
                self._held = stack.pop_all()
        return True

    def replace(self, name: str, content: bytes) -> None:
        with accessing(self.directory / name, "write"), self._written(name, content) as beside:
            self._rename(beside, self.directory / name)

    def _rename(self, old: Path, new: Path) -> None:
        self.filesystem.rename(old, new)
        for folder in {new.parent, old.parent}:  # of which either may hold the name after a power cut
            self.filesystem.sync_directory(folder)

    @contextmanager
    def _written(self, name: str, content: bytes) -> Iterator[Path]:
        self._make_folder((self.directory / name).parent)
        beside = self._temporary(name)
        try:
            with open_sink(self.filesystem, beside) as sink:
                sink.write(content)
            self.filesystem.sync_file(beside)
            yield beside
        finally:
            self.filesystem.unlink(beside)

    def _make_folder(self, folder: Path) -> None:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        self.filesystem.make_directory(folder)
        for path in made:
            self.filesystem.sync_directory(path.parent)

    def _temporary(self, name: str) -> Path:
        return (self._beside or (self.directory / name).parent) / f".{uuid.uuid4().hex}.tmp"

    def rename(self, source: str, target: str) -> bool:
        old, new = self.directory / source, self.directory / target
        with accessing(self.directory / target, "write"):
            if not old.exists():
                return False
            self._make_folder(new.parent)
            try:
                self.filesystem.sync_file(old)
                self._rename(old, new)
            except FileNotFoundError:
                return False
        return True

    def delete(self, name: str) -> None:
        path = away = self.directory / name
        with accessing(self.directory / name, "remove"):
            if not os.path.lexists(path):
                return
            if self._beside or "/" in name:  # so that whoever still works in it fails at once
                away = self._temporary(name)
                self.filesystem.rename(path, away)
            if away.is_symlink() or not away.is_dir():
                self.filesystem.unlink(away)
            while away.exists():
                try:
                    self.filesystem.remove_tree(away)
                except OSError as error:  # a task may still have been making a file in it
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                        raise

    def begin_in(self, beside: str) -> None:
        with accessing(self.directory / beside, "write"):
            self._make_folder(self.directory / beside)
        self._beside = self.directory / beside

    def is_held(self, name: str) -> bool | None:
        """Asks for a shared lock, so that two processes that ask don't take each other for the holder."""
        try:
            fd = open_regular(self.directory / name, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
        finally:
            os.close(fd)
        return False

    def let_go(self) -> None:
        self._beside = None
        self._held.close()


_CONDITIONAL = "fs.option.create.conditional.overwrite"
_EXCLUSIVE = ("hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "abfs", "abfss", "gs")
"""Schemes whose `create` without overwriting is exclusive."""

_JARS = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
}
"""What Maven calls the file systems that Spark does not bring along."""

_CAUSES = (
    ("NoAuth|Credential|Expired|InvalidToken|InvalidAccessKey|Signature", "the credentials are missing or refused",
     "--conf spark.hadoop.fs.s3a.access.key=.. or the variables, files or roles that the store's own tools use"),
    ("AccessControl|AccessDenied|Forbidden|Permission denied", "permission denied",
     "the user or key that Spark runs with must be allowed to list, read, write and delete there"),
    ("UnknownStore|NoSuchBucket|bucket does not exist|The specified bucket", "there is no such bucket",
     "make the bucket first; plog makes folders only"),
    ("UnknownHost|NoRouteToHost", "the host is not known", "look at the URL, and at fs.s3a.endpoint for another store"),
    ("ConnectException|Connection refused|SocketTimeout|ConnectTimeout|HttpHostConnect", "no connection",
     "is the server there, and its port right? fs.s3a.endpoint, or the name node in hdfs://HOST:PORT"),
    ("Wrong FS: file:", "a URL of files has no host", "file:///DIR"),
    ("QuotaExceeded|No space left", "no space left", None),
    ("FileAlreadyExists|ParentNotDirectory", "a file is where a folder should be", None),
)  # fmt: skip
"""Names of Java's exceptions, or their words, what they come to, and what helps."""

_TAKEN = re.compile("AlreadyExists|AlreadyBeingCreated|RemoteFileChanged|PreconditionFailed|Status Code: 412")


class HadoopFolder:
    """A folder below a URL, by Hadoop's file systems in Spark's JVM. Raises AccessError if Hadoop refuses."""

    has_locks = False

    def __init__(self, session: SparkSession, url: str) -> None:
        self.where = self.url = url.rstrip("/")
        self._gateway = cast(Any, session.sparkContext._gateway)  # noqa: SLF001 - there is no other way to Hadoop
        self._hadoop: Any = self._gateway.jvm.org.apache.hadoop
        conf = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        self._fs: Any = self._do("", lambda root: root.getFileSystem(conf))
        self._context: Any = self._do("", lambda root: self._hadoop.fs.FileContext.getFileContext(root.toUri(), conf))
        self._is_conditional = bool(self._do("", lambda root: self._fs.hasPathCapability(root, _CONDITIONAL)))
        self.is_exclusive = self._is_conditional or url.partition(":")[0].lower() in _EXCLUSIVE
        self.names()

    def read(self, name: str) -> bytes | None:
        def read(path: Any) -> bytes:
            stream = self._fs.open(path)
            try:
                return bytes(self._gateway.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

        return self._do(name, read)

    def sizes(self, name: str = "") -> dict[str, int]:
        def look(path: Any) -> dict[str, int]:
            start = self._fs.makeQualified(path).toUri().getPath().rstrip("/") + "/"
            files, found = self._fs.listFiles(path, True), {}
            while files.hasNext():
                status = files.next()
                found[status.getPath().toUri().getPath().removeprefix(start)] = int(status.getLen())
            return found

        return self._do(name, look) or {}

    def names(self, name: str = "") -> list[str] | None:
        return self._do(name, lambda path: sorted(status.getPath().getName() for status in self._fs.listStatus(path)))

    def create(self, name: str, content: bytes, *, holds: bool = False) -> bool:  # noqa: ARG002 - there are no locks
        def create(path: Any) -> bool:
            from py4j.protocol import Py4JJavaError

            try:
                if self._is_conditional:
                    builder = self._fs.createFile(path).recursive().overwrite(True)
                    self._write(builder.must(_CONDITIONAL, True).build(), content)
                else:
                    self._write(self._fs.create(path, False), content)
            except Py4JJavaError as error:
                if _TAKEN.search(_chain(error)) and self._fs.exists(path):
                    return False
                raise
            return True

        return self._do(name, create) is True

    def replace(self, name: str, content: bytes) -> None:
        """On stores an object is there when it is whole; elsewhere the file is renamed."""
        beside = name if self._is_conditional else f"{name}.{uuid.uuid4().hex}.tmp"
        self._do(beside, lambda path: self._write(self._fs.create(path, True), content))
        if beside != name:
            self.rename(beside, name)

    def _write(self, stream: Any, content: bytes) -> None:
        stream.write(bytearray(content))
        stream.close()

    def rename(self, source: str, target: str) -> bool:
        def rename(path: Any) -> bool:
            options = self._gateway.new_array(self._hadoop.fs.Options.Rename, 1)
            options[0] = self._hadoop.fs.Options.Rename.OVERWRITE
            self._fs.mkdirs(path.getParent())
            self._context.rename(self._path(source), path, options)
            return True

        return self._do(target, rename) is True

    def delete(self, name: str) -> None:
        self._do(name, lambda path: self._fs.delete(path, True))

    def begin_in(self, beside: str) -> None:
        """Does nothing."""

    def is_held(self, name: str) -> bool | None:  # noqa: ARG002 - a plain folder needs it
        return False

    def let_go(self) -> None:
        """Does nothing."""

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(f"{self.url}/{name}")

    def _do(self, name: str, work: Callable[[Any], T]) -> T | None:
        """Returns what `work` makes of the path; None if Hadoop does not find a file."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return work(self._path(name))
        except (Py4JJavaError, PySparkException) as error:  # PySpark makes its own ones of IllegalArgumentException
            own = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
            causes = _chain(error) if isinstance(error, Py4JJavaError) else own
            if "FileNotFoundException" in causes.partition("\n")[0]:
                return None
            hadoop = self._hadoop.util.VersionInfo.getVersion()
            raise explain(f"{self.url}/{name}".rstrip("/"), causes, hadoop) from error


LakeFolder = PlainFolder | HadoopFolder

_TRIED = {
    "file": ("4.2.", "4.3."),
    "hdfs": ("4.3.",),
    "s3a": ("4.3.",),
    "delta:file": ("4.2.",),
}
"""File systems, and where Delta is, and the versions of PySpark that plog was tried with; docs/spark.md has more."""


def find_untried(url: str, kind: str, pyspark: str) -> str | None:
    """Names what plog has not been tried with, under this version of PySpark; returns None if it has."""
    scheme = url.partition(":")[0].lower()
    name = f"delta:{scheme}" if kind == "delta" else scheme
    if pyspark.startswith(_TRIED.get(name, ())):
        return None
    return (
        f"{name}: was not tried with PySpark {pyspark} (docs/spark.md says what was); --verify checks what is written"
    )


def explain(url: str, causes: str, hadoop: str) -> AccessError:
    """Makes the error that users see. `causes`: Java's exceptions, a line each, the root cause last; `hadoop`: the
    version of Spark's own Hadoop.
    """
    scheme = url.partition(":")[0].lower()
    reason = re.sub(r"^(?:[\w$]+\.)+(\w+)", r"\1", causes.strip().splitlines()[-1])[:300]
    hint = None
    if re.search("UnsupportedFileSystem|No FileSystem for scheme|ClassNotFound|NoClassDefFound", causes):
        reason = f"Spark lacks the file system {scheme}"
        hint = f"expected one of {', '.join(sorted({'file', 'hdfs', *_JARS}))}, or one whose jar Spark has"
        if scheme in _JARS:
            hint = f"--conf spark.jars.packages={_JARS[scheme].format(hadoop=hadoop)}"
        elif scheme in ("s3", "s3n"):
            hint = "s3a is what Spark calls S3, outside of EMR"
    else:
        for pattern, meaning, help_ in _CAUSES:
            if re.search(pattern, causes):
                reason, hint = f"{meaning} ({reason})", help_
                break
    return AccessError(f"could not use {url}: {reason}", where=url, hint=hint)


def _chain(error: Any) -> str:  # py4j.protocol.Py4JJavaError
    """Returns the exception and its causes, a line each."""
    lines: list[str] = []
    cause = error.java_exception
    while cause is not None and len(lines) < 10:
        lines.append(" ".join(str(cause.toString()).split()))
        cause = cause.getCause()
    return "\n".join(lines)
