package protocol

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// Acknowledge says when a stored message is acknowledged (A1, A6).
type Acknowledge int

// The ways to acknowledge.
const (
	Handled Acknowledge = iota
	Received
	Manual
)

const (
	connectTimeout = 15 * time.Second
	pongTimeout    = 10 * time.Second
	stableAfter    = 5 * time.Second
	flushInterval  = 100 * time.Millisecond
	idleAfter      = 10 * time.Second
	webSocketAgain = 5 * time.Minute
	pingInterval   = time.Minute
	// Whatever the service says, the client is not busy with pings.
	pingIntervalMin = 100 * time.Millisecond
	acksMax         = 10_000
	rememberedMax   = 4_096
	// Four minutes between comments of a stream, which has no ping_s, and half a minute for them to arrive (X8).
	streamSilence = 270 * time.Second
	rejectionsMax = 5
	// Of JSON, in the worst case: below the 64 KiB of limits.client_message (L1).
	frameBytesMax   = 60_000
	frameEntriesMax = 1_000
)

// Config configures a Machine.
type Config struct {
	App         string
	Acknowledge Acknowledge
	// Zero: a minute.
	PingInterval time.Duration
	// In the order of preference; one or two.
	Transports []Transport
	// Reports that an earlier process left.
	Kept []string
	// Whether Keep effects are wanted.
	Keeps bool
	// A number from 0 up to, but not including, 1.
	Random func() float64
}

// End says how a connection ended.
type End struct {
	// The WebSocket close code, or 0.
	Code int
	// The HTTP status and the problem code of a stream that did not begin, or 0.
	Status  int
	Problem string
	// Of the HTTP answer.
	RetryAfter    time.Duration
	HasRetryAfter bool
}

type subscription struct {
	recovers    bool
	hasListener bool
}

// Machine is the state of a client. It is not safe for concurrent use.
type Machine struct {
	config  Config
	now     time.Time
	effects []Effect
	tasks   []func()
	timers  timers
	tokens  tokens
	inflow  *inflow

	state     State
	transport Transport
	// Number of the newest connection. Reports about others are outdated.
	attempt  int
	isDialed bool
	isOpen   bool
	failures int
	// In a row.
	rejections int
	// Attempts in a row of the WebSocket that found no server.
	unopened int
	// X3: streams in between do not postpone it.
	webSocketAt time.Time
	// Zero outside of a session.
	readyAt      time.Time
	closing      *closeFrame
	waitsForHint bool
	isTooSlow    bool
	heardAt      time.Time
	flushedAt    time.Time
	willFlush    bool
	renewals     int
	// The token of a frame that was not answered with an error.
	sentToken string
	// The token of the session; requests may have got a newer one.
	token string
	// The topics in the request of a stream.
	dialed []string

	subscriptions map[string]*subscription
	topics        *set
	// Topics that a session had: without a position a gap cannot be excluded (R3).
	joined *set
	// Topics whose position the service was asked for.
	asked   *set
	toSub   *set
	toUnsub *set
	acks    *set
	// Messages that the application acknowledged itself, for the case that they arrive again (D2).
	acked        *set
	isListening  bool
	presence     string
	sentPresence string
	preference   string
	isHidden     bool

	http
}

type closeFrame struct {
	Reason    *string `json:"reason"`
	Reconnect *bool   `json:"reconnect"`
	AfterMs   *int64  `json:"after_ms"`
}

// New returns a machine in the state idle.
func New(config Config) *Machine {
	m := &Machine{
		config: config, state: State{Name: "idle"}, subscriptions: map[string]*subscription{}, topics: newSet(), joined: newSet(), asked: newSet(),
		toSub: newSet(), toUnsub: newSet(), acks: newSet(), acked: newSet(), presence: "active", sentPresence: "active", preference: "auto",
	}
	m.tokens = tokens{m: m, reason: "first"}
	m.inflow = newInflow(m)
	m.http.init(m)
	return m
}

// Effects returns what to carry out since the last call, in order.
func (m *Machine) Effects() []Effect {
	effects := m.effects
	m.effects = nil
	return effects
}

