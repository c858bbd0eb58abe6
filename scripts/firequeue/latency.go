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

// Requests of one server before it is the other's turn.
const turn = 50

// measureLatency asks two servers by turns over a connection each: one that hands over a record for each request, and one
// that does not.
func measureLatency(o options) error {
	fake, err := startFake(o.noroshi, o.answer)
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
	for _, server := range []*asked{off, on} {
		if err := server.ask(turn); err != nil {
			return err
		}
		server.times = nil
	}
	for number := range (o.requests + turn - 1) / turn {
		order := []*asked{off, on}
		// Neither is always the first.
		if number%2 == 1 {
			slices.Reverse(order)
		}
		for _, server := range order {
			if err := server.ask(turn); err != nil {
				return err
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	lost, _, err := fake.told(on.number)
	if err != nil {
		return err
	}
	if lost > 0 {
		return fmt.Errorf("%v records did not arrive", lost)
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

type asked struct {
	server *httptest.Server
	// Of requests it answered, and the next record.
	number int
	times  []time.Duration
}

func open(queue *firequeue.Queue) *asked {
	a := &asked{}
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			To   struct{ Users []string }
			When string
			Data json.RawMessage
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.To.Users) == 0 {
			http.Error(w, "what?", http.StatusBadRequest)
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

func (a *asked) ask(count int) error {
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
			return fmt.Errorf("it answered %s: %v", answer.Status, err)
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
