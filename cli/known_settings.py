"""Whether what somebody changes is a setting: the server is asked, for brokers of other makers have settings of their
own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core.client.admin import Admin, AlterOperation, ConfigChange
from core.common.config_def import ConfigResourceType
from core.common.did_you_mean import did_you_mean
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

if TYPE_CHECKING:
    from core.client.admin import ConfigValue

_NOT_TOLD = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


@contextmanager
def known_settings(
    admin: Admin, type_: ConfigResourceType, name: str, title: str, changes: Sequence[ConfigChange]
) -> Iterator[None]:
    """For a block that makes the changes: refuses, before it, to put back a key that is no setting, which a server
    takes without a word; and names the setting that may be meant by a key that the server refuses.

    Raises KafkaError (INVALID_CONFIG). The defaults of all brokers (no name) are not checked: a server tells of them
    only what is set.
    """
    deleted = [change.key for change in changes if change.operation is AlterOperation.DELETE]
    if deleted and name:
        known = {config.name for config in _described(admin, type_, name)}
        unknown = [key for key in deleted if known and key not in known]
        if unknown:
            hint = did_you_mean(unknown[0], known)
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{title} has no setting {unknown[0]}", hint=hint)
    try:
        yield
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_CONFIG and error.hint is None:
            known = {config.name for config in _described(admin, type_, name)}
            wrong = (change.key for change in changes if known and change.key not in known)
            error.hint = next(filter(None, (did_you_mean(key, known) for key in wrong)), None)
        raise


def _described(admin: Admin, type_: ConfigResourceType, name: str) -> list[ConfigValue]:
    """None, if the server does not tell."""
    try:
        return admin.describe_configs(type_, name)
    except KafkaError as error:
        if error.code in _NOT_TOLD:
            return []
        raise