// Timeout is the time at which Advance is due.
func (m *Machine) Timeout() (time.Time, bool) {
	id, ok := m.timers.next()
	if !ok {
		return time.Time{}, false
	}
	return m.timers.all[id].at, true
}

// Advance handles every timer that is due.
func (m *Machine) Advance(now time.Time) {
	for {
		id, ok := m.timers.next()
		if !ok || m.timers.all[id].at.After(now) {
			return
		}
		fire := m.timers.all[id].fire
		m.timers.clear(id)
		m.input(now, fire)
	}
}

// State is the present state.
func (m *Machine) State() State { return m.state }

func (m *Machine) do(effect Effect) { m.effects = append(m.effects, effect) }

func (m *Machine) random() float64 { return m.config.Random() }

func (m *Machine) fail(err *Error) { m.do(Failed{err}) }

// later calls task at the end of the present input.
func (m *Machine) later(task func()) { m.tasks = append(m.tasks, task) }

func (m *Machine) input(now time.Time, handle func()) {
	m.now = now
	handle()
	for len(m.tasks) > 0 {
		task := m.tasks[0]
		m.tasks = m.tasks[1:]
		task()
	}
	m.tasks = nil
}

func (m *Machine) become(state State) {
	m.state = state
	m.do(StateChanged{state})
	if state.Name == "connected" {
		m.http.connected()
	}
}

// Connect connects, and stays connected until Close (S5).
func (m *Machine) Connect(now time.Time) {
	m.input(now, func() {
		m.http.open()
		if m.state.Name != "idle" && m.state.Name != "closed" {
			return
		}
		m.failures, m.rejections, m.unopened = 0, 0, 0
		m.open()
	})
}

// Close sends pending acknowledgements, and ends the connection (S4).
func (m *Machine) Close(now time.Time) {
	m.input(now, func() {
		if m.state.Name != "idle" && m.state.Name != "closed" {
			m.closing = &closeFrame{} // for flush: it opens no other stream
			m.flush()
			m.stop(reasonClosed)
		}
		m.http.close()
	})
}

// Subscribe subscribes, or changes the options of a subscription.
func (m *Machine) Subscribe(now time.Time, topic string, recovers, hasListener bool) {
	m.input(now, func() {
		m.subscriptions[topic] = &subscription{recovers, hasListener}
		if m.topics.contains(topic) {
			return
		}
		m.topics.add(topic)
		m.toUnsub.remove(topic)
		m.toSub.add(topic)
		m.soon()
	})
}

// Unsubscribe ends a subscription, and forgets its position (R6).
func (m *Machine) Unsubscribe(now time.Time, topic string) {
	m.input(now, func() {
		if !m.topics.contains(topic) {
			return
		}
		m.forget(topic)
		m.toUnsub.add(topic)
		m.soon()
	})
}

// Listen says whether the application handles messages, whatever their topic.
func (m *Machine) Listen(now time.Time, isListening bool) {
	m.input(now, func() { m.isListening = isListening })
}

func (m *Machine) hasListener(topic string) bool {
	known, ok := m.subscriptions[topic]
	return m.isListening || ok && known.hasListener
}

// Ack acknowledges messages that the application handled.
func (m *Machine) Ack(now time.Time, ids []string) {
	m.input(now, func() { m.ack(ids...) })
}

func (m *Machine) ack(ids ...string) {
	for _, id := range ids {
		m.acks.add(id)
		if m.config.Acknowledge == Manual {
			m.acked.add(id)
			if m.acked.len() > rememberedMax {
				m.acked.removeOldest()
			}
		}
		if m.acks.len() > acksMax { // O1
			m.acks.removeOldest()
		}
	}
	m.soon()
}

// Begins says that the application gets the message of Pass now. It reports false if the client has closed meanwhile: then the
// message is dropped (S4), and Settled is not called.
func (m *Machine) Begins() bool {
	if m.state.Name != "closed" {
		return true
	}
	m.inflow.isPassed = false
	m.inflow.drop()
	return false
}

