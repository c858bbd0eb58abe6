package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/natureglobal/firequeue"
)

// Calls between two pauses.
const burst = 100

// measureHandover times each call of Enqueue, on several goroutines in parallel, while batches are sent to a Firehose that
// answers immediately. The records are prepared in advance. `noroshi bench events --only emit` writes a file meanwhile: on
// few cores, what the sink does appears in the slowest calls, so only the medians compare.
func measureHandover(o options) error {
	fake, err := startFake(o.noroshi, 0, 1)
	if err != nil {
		return err
	}
	defer fake.end()
	// A rejection would be cheap, so the queue must not fill.
	queue := queue(fake, firequeue.MaxQueueLength(math.MaxInt))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- queue.Loop(ctx) }()

	times := make([][]time.Duration, o.threads)
	failed := make([]error, o.threads)
	var all sync.WaitGroup
	begin := time.Now()
	for thread := range o.threads {
		all.Add(1)
		go func() {
			defer all.Done()
			times[thread], failed[thread] = handOver(queue, thread*o.each, o)
		}()
	}
	all.Wait()
	seconds := time.Since(begin).Seconds()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	waiting := queue.Stats().QueueLength
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	fate, err := fake.totals(o.threads * o.each)
	if err != nil {
		return err
	}
	if fate.lost > 0 {
		return fmt.Errorf("%v records did not arrive", fate.lost)
	}
	sorted := slices.Concat(times...)
	slices.Sort(sorted)
	clock := clockAlone(o.each)
	say("handing over p50", percentile(sorted, 0.5), "ns")
	say("handing over p99", percentile(sorted, 0.99), "ns")
	say("handing over p99.9", percentile(sorted, 0.999), "ns")
	say("handing over max", percentile(sorted, 1), "ns")
	say("clock alone p50", percentile(clock, 0.5), "ns")
	say("handed over while measured", float64(len(sorted))/seconds, "records/s")
	say("waiting in memory at the end", float64(waiting), "records")
	return nil
}

func handOver(queue *firequeue.Queue, from int, o options) ([]time.Duration, error) {
	times := make([]time.Duration, 0, o.each)
	for number := range o.each {
		if number%burst == burst-1 {
			time.Sleep(o.rest)
		}
		record := record(from + number)
		begin := time.Now()
		err := queue.Enqueue(record)
		times = append(times, time.Since(begin))
		if err != nil {
			return nil, err
		}
	}
	return times, nil
}

func clockAlone(count int) []time.Duration {
	times := make([]time.Duration, count)
	for index := range times {
		begin := time.Now()
		times[index] = time.Since(begin)
	}
	slices.Sort(times)
	return times
}
