package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// copier copies the topic `in` to `out`, partition by partition, in transactions of the group and of the id `name`.
type copier struct {
	address, in, out, name string
	turns                  int
}

func (c *copier) newSession() (*kgo.GroupTransactSession, error) {
	level := kgo.LogLevelError
	if os.Getenv("PLOG_COPIERS_DEBUG") != "" {
		level = kgo.LogLevelDebug
	}
	return kgo.NewGroupTransactSession(append(wayIn(),
		kgo.SeedBrokers(strings.Split(c.address, ",")...), kgo.TransactionalID(c.name),
		kgo.ConsumerGroup(c.name), kgo.ConsumeTopics(c.in), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(20*time.Second),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.RequestTimeoutOverhead(3*time.Second), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.RequestRetries(300),
		// It goes on asking a broker that is paused: for 30 s if it is a coordinator, and 13 s for each Produce otherwise.
		kgo.RetryTimeout(10*time.Second), kgo.ProduceRequestTimeout(2*time.Second),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, level, nil)))...)
}

// copySome does one transaction; every fifth is aborted, and done again. After an error the session is of no use.
func (c *copier) copySome(ctx context.Context, session *kgo.GroupTransactSession) error {
	records := session.PollRecords(ctx, 40).Records() // errors of fetches are tried again
	if len(records) == 0 {
		return nil
	}
	if err := session.Begin(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	var refused atomic.Pointer[error]
	for _, record := range records {
		copied := &kgo.Record{Topic: c.out, Partition: record.Partition, Key: record.Key, Value: record.Value}
		session.Produce(context.Background(), copied, func(_ *kgo.Record, err error) {
			if err != nil {
				refused.Store(&err)
			}
		})
	}
	if err := session.Client().Flush(context.Background()); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if err := refused.Load(); err != nil {
		fmt.Fprintln(os.Stderr, "aborted, as a record was refused:", *err)
	}
	c.turns++
	_, err := session.End(context.Background(), kgo.TransactionEndTry(refused.Load() == nil && c.turns%5 != 0))
	if err != nil {
		return fmt.Errorf("end: %w", err)
	}
	return nil
}

// run copies until SIGTERM. A session that came to an error is made again, as its documentation says; this is told.
func (c *copier) run() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	for ctx.Err() == nil {
		session, err := c.newSession()
		check(err)
		for err == nil && ctx.Err() == nil {
			err = c.copySome(ctx, session)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), "made again after", err)
		}
		session.Close()
	}
}
