"""Whether the other brokers of a cluster can reach this one, at the listener that they have for that.

Kafka's controller looks for the listener of its `inter.broker.listener.name` at each broker that registers. If one does
not have it, the controller fails to take in that change of brokers, for all of them: so it must not register.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from core.broker.broker_config import BrokerConfig
from core.broker.listener import PLAINTEXT
from core.common.errors import UsageError
from core.zookeeper.znodes import BrokerNode


def ensure_others_reach(config: BrokerConfig, own: Collection[str], others: Mapping[int, BrokerNode]) -> None:
    """Raises UsageError if this broker's listener for brokers is not among its `own`, or none that all `others` have,
    or if it is a guess which of several they use.
    """
    if not others:
        return
    common = set.intersection(*({one.listener.upper() for one in broker.endpoints} for broker in others.values()))
    wanted = config.inter_broker_listener
    is_guess = config.inter_broker_listener_name is None and wanted != PLAINTEXT and len(common) > 1
    if wanted not in own:
        reason = f"it has no listener {wanted} (inter.broker.listener.name)"
    elif wanted not in common:
        reason = f"they have no listener {wanted}"
    elif is_guess:
        reason = "inter.broker.listener.name does not say which listener they use"
    else:
        return
    known = "; ".join(f"broker {node_id} has {', '.join(map(str, one.endpoints))}" for node_id, one in others.items())
    name = common.pop() if len(common) == 1 else "NAME"
    raise UsageError(
        f"the cluster's other brokers could not reach this one: {reason}; {known}",
        hint=f"--listener {name}://HOST:PORT --set inter.broker.listener.name={name}, as the others have it",
    )
