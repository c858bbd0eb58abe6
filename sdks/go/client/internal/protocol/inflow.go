package protocol

import "container/list"

// QueueMax is how many messages wait for the application (L2).
const QueueMax = 1_000

const seenMax = 4_096

// position is the place of a message in the log of its topic.
type position struct {
	Epoch  string `json:"epoch"`
	Offset int64  `json:"offset"`
}

// entry is a message, or a call that waits until all earlier messages are settled.
type entry struct {
	message *Message
	then    func()
	session int
}

type seen struct {
	id        string
	isHandled bool
}

// inflow has the messages on their way to the application: each id once, in order, one at a time.
type inflow struct {
	m     *Machine
	queue []entry
	// The application has the first message of the queue.
	isPassed  bool
	isRunning bool
	seen      map[string]*list.Element
	// Values are *seen, oldest first.
	seenOrder *list.List
	// Topics with a message that was not handled: acknowledging a later one would acknowledge it too (A3).
	blocked map[string]struct{}
	// Of topics: everything up to here was handled (R7).
	positions map[string]position
	// X5: the last handled stored message of a stream, while none failed.
	lastID    string
	session   int
	isStream  bool
	hasFailed bool
}

func newInflow(m *Machine) *inflow {
	return &inflow{m: m, seen: map[string]*list.Element{}, seenOrder: list.New(), blocked: map[string]struct{}{}, positions: map[string]position{}}
}

// restart begins a session: messages that were not handled arrive again.
func (f *inflow) restart(isStream bool) {
	f.session++
	f.isStream = isStream
	if !isStream { // X5
		f.lastID = ""
	}
	clear(f.blocked)
	f.hasFailed = false
}

// receive reports false if the queue is full.
func (f *inflow) receive(message *Message) bool {
	if known, ok := f.seen[message.ID]; ok {
		if known.Value.(*seen).isHandled {
			f.done(message, f.session) // D2
		}
		return true
	}
	if len(f.queue) >= QueueMax {
		return false
	}
	f.seen[message.ID] = f.seenOrder.PushBack(&seen{id: message.ID})
	f.forgetOldest()
	f.queue = append(f.queue, entry{message: message, session: f.session})
	f.pump()
	return true
}

// forgetOldest keeps the memory of ids bounded (D4).
func (f *inflow) forgetOldest() {
	if f.seenOrder.Len() <= seenMax {
		return
	}
	for element := f.seenOrder.Front(); element != nil; element = element.Next() {
		if one := element.Value.(*seen); one.isHandled {
			f.seenOrder.Remove(element)
			delete(f.seen, one.id)
			return
		}
	}
}

// after calls then once all earlier messages are settled.
func (f *inflow) after(then func()) {
	if len(f.queue) == 0 {
		then()
		return
	}
	f.queue = append(f.queue, entry{then: then})
	f.pump()
}

// Waiting is how many messages wait for the application.
func (m *Machine) Waiting() int { return len(m.inflow.queue) }

// reach moves the position of a topic forward, unless a message of the topic was not handled (R7).
func (f *inflow) reach(topic string, to position) {
	if _, ok := f.blocked[topic]; ok {
		return
	}
	known, ok := f.positions[topic]
	if !ok || known.Epoch != to.Epoch || known.Offset < to.Offset { // R5
		f.positions[topic] = to
	}
}

func (f *inflow) pump() {
	if f.isRunning {
		return
	}
	f.isRunning = true
	defer func() { f.isRunning = false }()
	for !f.isPassed && len(f.queue) > 0 {
		first := f.queue[0]
		switch {
		case first.message == nil:
			f.shift()
			first.then()
		case !f.m.hasListener(first.message.Topic): // A4
			f.settle(false)
		default:
			f.isPassed = true
			f.m.do(Pass{*first.message})
		}
	}
}

// drop forgets the messages that the application does not have yet. They arrive again.
func (f *inflow) drop() {
	kept := 0
	if f.isPassed {
		kept = 1
	}
	for _, one := range f.queue[min(kept, len(f.queue)):] {
		if one.message != nil {
			f.seenOrder.Remove(f.seen[one.message.ID])
			delete(f.seen, one.message.ID)
		}
	}
	f.queue = f.queue[:min(kept, len(f.queue))]
}

func (f *inflow) shift() entry {
	first := f.queue[0]
	f.queue[0] = entry{}
	f.queue = f.queue[1:]
	if len(f.queue) == 0 {
		f.queue = nil
		f.m.later(f.m.caughtUp)
	}
	return first
}

// settle removes the first message.
func (f *inflow) settle(isHandled bool) {
	first := f.shift()
	message := first.message
	element := f.seen[message.ID]
	if isHandled {
		element.Value.(*seen).isHandled = true
		f.done(message, first.session)
		return
	}
	f.seenOrder.Remove(element)
	delete(f.seen, message.ID)
	f.hasFailed = true
	if message.Topic != "" {
		f.blocked[message.Topic] = struct{}{}
	}
}

func (f *inflow) done(message *Message, session int) {
	if message.Topic != "" {
		if _, ok := f.blocked[message.Topic]; ok {
			return
		}
		if message.Epoch != "" && message.Offset != nil && f.m.topics.contains(message.Topic) { // R5
			f.reach(message.Topic, position{message.Epoch, *message.Offset})
		}
	}
	if !message.Ack { // A7
		return
	}
	if f.isStream && session == f.session && !f.hasFailed {
		f.lastID = message.ID
	}
	if f.m.config.Acknowledge == Handled || f.m.acked.contains(message.ID) {
		f.m.ack(message.ID)
	}
}
