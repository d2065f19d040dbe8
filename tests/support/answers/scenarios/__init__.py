"""What is asked, by theme. `registry.SCENARIOS` has all of them once this package is imported."""

from tests.support.answers.scenarios import (  # noqa: F401
    bare_requests,
    classic_groups,
    cluster,
    configs,
    consumer_groups,
    fetch,
    frames,
    metadata,
    offsets,
    produce,
    random_requests,
    topics,
    transactions,
)
from tests.support.answers.scenarios.registry import SCENARIOS as SCENARIOS
