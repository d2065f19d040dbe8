"""Requests: from a frame to its answer.

In: frames from `serving` and from embedded sessions. Out: calls of partitions, coordinators and the controller, and
answers, at once, as a `Pending`, or in steps that take turns (`turns`). A handler (`handlers`) is a function of the
broker's `Services`, a `RequestContext` and a request; all run on the broker's thread. A wait (for records, for a
commit) belongs to the waiting request; fetch sessions belong to the broker.
"""
