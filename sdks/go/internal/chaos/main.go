// Chaos runs devices against a node under faults: kill -9, drain, a stalled and a cut network, revoked devices, replaced connections,
// tokens of a few seconds. Every message that the node accepted must be shown exactly once, except messages of a topic for which the
// client reported a gap.
//
// Usage:
//
//	NOROSHI_BIN=… go run ./internal/chaos [-minutes 10] [-clients 6] [-seed N]
//
// It prints counts, and exits with 1 if a message was lost or shown twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client"
	"github.com/noroshi/noroshi/sdks/go/internal/recorder"
	"github.com/noroshi/noroshi/sdks/go/internal/testnode"
	noroshi "github.com/noroshi/noroshi/sdks/go/server"
)

const (
	topic = "chaos"
	// Messages that waited for their handler when a gap was reported.
	tolerance = 20
)

func main() {
	log.SetFlags(0)
	minutes := flag.Float64("minutes", 10, "how long")
	clients := flag.Int("clients", 6, "how many devices")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()%1_000_000), "of the faults")
	flag.Parse()
	if *minutes <= 0 || *clients <= 0 {
		log.Fatal("minutes and clients are above 0")
	}
	failures, err := run(time.Duration(*minutes*float64(time.Minute)), *clients, *seed)
	if err != nil {
		log.Fatal(err)
	}
	if failures > 0 {
		os.Exit(1)
	}
}

// device is a client and what it has to show.
type device struct {
	*recorder.Device
	expected []string
}

type sent struct {
	id string
	to noroshi.To
}

type chaos struct {
	node    *testnode.Node
	proxy   *testnode.Proxy
	backend *noroshi.Client
	devices []*device
	// Of the faults; publishing has its own.
	random *rand.Rand

	mu   sync.Mutex
	sent []sent
	log  []string
}

func (c *chaos) note(format string, arguments ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf("%6d ", len(c.sent))+fmt.Sprintf(format, arguments...))
}

func run(duration time.Duration, count int, seed uint64) (failures int, err error) {
	node, err := testnode.Start()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, node.Stop()) }()
	proxy, err := testnode.NewProxy(node.Port())
	if err != nil {
		return 0, err
	}
	defer proxy.Stop()
	// The same key in every attempt: a message whose answer was lost is not published twice.
	backend, err := noroshi.New(noroshi.Options{URL: node.URL, Key: testnode.Key, Attempts: 10_000, Deadline: 2 * time.Minute})
	if err != nil {
		return 0, err
	}
	c := &chaos{node: node, proxy: proxy, backend: backend, random: rand.New(rand.NewPCG(seed, 1))}
	for n := range count {
		one, err := c.connect(n)
		if err != nil {
			return 0, err
		}
		defer one.End()
	}
	if err := c.begin(); err != nil {
		return 0, err
	}

	over := make(chan struct{})
	published := make(chan error, 1)
	go func() { published <- c.publishUntil(over, rand.New(rand.NewPCG(seed, 2))) }()
	happened := map[string]int{}
	faults := c.faults()
	names := slices.Sorted(maps.Keys(faults))
	for end := time.Now().Add(duration); time.Now().Before(end); {
		name := names[c.random.IntN(len(names))]
		c.note("begin %s", name)
		if err := faults[name](); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		c.note("end %s", name)
		happened[name]++
		time.Sleep(time.Duration(c.random.IntN(4_000)) * time.Millisecond)
	}
	close(over)
	if err := <-published; err != nil {
		return 0, err
	}
	for _, one := range c.devices {
		_ = recorder.Until("", func() bool { return len(one.Shown()) >= len(one.expected) })
	}
	time.Sleep(time.Second)
	for _, one := range c.devices {
		failures += c.report(one)
	}
	fmt.Printf("seed %d, %d messages, %v, faults: %v\n", seed, len(c.sent), duration, happened)
	return failures, nil
}

func (c *chaos) connect(n int) (*device, error) {
	d, err := recorder.New(c.proxy.URL, fmt.Sprintf("chaos-%d", n), func(o *client.Options) {
		o.PingInterval = time.Second
		if n%3 == 2 {
			o.Transports = []client.Transport{client.SSE}
		}
	})
	if err != nil {
		return nil, err
	}
	if n%2 == 1 {
		d.Lifetime = 8 * time.Second
	}
	d.Subscribe(topic, client.SubscribeOptions{Recover: true})
	one := &device{Device: d}
	c.devices = append(c.devices, one)
	d.Connect()
	return one, recorder.Until(d.Name+" to be connected", func() bool { return d.Is(client.StatusConnected) })
}

// begin gives every device a position to recover from (R3).
func (c *chaos) begin() error {
	err := recorder.Until("the topic", func() bool {
		if c.publish(noroshi.To{Topic: topic}, nil) != nil {
			return false
		}
		time.Sleep(100 * time.Millisecond)
		return !slices.ContainsFunc(c.devices, func(one *device) bool { return len(one.Shown()) == 0 })
	})
	time.Sleep(500 * time.Millisecond)
	for _, one := range c.devices {
		one.Forget()
	}
	return err
}

