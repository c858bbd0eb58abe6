package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-sdk-go/service/firehose"
	"github.com/natureglobal/firequeue"
)

const (
	// Before and after the outage.
	around = 5 * time.Second
	// Time limit for the backlog at the end.
	drain = 120 * time.Second
	step  = 5 * time.Millisecond
	mib   = 1 << 20
	// Ten times the default: 50 s of an outage at 20,000 events per second. A minute has 1,200,000.
	roomy = 1_000_000
)

// measureOutage simulates an outage of Firehose at a steady event rate. With `kept`, the error handler re-enqueues failed
// batches and the queue has room for them; otherwise everything has its default.
func measureOutage(o options, kept bool) error {
	fake, err := startFake(o.noroshi, o.answer, 1)
	if err != nil {
		return err
	}
	defer fake.end()
	var q *firequeue.Queue
	options := []firequeue.Option{firequeue.ErrorHandler(func(_ error, records []*firehose.Record) {
		if !kept {
			// The default handler logs and drops them.
			return
		}
		for _, record := range records {
			// If the queue is full the record is lost, and the fake counts it.
			_ = q.Enqueue(record)
		}
	})}
	name := "outage"
	if kept {
		name = "outage, failed batches re-enqueued"
		options = append(options, firequeue.MaxQueueLength(roomy))
	}
	q = queue(fake, options...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- q.Loop(ctx) }()

	run := outageRun{queue: q, rate: o.rate, start: time.Now()}
	if err := run.until(around); err != nil {
		return err
	}
	before, err := resident()
	if err != nil {
		return err
	}
	if err := fake.send("away"); err != nil {
		return err
	}
	if err := run.until(around + o.outage); err != nil {
		return err
	}
	if err := fake.send("well"); err != nil {
		return err
	}
	back := time.Now()
	if err := run.until(2*around + o.outage); err != nil {
		return err
	}
	for q.Stats().QueueLength > 0 && time.Since(back) < drain {
		if err := run.sampleMemory(); err != nil {
			return err
		}
		time.Sleep(step)
	}
	drained := time.Since(back)
	// Loop waits for batches in flight.
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	fate, err := fake.totals(run.emitted)
	if err != nil {
		return err
	}
	say(name+": emitted", float64(run.emitted), "events")
	say(name+": lost", fate.lost, "events")
	say(name+": rejected by Enqueue", float64(run.refused), "events")
	say(name+": duplicated", fate.doubled, "events")
	say(name+": out of order", fate.late, "events")
	say(name+": drained in", drained.Seconds(), "s")
	say(name+": resident memory before", before/mib, "MiB")
	say(name+": resident memory, peak", run.residentMax/mib, "MiB")
	return nil
}

type outageRun struct {
	queue       *firequeue.Queue
	rate        int
	start       time.Time
	emitted     int
	refused     int
	residentMax float64
}

// until emits events at the rate until `end` after the start.
func (r *outageRun) until(end time.Duration) error {
	for time.Since(r.start) < end {
		due := int(time.Since(r.start).Seconds() * float64(r.rate))
		for ; r.emitted < due; r.emitted++ {
			if r.queue.Enqueue(record(r.emitted)) != nil {
				r.refused++
			}
		}
		if err := r.sampleMemory(); err != nil {
			return err
		}
		time.Sleep(step)
	}
	return nil
}

func (r *outageRun) sampleMemory() error {
	bytes, err := resident()
	r.residentMax = max(r.residentMax, bytes)
	return err
}

// resident memory of this process (proc(5), statm: pages).
func resident() (float64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, err
	}
	return float64(pages * os.Getpagesize()), nil
}
