package protocol

import "slices"

// outbox has reports that wait for the network: bounded, sent in batches, repeated (O1 to O6).
type outbox struct {
	m     *Machine
	timer timerID
	path  string
	// The field of the body that has the entries.
	field string
	// The body has the newest entry alone, which replaces earlier ones.
	isState bool
	// Entries of a request, and entries that wait.
	batch, max int
	// Entries of the next request: fewer than batch while a bad one is sought (O4).
	size    int
	waiting *set
	// The number of the request while isBusy.
	call     int
	keeps    bool
	failures int
	isBusy   bool
	isClosed bool
	willSend bool
}

func newOutbox(m *Machine, timer timerID, path, field string, batch, max int) *outbox {
	return &outbox{m: m, timer: timer, path: path, field: field, batch: batch, max: max, size: batch, waiting: newSet()}
}

// replace has a newer state.
func (o *outbox) replace(state string) {
	o.waiting.clear()
	o.add([]string{state})
}

// clear forgets what waits, and the request that was not answered.
func (o *outbox) clear() {
	o.waiting.clear()
	o.m.timers.clear(o.timer)
	if o.isBusy {
		o.isBusy = false
		o.m.Cancel(o.call)
	}
}

func (o *outbox) add(entries []string) {
	for _, entry := range entries {
		o.waiting.add(entry)
		if o.waiting.len() > o.max {
			o.waiting.removeOldest()
			o.m.fail(&Error{Code: "queue_full", Message: "too many reports wait for " + o.path})
		}
	}
	o.keep()
	if !o.m.timers.isSet(o.timer) {
		o.sendLater()
	}
}

func (o *outbox) keep() {
	if o.keeps {
		o.m.do(Keep{slices.Clone(o.waiting.order)})
	}
}

// sendLater sends at the end of this input.
func (o *outbox) sendLater() {
	if o.willSend || o.isBusy || o.waiting.len() == 0 {
		return
	}
	o.willSend = true
	o.m.later(func() {
		o.willSend = false
		o.send()
	})
}

// wake tries at once if it waits after a failure.
func (o *outbox) wake() {
	if o.m.timers.isSet(o.timer) {
		o.send()
	}
}

// close sends what has not been tried, and nothing later.
func (o *outbox) close() {
	if !o.m.timers.isSet(o.timer) {
		o.send()
	}
	o.isClosed = true
	o.m.timers.clear(o.timer)
}

func (o *outbox) send() {
	if o.isBusy || o.isClosed || o.waiting.len() == 0 {
		return
	}
	o.m.timers.clear(o.timer)
	o.isBusy = true
	entries := slices.Clone(o.waiting.order[:min(o.size, o.waiting.len())])
	request := Call{Method: "POST", Path: o.path}
	if o.isState {
		request.Method, request.Body = "PUT", encode(map[string]string{o.field: entries[0]})
	} else {
		request.Body = encode(map[string][]string{o.field: entries})
	}
	o.call = o.m.request(request, func(_ Answer, err *Error) {
		o.isBusy = false
		if err != nil && canRepeat(err) {
			if o.isClosed {
				return
			}
			wait := Backoff(o.failures, o.m.random()) // O3
			o.failures++
			o.m.timers.set(o.timer, o.m.now.Add(max(wait, err.RetryAfter)), o.send)
			return
		}
		switch { // O4
		case err == nil:
			o.failures = 0
		case mayBeOfOne(err) && len(entries) > 1:
			o.size = len(entries) / 2
			entries = nil
		default:
			o.size = o.batch
			o.m.fail(err)
		}
		o.waiting.removeAll(entries)
		o.keep()
		o.sendLater()
	})
}

// mayBeOfOne reports whether one entry can be the reason that the service rejects all.
func mayBeOfOne(err *Error) bool {
	return err.Status == 400 || err.Status == 413 || err.Status == 422
}

// canRepeat reports whether another attempt can help.
func canRepeat(err *Error) bool {
	return err.Status == 0 || err.Status >= 500 || err.Status == 401 || err.Status == 408 || err.Status == 429
}