// Settled is the result of Pass.
func (m *Machine) Settled(now time.Time, cause error) {
	m.input(now, func() {
		if !m.inflow.isPassed {
			return
		}
		m.inflow.isPassed = false
		if cause != nil { // A2
			m.fail(&Error{Code: "listener_failed", Message: "a handler failed: " + cause.Error(), Cause: cause})
		}
		m.inflow.settle(cause == nil)
		m.inflow.pump()
	})
}

// SetPresence states the presence: active, idle, or auto, which follows SetHidden (P1).
func (m *Machine) SetPresence(now time.Time, presence string) {
	m.input(now, func() {
		m.preference = presence
		m.updatePresence()
	})
}

// SetHidden says whether the user sees the application.
func (m *Machine) SetHidden(now time.Time, isHidden bool) {
	m.input(now, func() {
		if isHidden == m.isHidden {
			return
		}
		m.isHidden = isHidden
		if isHidden {
			m.timers.set(timerIdle, m.now.Add(idleAfter), m.updatePresence)
			return
		}
		m.updatePresence()
		m.wake()
	})
}

// NetworkReturned says that the network works again.
func (m *Machine) NetworkReturned(now time.Time) {
	m.input(now, func() {
		m.wake()
		m.http.wake()
	})
}

func (m *Machine) wake() {
	switch {
	case m.state.Name == "waiting" && !m.waitsForHint: // B5
		m.open()
	case m.state.Name == "connected": // H3
		m.ping()
	}
}

func (m *Machine) updatePresence() {
	m.timers.clear(timerIdle)
	m.presence = m.preference
	if m.preference == "auto" {
		m.presence = "active"
		if m.isHidden {
			m.presence = "idle"
		}
	}
	m.soon()
}

func (m *Machine) open() {
	m.timers.clear(timerRetry)
	m.attempt++
	attempt := m.attempt
	m.closing, m.readyAt, m.isOpen = nil, time.Time{}, false
	m.become(State{Name: "connecting"})
	m.tokens.take(func(token string, err *Error) {
		switch {
		case attempt != m.attempt:
		case err == nil:
			m.dial(token)
		case err.Code == reasonSignedOut: // T7
			m.stop(reasonSignedOut)
		default:
			m.fail(err)
			m.retry(reasonLost, m.backoff(), false)
		}
	})
}

// backoff counts a failure.
func (m *Machine) backoff() time.Duration {
	m.failures++
	return Backoff(m.failures-1, m.random())
}

func (m *Machine) isOneWay() bool { return m.transport == SSE }

func (m *Machine) dial(token string) {
	m.transport = m.config.Transports[0]
	if m.unopened >= 2 && len(m.config.Transports) > 1 { // X1
		m.transport = m.config.Transports[1]
	}
	attempt := m.attempt
	m.timers.set(timerConnect, m.now.Add(connectTimeout), func() { m.ended(attempt, End{}) }) // S3
	m.token = token
	m.isDialed = true
	dial := Dial{Attempt: attempt, Transport: m.transport, App: m.config.App}
	if m.isOneWay() {
		dial.Token, dial.Topics, dial.LastEventID = token, m.streamTopics(), m.inflow.lastID
		m.dialed = dial.Topics
	}
	m.do(dial)
}

// isCurrent reports whether a report about a connection is not outdated.
func (m *Machine) isCurrent(attempt int) bool { return m.isDialed && attempt == m.attempt }

// Opened says that the WebSocket is open, or that the stream has begun with status 200.
func (m *Machine) Opened(now time.Time, attempt int) {
	m.input(now, func() {
		if !m.isCurrent(attempt) || m.isOpen {
			return
		}
		m.isOpen = true
		if m.isOneWay() {
			m.unopened = 2
			m.ready("", 0) // X6
			return
		}
		m.unopened = 0
		m.send(map[string]any{"t": "connect", "token": m.token}) // F1
	})
}

// Heard says that bytes arrived.
func (m *Machine) Heard(now time.Time, attempt int) {
	m.input(now, func() { m.heard(attempt) })
}

func (m *Machine) heard(attempt int) {
	if m.isCurrent(attempt) {
		m.heardAt = m.now
		m.timers.clear(timerPong)
	}
}

