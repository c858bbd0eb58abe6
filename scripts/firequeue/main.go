// Measures github.com/natureglobal/firequeue, a queue in memory before Firehose for programs in Go, with the figures and the
// fake of Firehose of `noroshi bench events`, for the comparison in docs/performance.md:
//
//	go run -mod=mod . -noroshi ../../target/release/noroshi
//
// Each part runs in a process of its own, so that its memory is its own. It is a program of ours beside a library of
// others: nothing of it is in Noroshi.
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

// parallel batches on their way: 8 × 500 records in 50 ms are four times the rate of the outage.
const parallel = 8

type options struct {
	noroshi  string
	threads  int
	each     int
	rest     time.Duration
	rate     int
	outage   time.Duration
	requests int
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
}

func main() {
	var o options
	var only string
	flag.StringVar(&o.noroshi, "noroshi", "noroshi", "which noroshi has the fake of Firehose")
	flag.StringVar(&only, "part", "", "one part in this process: handover, latency, outage, outage-kept")
	flag.IntVar(&o.threads, "threads", 4, "goroutines that hand over at once")
	flag.IntVar(&o.each, "each", 100_000, "records that each of them hands over")
	flag.DurationVar(&o.rest, "rest", 2*time.Millisecond, "how long it rests after every hundredth")
	flag.IntVar(&o.rate, "rate", 20_000, "events a second before, during and after the outage")
	flag.DurationVar(&o.outage, "outage", 10*time.Second, "how long Firehose is away")
	flag.IntVar(&o.requests, "requests", 20_000, "requests with and as many without the queue, by turns")
	flag.DurationVar(&o.answer, "answer", 50*time.Millisecond, "how late the fake of Firehose answers")
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

// line is an event as Noroshi writes it, of as many bytes.
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

// percentile is the value that `share` of a sorted list are below.
func percentile(sorted []time.Duration, share float64) float64 {
	return float64(sorted[min(int(float64(len(sorted))*share), len(sorted)-1)].Nanoseconds())
}
