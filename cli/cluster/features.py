"""`plog cluster features`: the levels of features that brokers support and the cluster has finalized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from cli.cluster.served_cluster import open_cluster
from cli.cluster_rows import FEATURES, feature_rows
from cli.data_location import Place, ReadPlace, typed_place
from cli.options import DRY_RUN, YES, ensure_meant
from cli.output import OUTPUT, Listing, OutputFormat, Row
from cli.terminal import say, say_failures
from core.cluster.description.cluster_description import ClusterDescription
from core.cluster.description.feature_args import (
    ALL,
    FeatureArg,
    PlannedUpdate,
    features_of,
    parse_wanted,
    plan_updates,
)
from core.cluster.image.feature_levels import METADATA_VERSION_FEATURE, FeatureUpdate, UpgradeType, unsupported
from core.common.command_option import flag, option
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError

if TYPE_CHECKING:
    from core.client.cluster_admin.cluster_admin import ClusterAdmin
    from core.client.net.kafka_client import KafkaClient

_LISTING = Listing("feature before level result")


def features(
    upgrade: list[str] | None = option(
        "Finalize this level, or the highest that all brokers support; `all` raises all features. May be repeated.",
        metavar="FEATURE[=LEVEL]",
        show_default=False,
        completes="feature",
    ),
    downgrade: list[str] | None = option(
        "Finalize a lower level; 0 gives the feature up. May be repeated.",
        metavar="FEATURE=LEVEL",
        show_default=False,
        completes="lowered_feature",
    ),
    unsafe: bool = flag("Lower a level even if that loses what only the higher level keeps."),
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
    output: OutputFormat = OUTPUT,
    place: ReadPlace = Place(),
) -> None:
    """Show which levels of features the brokers support and the cluster has finalized; finalize others.

    Each range of levels has a line with the brokers that support it. The exit code is 1 if a level was refused, or a
    broker does not support what is finalized, and 3 if a broker can't be reached from here.
    """
    wanted = parse_wanted(upgrade or (), downgrade or (), is_unsafe=unsafe)
    if unsafe and not downgrade:
        raise UsageError("--unsafe goes with --downgrade only")
    if not wanted:
        raise typer.Exit(_show(place, output))
    with open_cluster("features", place) as client:
        raise typer.Exit(_change(client, wanted, output, is_meant=yes, dry_run=dry_run))


# --- present levels


def _show(place: Place, output: OutputFormat) -> int:
    from core.client.admin.cluster_status import describe_cluster
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.description.directory_cluster import read_cluster

    with place.session().open_source() as source:
        is_served = isinstance(source, KafkaClient)
        found = describe_cluster(source) if isinstance(source, KafkaClient) else read_cluster(source.directory)
    rows = feature_rows(found, shows_all=output is OutputFormat.table)
    if output is OutputFormat.table:
        _say_epoch(found, is_served=is_served)
    FEATURES.write(rows, output)
    code = max(_say_lacking(found), say_failures(found.failures))
    if is_served and code == 0:
        _hint_at_more(found)
    return code


def _say_epoch(found: ClusterDescription, *, is_served: bool) -> None:
    if not is_served:
        say("no broker serves the directory: this is what its files say")
    elif not features_of(found):
        say("no broker knows of any feature: those of Kafka 3.9 and before have none with ZooKeeper")
    elif found.features_epoch >= 0:
        say(f"finalized levels as of epoch {found.features_epoch}")
    for broker in found.brokers:
        if broker.is_fenced and is_served:
            say(f"note: broker {broker.broker_id} is fenced, and can't be asked")


def _say_lacking(found: ClusterDescription) -> int:
    """Reports brokers that can't work at the finalized levels, and returns the exit code."""
    code = 0
    for broker in found.brokers:
        if broker.features is None:
            continue
        for name, level in unsupported(found.features, broker.features).items():
            say(f"error: broker {broker.broker_id} does not support {name} {level}, which is finalized")
            code = 1
    return code


