"""The log of a Delta table, over a replay's Parquet files: one commit for each plan, that adds all of its files.

The commit carries the plan's id as an application transaction, so that a rerun sees the commit. Each plan has an id of
its own: a writer that meets an id again, with a version that is not higher, must take the commit for one that is there.

Source: Delta Transaction Log Protocol; the package deltalake (delta-rs) writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from core.common.errors import AccessError, PlogError
from core.spark.partition_expression import DATE, Partition
from core.spark.partition_folder import value_of_folder
from core.spark.range_output import WrittenFile

_VERSION = 1

_NOT_SAID = re.compile(r"\x1b\[\d*m|↳|\n +\d+: .*", re.DOTALL)
"""Colours, and the stack of delta-rs, in the texts of its errors."""


class TableMisfitError(PlogError):
    """The Delta table that is there does not take the replay's files."""


def ensure_delta() -> None:
    """Raises AccessError if the package is missing, or lacks a function that plog calls."""
    try:
        from deltalake import CommitProperties, DeltaTable, Schema, Transaction  # noqa: F401
        from deltalake.transaction import AddAction, create_table_with_add_actions  # noqa: F401
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "deltalake":
            raise AccessError(
                "--to delta needs the package deltalake", hint="pip install 'plog-kafka[delta]'"
            ) from None
        raise AccessError(
            f"--to delta needs the package deltalake, which is there and can't be used: {error}",
            hint="pip install --upgrade --force-reinstall 'plog-kafka[delta]'",
        ) from error


@contextmanager
def _opened(directory: Path) -> Iterator[Any]:  # deltalake.DeltaTable
    """Yields the folder's table, or None. Raises AccessError, which names the folder, where the package raises errors
    of its own in the block: for a log that is damaged or that needs a newer package, or a commit that another one was
    quicker than.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        yield DeltaTable(directory) if DeltaTable.is_deltatable(str(directory)) else None
    except (DeltaError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's, and no text of delta-rs
            raise
        raise AccessError(
            f"the Delta table {directory} can't be used: {' '.join(_NOT_SAID.sub('', str(error)).split())}",
            where=str(directory),
            hint="see its _delta_log, and whether a newer package deltalake knows the table's features; when that "
            "is mended, the same command goes on",
        ) from error


def is_committed(directory: Path, plan_id: str) -> bool:
    with _opened(directory) as table:
        return table is not None and table.transaction_version(plan_id) == _VERSION


def active_files(directory: Path) -> set[str]:
    """Returns the names of the files that the table has now, in the folder; of no table, none."""
    with _opened(directory) as table:
        paths = [] if table is None else pa.table(table.get_add_actions())["path"].to_pylist()
        return set(map(unquote, paths))


def ensure_table_is_there(directory: Path) -> None:
    """Raises AccessError if there is no table: a new table would lack the files that earlier nights committed."""
    with _opened(directory) as table:
        if table is None:
            raise AccessError(
                f"{directory} is no Delta table any more: nothing in {directory / '_delta_log'} says which files "
                "earlier nights committed",
                where=str(directory),
                hint="bring _delta_log back, or replay to a new folder",
            )


def ensure_table_takes(directory: Path, columns: Any, partition_by: Sequence[Partition]) -> None:
    """Raises TableMisfitError if there is a table that files of these columns (pyarrow.Schema) do not fit: Delta itself
    does not look into files that are added.
    """
    with _opened(directory) as table:
        if table is not None:
            _ensure_fits(directory, table, columns, partition_by)


def _ensure_fits(directory: Path, table: Any, columns: Any, partition_by: Sequence[Partition]) -> None:
    from deltalake import Schema

    def refuse(what: str) -> TableMisfitError:
        return TableMisfitError(f"the Delta table {directory} {what}", hint="replay to a new folder")

    names = [one.name for one in partition_by]
    metadata = table.metadata()
    if metadata.partition_columns != names:
        has = ", ".join(metadata.partition_columns) or "no column"
        raise refuse(f"is partitioned by {has}, and the replay by {', '.join(names) or 'no column'}")
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise refuse("gives its columns other names in files: column mapping")
    checked = [key for key in metadata.configuration if key.startswith("delta.constraints.")]
    fields = {field.name: field for field in table.schema().fields}
    checked += [name for name, field in fields.items() if any(key.startswith("delta.") for key in field.metadata)]
    if checked:
        raise refuse(f"has rules for rows, and a replay does not check them: {', '.join(checked)}")
    dates = [one.name for one in partition_by if one.expression in ("day", DATE)]
    for field in Schema.from_arrow(_with_partitions(columns, partition_by)).fields:
        there = fields.pop(field.name, None)
        if there is None:
            raise refuse(f"has no column {field.name}")
        if there.type != field.type and not (field.name in dates and there.type.type == "date"):
            raise refuse(f"has the column {field.name} of type {there.type}, and the replay of {field.type}")
    if needed := [name for name, field in fields.items() if not field.nullable]:
        raise refuse(f"needs the column {needed[0]}, which the replay does not have")


def _with_partitions(columns: Any, partition_by: Sequence[Partition]) -> Any:  # pyarrow.Schema
    return pa.schema([*columns.remove_metadata(), *(pa.field(one.name, pa.string()) for one in partition_by)])


def commit_delta_table(
    directory: Path, files: Sequence[WrittenFile], partition_by: Sequence[Partition], plan_id: str
) -> None:
    """Adds exactly these files to the folder's Delta table, or makes one of them; a second call changes nothing. A
    table takes its columns from its files, so without files no table is made. Raises what `ensure_table_takes` raises.
    """
    if not files or is_committed(directory, plan_id):
        return
    from deltalake import CommitProperties, Schema, Transaction
    from deltalake.transaction import AddAction, create_table_with_add_actions

    names = [one.name for one in partition_by]
    columns = pq.read_schema(directory / files[0].name)
    ensure_table_takes(directory, columns, partition_by)
    actions = []
    for file in files:
        path = directory / file.name
        status = path.stat()
        folders = Path(file.name).parent.parts
        values = {name: value_of_folder(folder) for name, folder in zip(names, folders, strict=True)}
        actions.append(
            AddAction(
                path=file.name,
                size=status.st_size,
                partition_values=values,
                modification_time=int(status.st_mtime * 1000),
                data_change=True,
                stats=json.dumps({"numRecords": file.rows if file.rows >= 0 else pq.read_metadata(path).num_rows}),
            )
        )
    properties = CommitProperties(app_transactions=[Transaction(plan_id, _VERSION)])
    with _opened(directory) as table:
        if table is not None:
            table.create_write_transaction(
                actions, "append", table.schema(), partition_by=names or None, commit_properties=properties
            )
            return
        create_table_with_add_actions(
            str(directory),
            Schema.from_arrow(_with_partitions(columns, partition_by)),
            actions,
            partition_by=names or None,
            commit_properties=properties,
        )
