"""Writes the records of an input to a topic, from the options of `plog produce` to the last acknowledgement."""

from __future__ import annotations

from collections.abc import Callable

from core.client.write.partitioner import PARTITIONERS, FunctionPartitions, Partitioner, make_partitioner
from core.common.errors import UsageError
from core.common.user_function import load_function
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
        return FunctionPartitions(load_function(name, "--partitioner"), partitions)
    if name not in PARTITIONERS:
        raise UsageError(
            f"--partitioner {name}: there is none", hint=f"{', '.join(PARTITIONERS)}, or module:function of your own"
        )
    return make_partitioner(name, partitions, batch_bytes)