def _hint_at_more(found: ClusterDescription) -> None:
    more = plan_updates([FeatureArg(ALL, None, UpgradeType.UPGRADE)], found)
    if more:
        say(f"hint: plog cluster features --upgrade {ALL}{typed_place()} would finalize {_levels_text(more)}")


# --- new levels


def _change(
    client: KafkaClient, wanted: Sequence[FeatureArg], output: OutputFormat, *, is_meant: bool, dry_run: bool
) -> int:
    """Returns the exit code. Raises the failure of a broker that must be asked and can't be reached."""
    from core.client.admin.cluster_status import describe_cluster
    from core.client.cluster_admin.cluster_admin import ClusterAdmin

    found = describe_cluster(client)
    if found.failures and any(one.level is None for one in wanted):
        raise found.failures[0]
    planned = plan_updates(wanted, found)
    needed = [one for one in planned if one.is_needed]
    if not needed:
        say("nothing to do: the levels are so already")
        if not planned and output is OutputFormat.table:
            return 0
    admin, updates = ClusterAdmin(client), [one.update for one in needed]
    refused: Mapping[str, KafkaError] = {}
    if needed and not (dry_run or is_meant):
        refused = _check(admin, updates)
    if not refused:
        risk = _warn(needed, found)
        if risk and not (dry_run or is_meant):
            ensure_meant(risk, "lower these levels" if _unsafe_of(needed) else "finalize these levels")
        if needed:
            refused = admin.update_features(updates, validate_only=dry_run)
    if dry_run and needed and not refused:
        say("would do this without --dry-run; nothing was changed")
    _LISTING.write([_row(one, refused, dry_run=dry_run) for one in planned], output)
    return 1 if refused else 0


def _check(admin: ClusterAdmin, updates: Sequence[FeatureUpdate]) -> Mapping[str, KafkaError]:
    """Returns the controller's refusals before the user is asked; {} if it is too old to check."""
    try:
        return admin.update_features(updates, validate_only=True)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {}


_LASTING = {
    "metadata.version": "metadata.version can be lowered again only if no metadata is lost by that",
    "kraft.version": "kraft.version is never lowered again",
}

_LOST = {"group.version": "members of groups of the consumer protocol are refused and drop out; their offsets stay"}


def _unsafe_of(needed: Sequence[PlannedUpdate]) -> list[PlannedUpdate]:
    return [one for one in needed if one.update.way is UpgradeType.UNSAFE_DOWNGRADE]


def _warn(needed: Sequence[PlannedUpdate], found: ClusterDescription) -> str:
    """Reports the consequences, and returns the risk; "" if there are only safe downgrades."""
    raised = [one for one in needed if one.update.level > one.before]
    unsafe = _unsafe_of(needed)
    if raised:
        has_zookeeper = METADATA_VERSION_FEATURE not in features_of(found)
        kafkas = ", as Kafka's with ZooKeeper," if has_zookeeper else ""
        say(f"warning: brokers that don't support {_levels_text(raised)}{kafkas} can't join the cluster any more")
    for one in raised:
        if one.update.name in _LASTING:
            say(f"warning: {_LASTING[one.update.name]}")
    if unsafe:
        for one in unsafe:
            lost = _LOST.get(one.update.name, "what only the higher level keeps may be lost")
            say(f"warning: {one.update.name} {one.update.level}: {lost}")
        return "--unsafe may lose what only the higher level keeps"
    return "--upgrade may keep brokers out of the cluster" if raised else ""


def _levels_text(planned: Sequence[PlannedUpdate]) -> str:
    return ", ".join(f"{one.update.name} {one.update.level}" for one in planned)


def _row(planned: PlannedUpdate, refused: Mapping[str, KafkaError], *, dry_run: bool) -> Row:
    update = planned.update
    error = refused.get(update.name)
    if error is not None:
        result = f"{error.code.name}: {error.message}"
    elif not planned.is_needed:
        result = "not needed"
    else:
        done = "raised" if update.level > planned.before else "lowered"
        result = f"would be {done}" if dry_run else done
    return {"feature": update.name, "before": planned.before, "level": update.level, "result": result}
