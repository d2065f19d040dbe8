"""Settings: the tables of keys, the present values, and how settings are described and changed while the broker runs.

In: server.properties, `--set`, AlterConfigs and AlterClientQuotas. Out: values, and calls of subscribers of a key.
`Configs` owns the present settings, on the broker's thread; `BrokerConfig` is immutable.
"""
