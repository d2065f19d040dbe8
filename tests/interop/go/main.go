// A franz-go client that does what teams do with one: `client first ADDRESS`, then, once the broker was restarted,
// `client second ADDRESS`; and `client transactions ADDRESS`. It prints what it saw as JSON; anything that fails ends it
// with exit code 1. `client copy ADDRESS IN OUT NAME` copies a topic until SIGTERM (copy.go). `PLOG_TESTS_WAY` in the
// environment says how it authenticates (secured.go).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topic    = "go"
	group    = "go-group"
	perCodec = 100
	toCommit = 200
)

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()},
	{"gzip", kgo.GzipCompression()},
	{"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()},
	{"zstd", kgo.ZstdCompression()},
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newClient(address string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(append(wayIn(), kgo.SeedBrokers(address)), options...)...)
	check(err)
	return client
}

func produce(ctx context.Context, address string) {
	for _, c := range codecs {
		client := newClient(address, kgo.ProducerBatchCompression(c.codec))
		var records []*kgo.Record
		for n := range perCodec {
			records = append(records, &kgo.Record{
				Topic:   topic,
				Key:     []byte(fmt.Sprintf("key-%d", n%7)),
				Value:   []byte(fmt.Sprintf("%s-%d", c.name, n)),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(c.name)}},
			})
		}
		check(client.ProduceSync(ctx, records...).FirstErr())
		client.Close()
	}
}

