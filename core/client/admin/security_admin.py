"""Requests of the command line about ACLs and SCRAM users (KIP-140, KIP-554), and what a directory's metadata log and a
broker's server.properties say of them.

Brokers of KRaft forward a change to the controller; in a cluster with ZooKeeper the controller itself is asked.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from core.client.admin.controller_connection import at_controller, wait_until_known
from core.client.net.client_connection import ClientConnection, ensure_as_many
from core.client.net.kafka_client import KafkaClient
from core.cluster.image.security_image import acl_of_record
from core.cluster.image.security_store import MECHANISM_NUMBERS, MECHANISMS
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError, ensure_success
from core.files.file_names import ensure_no_cluster
from core.protocol.schema.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from core.protocol.schema.quotas_and_users import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from core.security.acl import Acl, AclFilter, AclPermissionType
from core.security.acl_text import acl_text
from core.security.principal import Principal, parse_principals

_AT_ONCE = 1000
"""ACLs in one request: a controller of KRaft takes at most 10,000 changes at once, and gives up a request of more."""

_SALT_BYTES = 24


class ScramCredential(NamedTuple):
    """What is known of a user's password: never the password."""

    user: str
    mechanism: str
    iterations: int


class SecurityAdmin:
    """Owned by one task. If a broker refuses a request, the method raises KafkaError with the broker's code and
    message: SECURITY_DISABLED if no authorizer is at work.

    The controller confirms a change a moment before other brokers know of it: each method that makes one waits, for 5 s
    at most, until the broker that answers the next request knows of it.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self.is_open = False
        """Whether the broker that described the ACLs obeys none of them: the owner of its directory may see them."""

    def describe_acls(self) -> list[Acl]:
        """Returns all ACLs. Values that this client does not know are UNKNOWN."""
        any_ = DescribeAclsRequest(*AclFilter())
        answer = self._client.any_connection().call(DESCRIBE_ACLS, any_)
        ensure_success(answer.error_code, "ACLs", answer.error_message)
        self.is_open = bool(answer.error_message)
        return [
            Acl.of_numbers(*pattern, acl.principal, acl.host, acl.operation, acl.permission_type)
            for one in answer.resources
            for pattern in [(one.resource_type, one.resource_name, one.pattern_type)]
            for acl in one.acls
        ]

    def create_acls(self, acls: Sequence[Acl]) -> None:
        """Adds the ACLs; one that is there already is left as it is. Those that deny come first, in requests of their
        own, so that no moment, and no refusal, allows more than the whole does.
        """

        def create(connection: ClientConnection, some: Sequence[Acl]) -> None:
            answer = connection.call(CREATE_ACLS, CreateAclsRequest([AclCreation(*acl) for acl in some]))
            for acl, result in zip(some, ensure_as_many(answer.results, len(some), CREATE_ACLS), strict=True):
                _ensure_done(result.error_code, acl, result.error_message)

        self._in_pieces(create, acls, (AclPermissionType.DENY, AclPermissionType.ALLOW))
        wait_until_known(lambda: not acls or set(acls) <= set(self.describe_acls()))

    def delete_acls(self, acls: Sequence[Acl]) -> None:
        """Deletes these ACLs and no others, ALLOW before DENY, by one filter for each. Raises UsageError for an ACL
        with a number of a later Kafka: the broker would close the connection.
        """
        strange = next((acl for acl in acls if not acl.is_known), None)
        if strange is not None:
            raise UsageError(f"{acl_text(strange)}: an ACL of a later Kafka, which this plog can't name to a broker")

        def delete(connection: ClientConnection, some: Sequence[Acl]) -> None:
            answer = connection.call(DELETE_ACLS, DeleteAclsRequest([DeleteAclsFilter(*acl) for acl in some]))
            results = ensure_as_many(answer.filter_results, len(some), DELETE_ACLS)
            for acl, result in zip(some, results, strict=True):
                _ensure_done(result.error_code, acl, result.error_message)
                for one in result.matching_acls:
                    _ensure_done(one.error_code, acl, one.error_message)

        self._in_pieces(delete, acls, (AclPermissionType.ALLOW, AclPermissionType.DENY))
        wait_until_known(lambda: not acls or not set(acls) & set(self.describe_acls()))

    def _in_pieces(
        self,
        change: Callable[[ClientConnection, Sequence[Acl]], None],
        acls: Sequence[Acl],
        order: Sequence[AclPermissionType],
    ) -> None:
        for permission_type in order:
            some = [acl for acl in acls if acl.permission_type is permission_type]
            for start in range(0, len(some), _AT_ONCE):
                at_controller(self._client, lambda connection: change(connection, some[start : start + _AT_ONCE]))  # noqa: B023

    def describe_users(self, names: Sequence[str] = ()) -> list[ScramCredential]:
        """Returns the credentials of those users, or of all; a user without any is left out."""
        request = DescribeUserScramCredentialsRequest([UserName(name) for name in dict.fromkeys(names)] or None)
        answer = self._client.any_connection().call(DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        ensure_success(answer.error_code, "SCRAM users", answer.error_message)
        found = []
        for result in answer.results:
            if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            ensure_success(result.error_code, f"user {result.user}", result.error_message)
            found += [
                ScramCredential(result.user, _mechanism(one.mechanism), one.iterations)
                for one in result.credential_infos
            ]
        return sorted(found)

    def set_password(self, credential: ScramCredential, password: str, *, allows_plaintext: bool) -> None:
        """Makes or replaces a credential. The SaltedPassword is sent, with which anybody who reads it can log in as the
        user: raises UsageError if a network would carry it in plain, unless that is allowed.
        """
        number, iterations = MECHANISM_NUMBERS[credential.mechanism], credential.iterations
        salt = secrets.token_bytes(_SALT_BYTES)
        salted = MECHANISMS[number].salted_password(password, salt, iterations)
        change = ScramCredentialUpsertion(credential.user, number, iterations, salt, salted)
        self._alter_users(AlterUserScramCredentialsRequest(upsertions=[change]), allows_plaintext=allows_plaintext)
        wait_until_known(lambda: credential in self.describe_users([credential.user]))

    def delete_credential(self, user: str, mechanism: str) -> None:
        number = MECHANISM_NUMBERS[mechanism] if mechanism in MECHANISM_NUMBERS else int(mechanism)  # of a later Kafka
        change = ScramCredentialDeletion(user, number)
        self._alter_users(AlterUserScramCredentialsRequest(deletions=[change]), allows_plaintext=True)
        wait_until_known(lambda: mechanism not in {one.mechanism for one in self.describe_users([user])})

    def _alter_users(self, request: AlterUserScramCredentialsRequest, *, allows_plaintext: bool) -> None:
        def alter(connection: ClientConnection) -> None:
            if not (allows_plaintext or connection.is_private):
                raise UsageError(
                    f"the connection {self._client.place} is in plain: whoever reads along could log in as the user",
                    hint="--command-config with security.protocol=SSL or SASL_SSL, or --allow-plaintext",
                )
            for result in connection.call(ALTER_USER_SCRAM_CREDENTIALS, request).results:
                ensure_success(result.error_code, f"user {result.user}", result.error_message)

        at_controller(self._client, alter)


def _mechanism(number: int) -> str:
    """Returns the name, or the number of a mechanism that plog does not know."""
    return MECHANISMS[number].name if number in MECHANISMS else str(number)


def _ensure_done(code: int, acl: Acl, message: str | None) -> None:
    """Raises KafkaError for a code, with the broker's message and the ACL in question."""
    if code:
        error = ErrorCode.of(code)
        raise KafkaError(error, f"{acl_text(acl)}: {message or error.text}")


