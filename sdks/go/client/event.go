package client

import (
	"slices"
	"sync"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
)

// eventsMax is how many events wait for their handlers.
const eventsMax = 1_000

// event is an effect of the machine that the application sees, or a deniedEvent.
type event = protocol.Effect

// eventQueue calls handle for one event after the other, in a goroutine that exists while there are events.
type eventQueue struct {
	handle func(event)
	// Reports how many events were dropped.
	overflow func(count int) event

	mu        sync.Mutex
	waiting   []event
	dropped   int
	isRunning bool
}

func (q *eventQueue) push(e event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= eventsMax {
		// At most one message waits here, and it must not be lost.
		oldest := slices.IndexFunc(q.waiting, func(e event) bool { _, isMessage := e.(protocol.Pass); return !isMessage })
		q.waiting = slices.Delete(q.waiting, oldest, oldest+1)
		q.dropped++
	}
	q.waiting = append(q.waiting, e)
	if !q.isRunning {
		q.isRunning = true
		go q.run()
	}
}

func (q *eventQueue) next() (event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped > 0 {
		count := q.dropped
		q.dropped = 0
		return q.overflow(count), true
	}
	if len(q.waiting) == 0 {
		q.waiting = nil
		q.isRunning = false
		return nil, false
	}
	first := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	return first, true
}

func (q *eventQueue) run() {
	for {
		e, ok := q.next()
		if !ok {
			return
		}
		q.handle(e)
	}
}