// Ended says that the connection ended, or could not be opened.
func (m *Machine) Ended(now time.Time, attempt int, end End) {
	m.input(now, func() { m.ended(attempt, end) })
}

func (m *Machine) ended(attempt int, end End) {
	if !m.isCurrent(attempt) {
		return
	}
	if !m.isOpen {
		if m.isOneWay() { // X2
			m.unopened = 0
		} else {
			m.unopened++
		}
	}
	m.lost(end)
}

// Frame handles a message of the service.
func (m *Machine) Frame(now time.Time, attempt int, data []byte, isBinary bool) {
	m.input(now, func() {
		if !m.isCurrent(attempt) || !m.isOpen {
			return
		}
		m.heard(attempt)
		if isBinary {
			m.badFrame("a binary message", nil)
			return
		}
		m.frame(data)
	})
}

func (m *Machine) badFrame(message string, cause error) { // F4
	m.fail(&Error{Code: "bad_frame", Message: "not a frame of the service: " + message, Cause: cause})
}

func (m *Machine) frame(data []byte) {
	var head struct {
		T *string `json:"t"`
	}
	decode := func(value any) bool {
		err := json.Unmarshal(data, value)
		if err != nil {
			m.badFrame(err.Error(), err)
		}
		return err == nil
	}
	if !decode(&head) {
		return
	}
	if head.T == nil {
		m.badFrame("the field t is missing", nil)
		return
	}
	switch *head.T {
	case "msg":
		var message struct {
			Message
			ID *string `json:"id"`
		}
		if !decode(&message) {
			return
		}
		if message.ID == nil {
			m.badFrame("the field id is missing", nil)
			return
		}
		message.Message.ID = *message.ID
		m.message(&message.Message)
	case "ready":
		var ready struct {
			Device string  `json:"device"`
			PingS  float64 `json:"ping_s"`
		}
		if decode(&ready) {
			m.ready(ready.Device, ready.PingS)
		}
	case "recovered":
		var recovered struct {
			Topic    *string `json:"topic"`
			Complete bool    `json:"complete"`
			Epoch    string  `json:"epoch"`
			Offset   *int64  `json:"offset"`
		}
		if !decode(&recovered) {
			return
		}
		if recovered.Topic == nil {
			m.badFrame("the field topic is missing", nil)
			return
		}
		topic, session := *recovered.Topic, m.inflow.session
		isAsked := m.asked.contains(topic)
		m.asked.remove(topic)
		m.inflow.after(func() { // R4
			known, ok := m.subscriptions[topic]
			if !ok || !known.recovers {
				return
			}
			if recovered.Epoch != "" && recovered.Offset != nil && session == m.inflow.session { // R7
				m.inflow.reach(topic, position{recovered.Epoch, *recovered.Offset})
			}
			if !isAsked {
				m.do(Recovered{topic, &recovered.Complete})
			}
		})
	case "items":
		var items ItemsChanged
		if decode(&items) {
			m.http.update(Counts{items.Unread, items.Categories})
			m.do(items)
		}
	case "error":
		var refused struct {
			Code    string  `json:"code"`
			Message string  `json:"message"`
			Topic   *string `json:"topic"`
			Reason  string  `json:"reason"`
		}
		if decode(&refused) {
			m.refused(refused.Code, refused.Message, refused.Topic, refused.Reason)
		}
	case "close":
		var closing closeFrame
		if !decode(&closing) {
			return
		}
		if closing.Reason == nil {
			m.badFrame("the field reason is missing", nil)
			return
		}
		m.closing = &closing
		m.timers.set(timerConnect, m.now.Add(pongTimeout), func() { m.lost(End{}) }) // C5
		m.flush()                                                                    // A5
	}
}

func (m *Machine) message(message *Message) {
	if m.config.Acknowledge == Received && message.Ack {
		m.ack(message.ID)
	}
	if m.inflow.receive(message) {
		return
	}
	// L2: messages that were not handled arrive again after the application has caught up.
	m.isTooSlow = true
	m.detach()
	m.waitsForHint = true
	m.fail(&Error{Code: "queue_full", Message: "1000 messages wait for the application"})
	m.become(State{Name: "waiting", Reason: reasonQueueFull})
}

