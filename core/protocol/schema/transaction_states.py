"""What is known of transactions and of producers (KIP-664).

ListTransactions (API 66): which transactional ids there are (KIP-994, KIP-1152).
DescribeTransactions (API 65): the states of transactional ids.
DescribeProducers (API 61): the producers that a partition knows.
"""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Message, api_key=66, valid="0-2", flexible="0+"):
    state_filters: list[str] = array("string")
    producer_id_filters: list[int] = array("int64")
    duration_filter: int = int64("1+", -1)
    transactional_id_pattern: str | None = string("2+", None, nullable="2+")


class ListedTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, api_key=66, valid="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array("string")
    transaction_states: list[ListedTransaction] = array(ListedTransaction)


LIST_TRANSACTIONS = Api(ListTransactionsRequest, ListTransactionsResponse)


class DescribeTransactionsRequest(Message, api_key=65, valid="0", flexible="0+"):
    transactional_ids: list[str] = array("string")


class TransactionTopic(Struct):
    topic: str = string()
    partitions: list[int] = array("int32")


class DescribedTransaction(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TransactionTopic] = array(TransactionTopic)


class DescribeTransactionsResponse(Message, api_key=65, valid="0", flexible="0+"):
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)


DESCRIBE_TRANSACTIONS = Api(DescribeTransactionsRequest, DescribeTransactionsResponse)


class TopicRequest(Struct):
    name: str = string()
    partition_indexes: list[int] = array("int32")


class DescribeProducersRequest(Message, api_key=61, valid="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32("0+", -1)
    last_timestamp: int = int64("0+", -1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64("0+", -1)


class PartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("0+", None, nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, api_key=61, valid="0", flexible="0+"):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)


DESCRIBE_PRODUCERS = Api(DescribeProducersRequest, DescribeProducersResponse)
