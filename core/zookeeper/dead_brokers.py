"""Takes brokers out of a cluster that are known to be dead, before their sessions end.

ZooKeeper keeps a broker that was killed until its session ends, and until then it may not register again. Whoever has
started its process, and seen it end, knows better.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from core.common.errors import AccessError
from core.zookeeper.kazoo_client import LastComplaint, make_client
from core.zookeeper.znodes import CONTROLLER, broker_path, decode_controller
from core.zookeeper.zookeeper_config import ZooKeeperConfig

_CONNECT_SECONDS = 10.0


def remove_registrations(config: ZooKeeperConfig, broker_ids: Collection[int]) -> None:
    """Removes what is registered for these brokers, which all are dead; the controller's place, if it was one of them.
    Raises AccessError if ZooKeeper does not answer, or kazoo is not installed.
    """
    controller = config.chroot + CONTROLLER
    complaint = LastComplaint()
    client = make_client(config, complaint)
    from kazoo.exceptions import NoNodeError

    try:
        client.start(_CONNECT_SECONDS)
        for broker_id in broker_ids:
            with suppress(NoNodeError):
                client.delete(config.chroot + broker_path(broker_id))
        with suppress(NoNodeError):
            data, stat = client.get(controller)
            if decode_controller(data).broker_id in broker_ids:
                client.delete(controller, stat.version)
    except client.handler.timeout_exception:
        why = f": {complaint.text.rstrip('.')}" if complaint.text else ""
        raise AccessError(
            f"ZooKeeper does not answer at {config}{why}",
            where=str(config),
            hint="start it first, or name where it is; for example, plog zookeeper start runs one",
        ) from None
    finally:
        client.stop()
        client.close()
