"""Plans how to mend a log, describes the plan, and carries it out: `plog recover`.

In: findings, and the map of a log. Out: a plan of steps, each of one file; then new files in the place of the old ones,
which are kept. `RecoveryJournal` makes all of it possible to take back.
"""
