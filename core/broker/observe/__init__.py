"""What an operator sees of a broker: metrics for Prometheus, and the log of its requests.

In: counts and times of requests, figures of partitions at each scrape. Out: text. Nothing here changes anything, and
nothing but the dispatcher depends on it.
"""
