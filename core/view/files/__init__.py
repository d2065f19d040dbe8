"""The files of a partition's folder as tables, each compared with the log; and checks in the background.

In: a folder. Out: rows, findings, and the plan of a recovery. A check that takes long can be ended at any moment.
"""
