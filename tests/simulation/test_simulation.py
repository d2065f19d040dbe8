"""Replication in virtual time: many histories of a cluster in which nothing may be lost, and known mistakes that must
be found. A seed is a history: `play(SEED)` plays it again, and its result names the faults that came before.

`scripts/torture --simulation SECONDS` plays other seeds for that long.
"""

from __future__ import annotations

import os
import time
from itertools import count

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import Result, Scenario, play

_SEEDS = 240
_SEEDS_OF_THE_FIRST_TIER = 60
_MOST_SEEDS = 2000
_SECONDS = float(os.environ.get("PLOG_SIMULATION_SECONDS", "0"))
_FIRST_SEED = int(os.environ.get("PLOG_SIMULATION_SEED", "100000"))


def told(results: list[Result]) -> str:
    steps, acknowledged = sum(r.steps for r in results), sum(r.acknowledged for r in results)
    return f"seeds {results[0].seed} to {results[-1].seed}: {steps:,} events, {acknowledged:,} acknowledged"


_BY_KAFKA, _BY_PLOG = Scenario(), Scenario(has_plog_controllers=True)


@pytest.mark.parametrize("scenario", [_BY_KAFKA, _BY_PLOG], ids=["a model of Kafka's controller", "plog's controllers"])
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(_SEEDS_OF_THE_FIRST_TIER), marks=pytest.mark.first),
        range(_SEEDS_OF_THE_FIRST_TIER, _SEEDS),
    ],
    ids=["few", "more"],
)
def test_nothing_is_lost(seeds: range, scenario: Scenario) -> None:
    results = [play(seed, scenario) for seed in seeds]
    print(told(results))  # noqa: T201 - seen with -s
    assert not [result.violation for result in results if result.violation]
    assert sum(result.acknowledged for result in results) > 2 * len(seeds)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_known_mistake_is_found(mutant: Mutant) -> None:
    """And it is the mistake that is found: without it the same history is well."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        seeds = range(mutant.first_seed, mutant.first_seed + _MOST_SEEDS)
        found = next((seed for seed in seeds if play(seed, mutant.scenario).violation), None)
    assert found is not None, f"no history of {_MOST_SEEDS} shows it"
    print(f"seed {found} finds: {mutant.name}")  # noqa: T201 - seen with -s
    assert play(found, mutant.scenario).violation is None


@pytest.mark.skipif(not _SECONDS, reason="scripts/torture --simulation plays more histories")
def test_nothing_is_lost_for_a_long_time() -> None:
    end = time.monotonic() + _SECONDS
    results = []
    for seed in count(_FIRST_SEED):
        results.append(play(seed, (_BY_KAFKA, _BY_PLOG)[seed % 2]))
        assert results[-1].violation is None, results[-1].violation
        if seed % 1000 == 0:
            print(told(results), flush=True)  # noqa: T201 - seen with -s
        if time.monotonic() > end:
            break
    print(told(results))  # noqa: T201 - seen with -s