func (m *Machine) caughtUp() {
	if !m.isTooSlow || len(m.inflow.queue) > 0 {
		return
	}
	m.isTooSlow = false
	if m.state.Reason == reasonQueueFull && m.state.Name == "waiting" {
		m.open()
	}
}

func (m *Machine) inSession() bool { return !m.readyAt.IsZero() }

func (m *Machine) ready(device string, pingS float64) {
	if m.inSession() {
		return
	}
	m.timers.clear(timerConnect)
	m.readyAt, m.heardAt = m.now, m.now
	m.rejections = 0
	m.inflow.restart(m.isOneWay())
	m.sentPresence = "active" // P2
	m.flushedAt = time.Time{}
	m.toUnsub.clear()
	m.asked.clear()
	for _, topic := range m.topics.order { // R1
		m.toSub.add(topic)
		if !m.subscriptions[topic].recovers || !m.joined.contains(topic) {
			continue
		}
		_, isKnown := m.inflow.positions[topic]
		if m.isOneWay() {
			isKnown = m.inflow.lastID != ""
		}
		switch {
		case !isKnown: // R3
			m.do(Recovered{topic, new(false)})
		case m.isOneWay(): // X6
			m.do(Recovered{topic, nil})
		}
	}
	m.beat(pingS)
	m.scheduleRenewal()
	if !m.isOneWay() {
		m.webSocketAt = time.Time{}
	} else if len(m.config.Transports) > 1 { // X3
		if m.webSocketAt.IsZero() {
			m.webSocketAt = m.readyAt.Add(webSocketAgain)
		}
		m.timers.set(timerWebSocket, m.webSocketAt, func() {
			m.webSocketAt = time.Time{}
			m.unopened = 0
			m.reopen()
		})
	}
	m.become(State{Name: "connected", Transport: m.transport, Device: device})
	m.flush()
}

// reopen replaces a stream, but not one that the service ends: its successor has to wait (B3).
func (m *Machine) reopen() {
	if m.closing != nil {
		return
	}
	m.detach()
	m.open()
}

func (m *Machine) refused(code, message string, topic *string, reason string) {
	if topic != nil && strings.HasPrefix(code, "topic_") { // F8
		m.forget(*topic)
		m.do(Denied{*topic, code, reason})
		return
	}
	if token := m.sentToken; token != "" { // T5
		switch code {
		case "unauthorized", "expired":
			m.sentToken = ""
			m.tokens.reject(token)
			m.renewLater(false)
		case "rate_limited", "overloaded":
			m.sentToken = ""
			m.renewLater(true)
		}
	}
	if code == "" {
		code = "bad_frame"
	}
	err := &Error{Code: code, Message: message, Reason: reason}
	if topic != nil {
		err.Topic = *topic
	}
	m.fail(err) // F6
}

// forget ends a subscription here.
func (m *Machine) forget(topic string) {
	delete(m.subscriptions, topic)
	m.topics.remove(topic)
	m.joined.remove(topic)
	m.asked.remove(topic)
	m.toSub.remove(topic)
	delete(m.inflow.positions, topic)
}

// beat starts the heartbeat of a session (H1, H2, X8).
func (m *Machine) beat(pingS float64) {
	interval := streamSilence
	if !m.isOneWay() {
		interval = pingInterval
		if m.config.PingInterval > 0 {
			interval = m.config.PingInterval
		}
		if pingS <= 0 {
			pingS = 240
		}
		interval = min(interval, time.Duration(math.Min(pingS, 86_400)*float64(time.Second)))
		interval = max(interval, pingIntervalMin)
	}
	var wait func()
	wait = func() {
		at := m.heardAt.Add(interval)
		switch {
		case at.After(m.now):
			m.timers.set(timerBeat, at, wait)
		case m.isOneWay():
			m.lost(End{})
		default:
			m.ping()
			m.timers.set(timerBeat, m.now.Add(interval), wait)
		}
	}
	m.timers.set(timerBeat, m.now.Add(interval), wait)
}

