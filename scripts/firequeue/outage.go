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
	// So long the backlog may take at the end.
	drain = 120 * time.Second
	step  = 5 * time.Millisecond
	mib   = 1 << 20
	// Ten times the default: a minute's outage has room.
	roomy = 1_000_000
)

// measureOutage lets Firehose be away at a steady rate. With `kept` batches that failed are put back by the handler of
// errors and the queue has room for them; without, all is as it is by default.
func measureOutage(o options, kept bool) error {
	fake, err := startFake(o.noroshi, o.answer)
	if err != nil {
		return err
	}
	defer fake.end()
	var q *firequeue.Queue
	options := []firequeue.Option{firequeue.ErrorHandler(func(_ error, records []*firehose.Record) {
		if !kept {
			// By default they are logged, and gone.
			return
		}
		for _, record := range records {
			// Where it is full the record is lost, which the fake will say.
			_ = q.Enqueue(record)
		}
	})}
	name := "outage"
	if kept {
		name = "outage, failed batches put back"
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
	if err := fake.tell("away"); err != nil {
		return err
	}
	if err := run.until(around + o.outage); err != nil {
		return err
	}
	if err := fake.tell("well"); err != nil {
		return err
	}
	back := time.Now()
	if err := run.until(2*around + o.outage); err != nil {
		return err
	}
	for q.Stats().QueueLength > 0 && time.Since(back) < drain {
		if err := run.look(); err != nil {
			return err
		}
		time.Sleep(step)
	}
	drained := time.Since(back)
	// It waits for what is on its way.
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	lost, doubled, err := fake.told(run.told)
	if err != nil {
		return err
	}
	say(name+": told", float64(run.told), "events")
	say(name+": lost", lost, "events")
	say(name+": refused when told", float64(run.refused), "events")
	say(name+": doubled", doubled, "events")
	say(name+": drained in", drained.Seconds(), "s")
	say(name+": resident memory before", before/mib, "MiB")
	say(name+": resident memory, the most", run.residentMax/mib, "MiB")
	return nil
}

type outageRun struct {
	queue       *firequeue.Queue
	rate        int
	start       time.Time
	told        int
	refused     int
	residentMax float64
}

// until tells at the rate until so long after the start.
func (r *outageRun) until(end time.Duration) error {
	for time.Since(r.start) < end {
		due := int(time.Since(r.start).Seconds() * float64(r.rate))
		for ; r.told < due; r.told++ {
			if r.queue.Enqueue(record(r.told)) != nil {
				r.refused++
			}
		}
		if err := r.look(); err != nil {
			return err
		}
		time.Sleep(step)
	}
	return nil
}

func (r *outageRun) look() error {
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
