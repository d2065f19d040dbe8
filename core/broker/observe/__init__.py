"""An operator's view of a broker: metrics for Prometheus, and the log of its requests.

In: counts and times of requests, figures of partitions at each scrape. Out: text. Nothing here changes state, and
nothing but the dispatcher depends on it.
"""