func (m *Machine) ping() {
	if m.isOneWay() || m.timers.isSet(timerPong) {
		return
	}
	m.send(map[string]any{"t": "ping"})
	m.timers.set(timerPong, m.now.Add(pongTimeout), func() { m.lost(End{}) })
}

func (m *Machine) scheduleRenewal() {
	m.sentToken = ""
	at := m.tokens.renewAt
	if at.IsZero() {
		return
	}
	if at.Before(m.now) {
		at = m.now
	}
	m.timers.set(timerRenew, at, func() { m.renew(false) })
}

// renewLater is T5.
func (m *Machine) renewLater(withCurrent bool) {
	wait := Backoff(3+m.renewals, m.random())
	m.renewals++
	m.timers.set(timerRenew, m.now.Add(wait), func() { m.renew(withCurrent) })
}

// renew sends another token over the open connection (T4).
func (m *Machine) renew(withCurrent bool) {
	attempt := m.attempt
	ask := m.tokens.renew
	if withCurrent {
		ask = m.tokens.take
	}
	ask(func(token string, err *Error) {
		switch {
		case attempt != m.attempt || m.state.Name != "connected":
		case err != nil && err.Code == reasonSignedOut:
			m.stop(reasonSignedOut)
		case err != nil:
			m.fail(err)
			m.renewLater(false)
		case m.isOneWay(): // X8
			m.reopen()
		default:
			m.send(map[string]any{"t": "token", "token": token})
			m.scheduleRenewal()
			m.sentToken, m.token = token, token
		}
	})
}

// detach ends the connection: no event of it is handled any more.
func (m *Machine) detach() {
	attempt := m.attempt
	m.attempt++
	m.timers.clear(timerConnect, timerPong, timerBeat, timerRenew, timerWebSocket, timerFlush, timerRetry)
	m.willFlush = false
	m.http.presences.clear() // X7
	m.renewals = 0
	m.readyAt = time.Time{}
	if m.isDialed {
		m.isDialed = false
		m.do(Hangup{attempt})
	}
}

func (m *Machine) stop(reason string) {
	m.detach()
	m.timers.clear(timerIdle)
	m.isTooSlow = false
	m.inflow.drop() // S4
	m.http.stopped()
	m.become(State{Name: "closed", Reason: reason})
}

func (m *Machine) lost(end End) {
	closing, readyAt, token := m.closing, m.readyAt, m.token
	reason := reasonLost
	switch {
	case closing != nil:
		reason = *closing.Reason
	case reasonOf(end.Code) != "":
		reason = reasonOf(end.Code)
	case end.Status == 401 && end.Problem != "":
		reason = end.Problem
	case end.Status == 401:
		reason = "unauthorized"
	}
	m.detach()
	if !readyAt.IsZero() && m.now.Sub(readyAt) >= stableAfter { // B2
		m.failures = 0
	}
	if rejectsToken(reason) || end.Status == 401 { // C3
		m.tokens.reject(token)
		m.rejections++
		if m.rejections > rejectionsMax {
			m.fail(&Error{Code: "unauthorized", Message: "the service rejected 6 tokens in a row"})
			m.stop("unauthorized")
			return
		}
		failures := m.failures
		m.failures++
		wait := time.Duration(0)
		switch {
		case m.rejections > 1:
			wait = Backoff(failures, m.random())
		case reason == "revoked":
			wait = time.Duration(math.Round(1_000+1_000*m.random())) * time.Millisecond
		}
		m.retry(reason, wait, false)
		return
	}
	if reason == "replaced" || closing != nil && closing.Reconnect != nil && !*closing.Reconnect { // C2, C4
		m.stop(reason)
		return
	}
	hint, hasHint := end.RetryAfter, end.HasRetryAfter
	if closing != nil && closing.AfterMs != nil {
		hint, hasHint = time.Duration(min(max(*closing.AfterMs, 0), 86_400_000))*time.Millisecond, true
	}
	own := time.Duration(0)
	if !hasHint || m.failures > 0 { // B3
		own = m.backoff()
	} else {
		m.failures++
	}
	m.retry(reason, max(hint, own), hasHint && hint >= own)
}

