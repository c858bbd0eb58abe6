package main

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go/service/firehose"
	"github.com/natureglobal/firequeue"
)

// every is the interval of failing records of measurePartial.
const every = "20"

// lasts is the duration of measurePartial.
const lasts = 10 * time.Second

// keeping returns a queue with unlimited room whose error handler re-enqueues failed batches.
func keeping(f *fake) *firequeue.Queue {
	var q *firequeue.Queue
	q = queue(f, firequeue.MaxQueueLength(math.MaxInt), firequeue.ErrorHandler(func(_ error, records []*firehose.Record) {
		for _, record := range records {
			_ = q.Enqueue(record)
		}
	}))
	return q
}

// measureBacklog measures how fast a backlog is sent: records of several goroutines that waited while Firehose throttled
// all calls.
func measureBacklog(o options) error {
	return onGoroutines(o, "backlog", "throttling", o.backlog, func(int) {})
}

// measurePartial measures order and loss when Firehose rejects every twentieth record, at a constant rate.
func measurePartial(o options) error {
	count := o.rate * int(lasts.Seconds())
	start := time.Now()
	return onGoroutines(o, "failing records", "failing "+every, count, func(number int) {
		due := time.Duration(float64(number) / float64(o.rate) * float64(time.Second))
		if time.Since(start) < due {
			time.Sleep(step)
		}
	})
}

// onGoroutines enqueues records on several goroutines while the fake has a mood, and then waits until all are sent. Each
// goroutine enqueues the numbers that are its own modulo the number of goroutines, in order.
func onGoroutines(o options, name, mood string, count int, pace func(number int)) error {
	fake, err := startFake(o.noroshi, o.answer, o.threads)
	if err != nil {
		return err
	}
	defer fake.end()
	if err := fake.send(mood); err != nil {
		return err
	}
	q := keeping(fake)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- q.Loop(ctx) }()

	var all sync.WaitGroup
	for thread := range o.threads {
		all.Add(1)
		go func() {
			defer all.Done()
			for number := thread; number < count; number += o.threads {
				pace(number)
				// A record without room is lost, and the fake counts it.
				_ = q.Enqueue(record(number))
			}
		}()
	}
	all.Wait()
	if name == "backlog" {
		if err := fake.send("well"); err != nil {
			return err
		}
	}
	back := time.Now()
	for q.Stats().QueueLength > 0 && time.Since(back) < drain {
		time.Sleep(step)
	}
	// Loop waits for batches in flight.
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	fate, err := fake.totals(count)
	if err != nil {
		return err
	}
	say(name+": events", float64(count), "events")
	say(name+": sent", (float64(count)-fate.lost)/fate.lasted, "events/s")
	say(name+": lost", fate.lost, "events")
	say(name+": duplicated", fate.doubled, "events")
	say(name+": out of order", fate.late, "events")
	return nil
}