// take polls until it has `count` records.
func take(ctx context.Context, client *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	for len(records) < count {
		fetches := client.PollRecords(ctx, count-len(records))
		check(fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

func values(records []*kgo.Record) []string {
	var found []string
	for _, record := range records {
		if len(record.Headers) != 1 || record.Headers[0].Key != "codec" {
			check(fmt.Errorf("headers of %s: %v", record.Value, record.Headers))
		}
		found = append(found, string(record.Value))
	}
	sort.Strings(found)
	return found
}

func readByAssignment(ctx context.Context, address string) []string {
	offsets := map[string]map[int32]kgo.Offset{topic: {}}
	for partition := range int32(3) {
		offsets[topic][partition] = kgo.NewOffset().AtStart()
	}
	client := newClient(address, kgo.ConsumePartitions(offsets))
	defer client.Close()
	return values(take(ctx, client, perCodec*len(codecs)))
}

// member joins the group and tells how many partitions it has whenever that changes.
func member(ctx context.Context, address string) (*kgo.Client, chan int) {
	owned, changes := 0, make(chan int, 100)
	change := func(by int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			owned += by * len(partitions[topic])
			changes <- owned
		}
	}
	client := newClient(address, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(change(1)), kgo.OnPartitionsRevoked(change(-1)), kgo.OnPartitionsLost(change(-1)),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	go func() {
		for ctx.Err() == nil && !client.PollFetches(ctx).IsClientClosed() {
		}
	}()
	return client, changes
}

func waitFor(ctx context.Context, what string, changes chan int, isGood func(int) bool) int {
	for {
		select {
		case owned := <-changes:
			if isGood(owned) {
				return owned
			}
		case <-ctx.Done():
			check(fmt.Errorf("waiting for %s: %w", what, ctx.Err()))
		}
	}
}

func rebalance(ctx context.Context, address string) map[string]int {
	firstClient, firstChanges := member(ctx, address)
	alone := waitFor(ctx, "the first member", firstChanges, func(n int) bool { return n == 3 })
	secondClient, secondChanges := member(ctx, address)
	joined := waitFor(ctx, "the second member", secondChanges, func(n int) bool { return n > 0 })
	left := waitFor(ctx, "the first to give some up", firstChanges, func(n int) bool { return n == 3-joined })
	secondClient.Close()
	again := waitFor(ctx, "the first to have all again", firstChanges, func(n int) bool { return n == 3 })
	firstClient.Close()
	return map[string]int{"alone": alone, "joined": joined, "left": left, "again": again}
}

func commit(ctx context.Context, address string) int64 {
	client := newClient(address, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	check(client.CommitRecords(ctx, take(ctx, client, toCommit)...))
	var committed int64
	client.AllowRebalance()
	for _, partitions := range client.CommittedOffsets() {
		for _, offset := range partitions {
			committed += offset.Offset
		}
	}
	return committed
}

func administer(ctx context.Context, admin *kadm.Client) map[string]any {
	value := "777"
	_, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.ms", Value: &value}}, topic)
	check(err)
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	check(err)
	seen := map[string]any{}
	for _, config := range configs[0].Configs {
		if config.Key == "segment.ms" {
			seen["segment.ms"] = config.MaybeValue()
		}
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	check(err)
	var total int64
	ends.Each(func(offset kadm.ListedOffset) { total += offset.Offset })
	seen["ends"] = total
	described, err := admin.DescribeGroups(ctx, group)
	check(err)
	seen["state"] = described[group].State
	lag, err := admin.Lag(ctx, group)
	check(err)
	seen["lag"] = lag[group].Lag.Total()
	brokers, err := admin.BrokerMetadata(ctx)
	check(err)
	seen["brokers"] = len(brokers.Brokers)
	_, err = admin.CreatePartitions(ctx, 1, topic)
	check(err)
	topics, err := admin.ListTopics(ctx, topic)
	check(err)
	seen["partitions"] = len(topics[topic].Partitions)
	return seen
}

// transact copies `topic` to `topic`-out, exactly once, in transactions of a group: every third one is aborted first.
func transact(ctx context.Context, address string) map[string]any {
	out := topic + "-out"
	session, err := kgo.NewGroupTransactSession(append(wayIn(), kgo.SeedBrokers(address), kgo.TransactionalID("go-copier"),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())...)
	check(err)
	defer session.Close()
	copied, aborted := 0, 0
	for turn := 0; copied < perCodec*len(codecs); turn++ {
		fetches := session.PollRecords(ctx, 40)
		check(fetches.Err())
		check(session.Begin())
		for _, record := range fetches.Records() {
			session.Produce(ctx, &kgo.Record{Topic: out, Key: record.Key, Value: record.Value}, func(_ *kgo.Record, err error) {
				check(err)
			})
		}
		check(session.Client().Flush(ctx))
		isCommit := kgo.TransactionEndTry(turn%3 != 1)
		committed, err := session.End(ctx, isCommit)
		check(err)
		if committed {
			copied += len(fetches.Records())
		} else {
			aborted++
		}
	}
	return map[string]any{"copied": copied, "aborted": aborted}
}

// fence lets two producers with one transactional id meet: the first may not commit.
func fence(ctx context.Context, address string) map[string]any {
	first := newClient(address, kgo.TransactionalID("go-fenced"), kgo.DefaultProduceTopic(topic+"-fenced"))
	check(first.BeginTransaction())
	check(first.ProduceSync(ctx, kgo.StringRecord("first")).FirstErr())
	second := newClient(address, kgo.TransactionalID("go-fenced"), kgo.DefaultProduceTopic(topic+"-fenced"))
	check(second.BeginTransaction())
	check(second.ProduceSync(ctx, kgo.StringRecord("second")).FirstErr())
	check(second.EndTransaction(ctx, kgo.TryCommit))
	err := first.EndTransaction(ctx, kgo.TryCommit)
	first.Close()
	second.Close()
	if err == nil {
		check(fmt.Errorf("the first producer was not fenced"))
	}
	return map[string]any{"error": err.Error()}
}

func main() {
	if os.Args[1] == "copy" {
		(&copier{address: os.Args[2], in: os.Args[3], out: os.Args[4], name: os.Args[5]}).run()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Second)
	defer cancel()
	address := os.Args[2]
	client := newClient(address)
	admin := kadm.NewClient(client)
	seen := map[string]any{}
	if os.Args[1] == "first" {
		_, err := admin.CreateTopic(ctx, 3, 1, nil, topic)
		check(err)
		produce(ctx, address)
		seen["values"] = readByAssignment(ctx, address)
		seen["rebalance"] = rebalance(ctx, address)
		seen["committed"] = commit(ctx, address)
	} else if os.Args[1] == "transactions" {
		for _, name := range []string{topic, topic + "-out", topic + "-fenced"} {
			_, err := admin.CreateTopic(ctx, 3, 1, nil, name)
			check(err)
		}
		produce(ctx, address)
		seen["copier"] = transact(ctx, address)
		seen["fenced"] = fence(ctx, address)
	} else {
		seen["admin"] = administer(ctx, admin)
		resumed := newClient(address, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group))
		seen["rest"] = values(take(ctx, resumed, perCodec*len(codecs)-toCommit))
		resumed.Close()
		deleted, err := admin.DeleteGroups(ctx, group)
		check(err)
		check(deleted.Error())
		gone, err := admin.DeleteTopics(ctx, topic)
		check(err)
		check(gone.Error())
	}
	client.Close()
	check(json.NewEncoder(os.Stdout).Encode(seen))
}