func (m *Machine) retry(reason string, wait time.Duration, isHint bool) {
	m.waitsForHint = isHint
	m.become(State{Name: "waiting", Reason: reason, RetryIn: wait, HasRetry: true})
	m.timers.set(timerRetry, m.now.Add(wait), m.open)
}

// soon flushes at the end of this input, or 100 ms after the last flush (F7).
func (m *Machine) soon() {
	if !m.inSession() || m.willFlush {
		return
	}
	m.willFlush = true
	if at := m.flushedAt.Add(flushInterval); at.After(m.now) {
		m.timers.set(timerFlush, at, m.flush)
		return
	}
	attempt := m.attempt
	m.later(func() {
		if attempt == m.attempt && m.willFlush {
			m.flush()
		}
	})
}

// flush sends what waits, in the order of F3.
func (m *Machine) flush() {
	if !m.inSession() {
		return
	}
	m.timers.clear(timerFlush)
	m.willFlush = false
	if m.presence != m.sentPresence { // P3
		m.sentPresence = m.presence
		m.flushedAt = m.now
		if m.isOneWay() { // X7
			m.http.presences.replace(m.presence)
		} else {
			m.send(map[string]any{"t": "presence", "state": m.presence})
		}
	}
	unsub, sub, acks := m.toUnsub.take(), m.toSub.take(), m.acks.take()
	for _, topic := range sub {
		m.joined.add(topic)
		if m.isOneWay() && !canStream(topic) {
			m.fail(&Error{Code: "bad_topic", Message: "server-sent events cannot carry a topic with a comma; a WebSocket will", Topic: topic})
		}
	}
	if m.isOneWay() {
		if len(acks) > 0 {
			m.flushedAt = m.now
			m.http.acks.add(acks)
		}
		if !haveSame(m.dialed, m.streamTopics()) { // X4
			m.reopen()
		}
		return
	}
	for _, part := range parts(unsub) {
		m.flushedAt = m.now
		m.send(map[string]any{"t": "unsub", "topics": part})
	}
	for _, part := range parts(sub) {
		frame := map[string]any{"t": "sub", "topics": part}
		since := map[string]*position{} // R2
		for _, topic := range part {
			if !m.subscriptions[topic].recovers {
				continue
			}
			if known, ok := m.inflow.positions[topic]; ok {
				since[topic] = &known
			} else {
				since[topic] = nil
				m.asked.add(topic)
			}
		}
		if len(since) > 0 {
			frame["since"] = since
		}
		m.flushedAt = m.now
		m.send(frame)
	}
	for _, part := range parts(acks) {
		m.flushedAt = m.now
		m.send(map[string]any{"t": "ack", "ids": part})
	}
}

func (m *Machine) send(frame map[string]any) {
	m.do(Send{m.attempt, encode(frame)})
}

// canStream reports whether the request of a stream can name a topic: commas separate them (X4).
func canStream(topic string) bool { return !strings.Contains(topic, ",") }

func (m *Machine) streamTopics() []string {
	return slices.DeleteFunc(slices.Clone(m.topics.order), func(topic string) bool { return !canStream(topic) })
}

// haveSame compares sets.
func haveSame(one, other []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(one)), slices.Sorted(slices.Values(other)))
}

// codeUnits is the length of a text in UTF-16.
func codeUnits(text string) int {
	count := 0
	for _, one := range text {
		count++
		if one > 0xFFFF {
			count++
		}
	}
	return count
}

// parts splits a list for frames (L1).
func parts(texts []string) [][]string {
	var all [][]string
	start, bytes := 0, 0
	for n, text := range texts {
		// A code unit is at most three bytes, and a topic appears once more in since, with its position.
		cost := 6*codeUnits(text) + 64
		if n > start && (n-start >= frameEntriesMax || bytes+cost > frameBytesMax) {
			all = append(all, texts[start:n])
			start, bytes = n, 0
		}
		bytes += cost
	}
	if start < len(texts) {
		all = append(all, texts[start:])
	}
	return all
}
