"""Writes the records of an input to a topic, from the options of `plog produce` to the last acknowledgement."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from core.client.partitioner import PARTITIONERS, FunctionPartitions, Partitioner, make_partitioner
from core.common.errors import UsageError
from core.pipeline.input_options import InputOptions
from core.pipeline.row_writer import PartitionReport, RowWriter, WriterOptions
from core.pipeline.session import Session


def produce(
    session: Session,
    topic: str,
    input_: InputOptions,
    options: WriterOptions,
    *,
    tee: Callable[[memoryview], None] | None = None,
) -> dict[int, PartitionReport]:
    """Writes all of the input, and returns what each partition got when everything is acknowledged. `tee` gets the
    input, as it was, once it is acknowledged.
    """
    is_dry_run = options.is_dry_run
    makes_directory = options.may_create and not is_dry_run
    with session.open_client(is_read_only=is_dry_run, makes_directory=makes_directory) as client:
        preparations = input_.preparations(topic, session)
        writer = RowWriter(
            client, topic, options, session, preparations=preparations, find_partitioner=find_partitioner
        )
        writer.write(input_.batches(session.frontend.say), tee=tee)
    return writer.report


def find_partitioner(name: str, partitions: int, batch_bytes: int) -> Partitioner:
    """Finds it by its name, or `module:function`. Raises UsageError if there is none."""
    if ":" in name:
        return FunctionPartitions(_load_function(name, "--partitioner"), partitions)
    if name not in PARTITIONERS:
        raise UsageError(
            f"--partitioner {name}: there is none", hint=f"{', '.join(PARTITIONERS)}, or module:function of your own"
        )
    return make_partitioner(name, partitions, batch_bytes)


def _load_function(name: str, option: str) -> Callable[..., Any]:
    """Imports `module:function`, also of the folder that the user is in. Raises UsageError if there is none."""
    module, _, function = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{option} {name}: {error}") from error
    if not callable(found):
        raise UsageError(f"{option} {name} is no function")
    return found  # type: ignore[no-any-return]