func (c *chaos) publish(to noroshi.To, receivers []*device) error {
	c.mu.Lock()
	data := strconv.Itoa(len(c.sent))
	c.sent = append(c.sent, sent{to: to})
	c.mu.Unlock()
	receipt, err := c.backend.Publish(context.Background(), noroshi.Notification{To: to, Data: data})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[len(c.sent)-1].id = receipt.ID
	for _, one := range receivers {
		one.expected = append(one.expected, data)
	}
	return nil
}

func (c *chaos) publishUntil(over <-chan struct{}, random *rand.Rand) error {
	for {
		select {
		case <-over:
			return nil
		case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
		}
		to, receivers := noroshi.To{Topic: topic}, c.devices
		if random.Float64() >= 0.3 {
			one := c.devices[random.IntN(len(c.devices))]
			to, receivers = noroshi.To{Users: []string{one.User}}, []*device{one}
		}
		if err := c.publish(to, receivers); err != nil {
			return err
		}
	}
}

func (c *chaos) faults() map[string]func() error {
	pick := func() *device { return c.devices[c.random.IntN(len(c.devices))] }
	return map[string]func() error{
		"kill":  func() error { return errors.Join(c.node.Kill(), c.node.Spawn()) },
		"drain": func() error { return errors.Join(c.node.Drain(), c.node.Spawn()) },
		"freeze": func() error {
			c.proxy.Freeze()
			time.Sleep(2*time.Second + time.Duration(c.random.IntN(13_000))*time.Millisecond)
			return c.proxy.Heal()
		},
		"cut": func() error {
			c.proxy.Cut()
			time.Sleep(time.Duration(c.random.IntN(3_000)) * time.Millisecond)
			return c.proxy.Heal()
		},
		"revoke": func() error {
			_, err := c.backend.RevokeDevice(context.Background(), pick().Name)
			return err
		},
		"replace": func() error {
			victim := pick()
			if !victim.Is(client.StatusConnected) {
				return nil
			}
			// A connection of the same device that acknowledges nothing.
			other, err := recorder.New(c.node.URL, victim.Name, func(o *client.Options) { o.Acknowledge = client.AckManual })
			if err != nil {
				return err
			}
			defer other.End()
			other.Connect()
			if err := recorder.Until("the other connection", func() bool { return other.Is(client.StatusConnected) }); err != nil {
				return err
			}
			other.End()
			err = recorder.Until("the client to be replaced", func() bool { return !victim.Is(client.StatusConnected) })
			if victim.Is(client.StatusClosed) {
				victim.Connect()
			}
			return err
		},
	}
}

// report prints what a device showed, and returns 1 if a message was lost or shown twice.
func (c *chaos) report(one *device) int {
	counts, places := map[string]int{}, map[int]int{}
	var ofTopic []int
	for place, data := range one.Shown() {
		counts[data]++
		if n, _ := strconv.Atoi(data); c.sent[n].to.Topic != "" {
			ofTopic = append(ofTopic, n)
			places[n] = place
		}
	}
	slices.Sort(ofTopic)
	gaps := one.Gaps()
	// isReported: the client reported a gap between the messages of the topic before and after this one.
	isReported := func(n int) bool {
		at, _ := slices.BinarySearch(ofTopic, n)
		from, to := 0, len(one.Shown())
		if at > 0 {
			from = places[ofTopic[at-1]]
		}
		if at < len(ofTopic) {
			to = places[ofTopic[at]]
		}
		return slices.ContainsFunc(gaps, func(gap int) bool { return gap >= from-tolerance && gap <= to+tolerance })
	}
	var lost, reported, twice []string
	for _, data := range one.expected {
		n, _ := strconv.Atoi(data)
		switch {
		case counts[data] > 1:
			twice = append(twice, data)
		case counts[data] == 1:
		case c.sent[n].to.Topic != "" && isReported(n):
			// A change from a WebSocket to a stream has no position of a topic: the client reports a gap (X5, X6).
			reported = append(reported, data)
		default:
			lost = append(lost, data)
		}
	}
	codes := map[client.Code]int{}
	for _, err := range one.Errors() {
		codes[err.Code]++
	}
	fmt.Printf("%s: %d expected, %d lost, %d twice, %d in %d reported gaps, errors: %v\n", one.Name, len(one.expected), len(lost), len(twice), len(reported), len(gaps), codes)
	if len(lost)+len(twice) == 0 {
		return 0
	}
	fmt.Printf("  lost: %q\n  twice: %q\n  states: %v\n", lost, twice, one.States())
	if len(lost) > 0 {
		first, _ := strconv.Atoi(lost[0])
		trace, err := c.backend.Trace(context.Background(), c.sent[first].id, one.Name)
		fmt.Printf("  the first one: %+v %v\n", trace, err)
	}
	for _, line := range c.log {
		fmt.Println("  " + line)
	}
	return 1
}
