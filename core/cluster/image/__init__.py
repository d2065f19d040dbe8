"""The metadata of a broker: topics, partitions, brokers and configurations, as KRaft's records have them.

In: records and deltas, from the metadata log of a lone broker (`SingleNodeController`) or from the controller of a
cluster (`ClusterMemberMetadata`). Out: a `MetadataImage`, which never changes, and the `MetadataDelta` between two of
them. The owner of a `BrokerMetadata` owns the newest image; everybody else gets a fixed one.
"""
