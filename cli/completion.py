"""Shell completion: names of topics, groups and features if they are available at once, else nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from core.common.errors import PlogError


def complete_topic(ctx: Any, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _topics)


def complete_group(ctx: Any, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _groups)


def complete_feature(ctx: Any, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, _features)


def complete_lowered_feature(ctx: Any, incomplete: str) -> list[str]:
    from core.cluster.description.feature_args import ALL

    return [name for name in complete_feature(ctx, incomplete) if name != ALL]


def complete_new_level(incomplete: str) -> list[str]:
    from core.cluster.description.feature_args import NONE
    from core.cluster.image.feature_levels import MEMBERS_FEATURES

    return [word for word in (NONE, *(f"{name}=" for name in MEMBERS_FEATURES)) if word.startswith(incomplete)]


def complete_help(incomplete: str) -> list[str]:
    from cli.help_pages import page_names

    return [name for name in page_names() if name.startswith(incomplete)]


def _complete(ctx: Any, incomplete: str, find: Callable[[str | None, Path | None], Iterable[str]]) -> list[str]:
    server = ctx.params.get("bootstrap_server")
    directory = ctx.params.get("data_dir") or os.environ.get("PLOG_DATA_DIR")
    names: list[str] = []
    with contextlib.suppress(PlogError, OSError):
        names = sorted(find(server, Path(directory) if directory else None))
    return [name for name in names if name.startswith(incomplete) and (incomplete or not name.startswith("__"))]


def _topics(server: str | None, directory: Path | None) -> Iterable[str]:
    from cli.data_location import Place
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.description.directory_topics import DirectoryTopics

    with Place(bootstrap_server=server, data_dir=directory).session().open_source() as source:
        return list(source.refresh()) if isinstance(source, KafkaClient) else DirectoryTopics(source).partitions()


def _groups(server: str | None, directory: Path | None) -> Iterable[str]:
    from cli.data_location import Place
    from core.client.admin.group_admin import GroupAdmin

    with Place(bootstrap_server=server, data_dir=directory).session().open_client(is_read_only=True) as client:
        return [group.group_id for group in GroupAdmin(client).list_groups()]


def _features(server: str | None, directory: Path | None) -> Iterable[str]:
    from cli.data_location import Place
    from core.cluster.description.feature_args import ALL

    with Place(bootstrap_server=server, data_dir=directory).session().open_client(is_read_only=True) as client:
        return [ALL, *client.any_connection().supported_features]
