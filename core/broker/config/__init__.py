"""Settings: the tables of keys, what is set where, and how settings are described and changed while the broker runs.

In: server.properties, `--set`, AlterConfigs and AlterClientQuotas. Out: values for who asks, and calls of those who
follow a key. `Configs` owns what is set now, on the broker's thread; `BrokerConfig` is immutable.
"""
