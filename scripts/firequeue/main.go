// Measures github.com/natureglobal/firequeue, an in-memory queue for Firehose for Go programs, with the figures and the fake
// of Firehose of `noroshi bench events`, for the comparison in docs/performance.md:
//
//	go run -mod=mod . -noroshi ../../target/release/noroshi
//
// Each part runs in its own process, so that memory figures are separate. This program uses a third-party library that is
// not part of Noroshi.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go/service/firehose"
	"github.com/natureglobal/firequeue"
)

// parallel is the number of batches in flight: 8 × 500 records in 50 ms are four times the rate of the outage.
const parallel = 8

type options struct {
	noroshi  string
	threads  int
	each     int
	rest     time.Duration
	rate     int
	outage   time.Duration
	requests int
	backlog  int
	answer   time.Duration
}

type part struct {
	name    string
	measure func(options) error
}

var parts = []part{
	{"handover", measureHandover},
	{"latency", measureLatency},
	{"outage", func(o options) error { return measureOutage(o, false) }},
	{"outage-kept", func(o options) error { return measureOutage(o, true) }},
	{"backlog", measureBacklog},
	{"partial", measurePartial},
}

func main() {
	var o options
	var only string
	flag.StringVar(&o.noroshi, "noroshi", "noroshi", "the noroshi binary that provides the fake of Firehose")
	flag.StringVar(&only, "part", "", "run only this part, in this process: handover, latency, outage, outage-kept, backlog, partial")
	flag.IntVar(&o.threads, "threads", 4, "number of goroutines that enqueue")
	flag.IntVar(&o.each, "each", 100_000, "records per goroutine")
	flag.DurationVar(&o.rest, "rest", 2*time.Millisecond, "pause after every hundredth record")
	flag.IntVar(&o.rate, "rate", 20_000, "events per second before, during and after the outage")
	flag.DurationVar(&o.outage, "outage", 10*time.Second, "duration of the outage")
	flag.IntVar(&o.requests, "requests", 20_000, "requests with and without the queue each, alternating")
	flag.IntVar(&o.backlog, "backlog", 1_000_000, "events that wait before Firehose accepts them")
	flag.DurationVar(&o.answer, "answer", 50*time.Millisecond, "answer latency of the fake of Firehose")
	flag.Parse()
	if err := run(o, only); err != nil {
		fmt.Fprintln(os.Stderr, "firequeue:", err)
		os.Exit(1)
	}
}

func run(o options, only string) error {
	if only != "" {
		index := slices.IndexFunc(parts, func(p part) bool { return p.name == only })
		if index < 0 {
			return fmt.Errorf("there is no part %q", only)
		}
		return parts[index].measure(o)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for _, p := range parts {
		command := exec.Command(program, append(slices.Clone(os.Args[1:]), "-part", p.name)...)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// line is an event in the format and size of Noroshi's.
func line(number int) []byte {
	return fmt.Appendf(nil, `{"v":1,"at":"2027-01-15T08:00:00.000Z","node":"bench","run":1800000000000,"n":%d,`+
		`"event":"written","id":"00000000-0000-0000-0000-%012x","count":1,"devices":[%d]}`+"\n", number, number, number)
}

func record(number int) *firehose.Record { return &firehose.Record{Data: line(number)} }

func queue(fake *fake, options ...firequeue.Option) *firequeue.Queue {
	return firequeue.New(fake.client, fake.stream, append(options, firequeue.Parallel(parallel))...)
}

func say(name string, value float64, unit string) {
	fmt.Printf("%-42s %12.2f %s\n", name, value, unit)
}

// percentile returns the value below which `share` of a sorted list lies.
func percentile(sorted []time.Duration, share float64) float64 {
	return float64(sorted[min(int(float64(len(sorted))*share), len(sorted)-1)].Nanoseconds())
}
