"""The log of a Delta table, over a replay's Parquet files: one commit that adds them all.

The commit carries the replay's id as an application transaction, so that a rerun sees the commit.

Source: Delta Transaction Log Protocol; the package deltalake (delta-rs) writes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.common.errors import AccessError
from core.spark.partition_folder import value_of_folder
from core.spark.range_output import WrittenFile

_VERSION = 1


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


def commit_delta_table(
    directory: Path, files: Sequence[WrittenFile], partition_by: Sequence[str], replay_id: str
) -> None:
    """Makes the folder a Delta table of exactly these files; a second call changes nothing. A table takes its columns
    from its files, so without files no table is made.
    """
    if not files:
        return
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.transaction import AddAction, create_table_with_add_actions

    if DeltaTable.is_deltatable(str(directory)) and DeltaTable(directory).transaction_version(replay_id) == _VERSION:
        return
    schema = pq.read_schema(directory / files[0].name).remove_metadata()
    for name in partition_by:
        schema = schema.append(pa.field(name, pa.string()))
    actions = []
    for file in files:
        path = directory / file.name
        status = path.stat()
        folders = Path(file.name).parent.parts
        values = {name: value_of_folder(folder) for name, folder in zip(partition_by, folders, strict=True)}
        actions.append(
            AddAction(
                path=file.name,
                size=status.st_size,
                partition_values=values,
                modification_time=int(status.st_mtime * 1000),
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
        )
    create_table_with_add_actions(
        str(directory),
        Schema.from_arrow(schema),
        actions,
        partition_by=list(partition_by) or None,
        commit_properties=CommitProperties(app_transactions=[Transaction(replay_id, _VERSION)]),
    )
