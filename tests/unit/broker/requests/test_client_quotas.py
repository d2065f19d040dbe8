"""AlterClientQuotas, whose entries are written one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from core.broker.requests.handlers.quotas_and_users import alter_client_quotas
from core.broker.requests.runtime import ImmediateRuntime
from core.broker.requests.stepped_answer import SteppedAnswers
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.quotas_and_users import AlterClientQuotasRequest, AlteredQuotas, QuotaEntity, QuotaOp


def test_entries_may_be_written_in_any_order() -> None:
    written: list[Pending[KafkaError | None]] = [Pending(), Pending()]
    writes = iter(written)
    quotas = SimpleNamespace(alter=lambda *_named, **_how: next(writes))
    services = SimpleNamespace(membership=SimpleNamespace(quotas=quotas))
    context = SimpleNamespace(may=lambda _right: True)
    entries = [AlteredQuotas([QuotaEntity("user", name)], [QuotaOp("producer_byte_rate", 1.0)]) for name in "ab"]

    task = alter_client_quotas(cast(Any, services), AlterClientQuotasRequest(entries), cast(Any, context))
    pending = SteppedAnswers(ImmediateRuntime()).answer(task)
    assert isinstance(pending, Pending)
    answers: list[Any] = []
    pending.on_value = answers.append
    written[1].complete_with(None)
    assert not answers
    written[0].complete_with(KafkaError(ErrorCode.INVALID_REQUEST, "no"))
    [answer] = answers
    assert [(one.error_code, one.entity[0].entity_name) for one in answer.entries] == [
        (ErrorCode.INVALID_REQUEST, "a"),
        (ErrorCode.NONE, "b"),
    ]
