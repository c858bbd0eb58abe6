package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/natureglobal/firequeue"
)

// Requests to one server before the other's turn.
const turn = 50

// measureLatency sends requests to two servers alternately, over one connection each: one enqueues a record per request, the
// other does not.
func measureLatency(o options) error {
	fake, err := startFake(o.noroshi, o.answer, 1)
	if err != nil {
		return err
	}
	defer fake.end()
	queue := queue(fake)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- queue.Loop(ctx) }()

	off, on := open(nil), open(queue)
	defer off.server.Close()
	defer on.server.Close()
	for _, server := range []*target{off, on} {
		if err := server.request(turn); err != nil {
			return err
		}
		server.times = nil
	}
	for number := range (o.requests + turn - 1) / turn {
		order := []*target{off, on}
		// Alternate which server is first.
		if number%2 == 1 {
			slices.Reverse(order)
		}
		for _, server := range order {
			if err := server.request(turn); err != nil {
				return err
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	fate, err := fake.totals(on.number)
	if err != nil {
		return err
	}
	if fate.lost > 0 {
		return fmt.Errorf("%v records did not arrive", fate.lost)
	}
	offMean, onMean := mean(off.times), mean(on.times)
	slices.Sort(off.times)
	slices.Sort(on.times)
	say("request p50, queue off", percentile(off.times, 0.5)/1e3, "µs")
	say("request p50, queue on", percentile(on.times, 0.5)/1e3, "µs")
	say("request p99, queue off", percentile(off.times, 0.99)/1e3, "µs")
	say("request p99, queue on", percentile(on.times, 0.99)/1e3, "µs")
	say("request mean, queue on to off", onMean/offMean, "")
	say("request p50, queue on to off", percentile(on.times, 0.5)/percentile(off.times, 0.5), "")
	return nil
}

type target struct {
	server *httptest.Server
	// Number of answered requests, and of the next record.
	number int
	times  []time.Duration
}

func open(queue *firequeue.Queue) *target {
	a := &target{}
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			To   struct{ Users []string }
			When string
			Data json.RawMessage
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.To.Users) == 0 {
			http.Error(w, "invalid request", http.StatusBadRequest)
			return
		}
		if queue != nil {
			if err := queue.Enqueue(record(a.number)); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		a.number++
		w.Header().Set("content-type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"number":%d}`, a.number)
	}))
	return a
}

func (a *target) request(count int) error {
	body := []byte(`{"to":{"users":["nobody"]},"when":"connected","data":{"n":1}}`)
	for range count {
		begin := time.Now()
		answer, err := a.server.Client().Post(a.server.URL, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		a.times = append(a.times, time.Since(begin))
		if err != nil || answer.StatusCode != http.StatusAccepted {
			return fmt.Errorf("the server answered %s: %v", answer.Status, err)
		}
	}
	return nil
}

func mean(times []time.Duration) float64 {
	var sum time.Duration
	for _, each := range times {
		sum += each
	}
	return float64(sum) / float64(len(times))
}