# --- the settings of the authorizer


class AuthorizerSettings(NamedTuple):
    """None for what is not known."""

    class_name: str | None = None
    super_users: frozenset[Principal] | None = None
    allows_everyone_if_none: bool | None = None

    @classmethod
    def parse(cls, settings: Mapping[str, str | None]) -> AuthorizerSettings:
        """Reads the settings of a broker. A missing key has its default; None stands for a value that the broker hides.
        Raises UsageError for a super user that is no principal.
        """
        class_name, super_users, allows = (settings.get(key, "") for key in _AUTHORIZER_KEYS)
        return cls(
            class_name,
            None if super_users is None else frozenset(parse_principals(super_users)),
            None if allows is None else allows.strip().lower() == "true",
        )

    def or_else(self, other: AuthorizerSettings) -> AuthorizerSettings:
        """Returns these settings; those that are not known are taken from the other."""
        return AuthorizerSettings(
            other.class_name if self.class_name is None else self.class_name,
            other.super_users if self.super_users is None else self.super_users,
            other.allows_everyone_if_none if self.allows_everyone_if_none is None else self.allows_everyone_if_none,
        )

    def unknown(self) -> list[str]:
        """Returns the keys of what is not known."""
        return [key for key, value in zip(_AUTHORIZER_KEYS, self, strict=True) if value is None]


_AUTHORIZER_KEYS = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")


def ask_authorizer_settings(client: KafkaClient) -> AuthorizerSettings:
    """Asks a broker. Kafka hides the settings of its authorizers, but for the class; a client that may not describe the
    cluster's configuration learns none.
    """
    from core.client.admin.admin import Admin

    client.refresh([])
    configs = Admin(client).find_configs(ConfigResourceType.BROKER, str(min(client.node_ids)))
    return AuthorizerSettings.parse({one.name: one.value for one in configs}) if configs else AuthorizerSettings()


# --- what a directory that nobody serves says


def read_stored_security(directory: Path, *, may_be_missing: bool = False) -> tuple[list[Acl], list[ScramCredential]]:
    """Returns the ACLs and the SCRAM credentials that the metadata log of a data directory holds, plog's or Kafka's; no
    lock is taken, nothing is written. With `may_be_missing`, a directory that does not exist has none. Raises
    UsageError for the directory of a whole cluster, or without a metadata log, and what `read_metadata_image` raises.
    """
    from core.cluster.image.metadata_log import read_metadata_image  # with it comes the log engine
    from core.forensics.partition_reader import ensure_data_directory

    ensure_no_cluster(directory)
    if may_be_missing and not directory.exists():
        return [], []
    ensure_data_directory(directory)
    image = read_metadata_image(directory)
    if image is None:
        raise UsageError(
            f"{directory} has no metadata log: ACLs and users are in ZooKeeper, or on a controller",
            hint="--bootstrap-server HOST:PORT asks a broker of the cluster",
        )
    acls = [acl_of_record(record) for record in image.security.acls.values()]
    users = [
        ScramCredential(one.name, _mechanism(one.mechanism), one.iterations)
        for one in image.security.scram_credentials.values()
    ]
    return acls, sorted(users)
