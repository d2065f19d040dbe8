"""Plans what mends a log, says it in words, and does it: `plog recover`.

In: findings, and the map of a log. Out: a plan of steps, each of one file; then new files in the place of the old
ones, which are kept. `RecoveryJournal` makes all of it possible to take back.
"""
