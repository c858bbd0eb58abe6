package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	reportsMax   = 1_000
	exposuresMax = 100
	// A request has at most as many ids of messages.
	batchMax = 1_000
	// How old a variant may be (U5).
	variantMax = time.Minute
	// How often a read is repeated, and how long after the call (U6).
	repeatsMax  = 2
	repeatUntil = 30 * time.Second
)

// encode writes JSON with as few escapes as possible: others would make frames larger than parts assumes.
func encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic("protocol: " + err.Error()) // maps, slices, texts and raw JSON that was checked
	}
	return unescape(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}

// unescape replaces the escapes of encoding/json that JSON does not need: of line separators, and of what was not UTF-8.
func unescape(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\u`)) {
		return text
	}
	short := make([]byte, 0, len(text))
	for len(text) > 0 {
		size := 1
		if text[0] == '\\' {
			size = 2
			switch {
			case bytes.HasPrefix(text, []byte(`\u2028`)), bytes.HasPrefix(text, []byte(`\u2029`)), bytes.HasPrefix(text, []byte(`\ufffd`)):
				code, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
				short, text = utf8.AppendRune(short, rune(code)), text[6:]
				continue
			}
		}
		short, text = append(short, text[:size]...), text[size:]
	}
	return short
}

// Call is a request of the device's API.
type Call struct {
	Method      string
	Path        string
	Query       map[string]string
	IfNoneMatch string
	// JSON, or nil.
	Body []byte
}

// Answer is the answer with a status from 200 to 299, or 304.
type Answer struct {
	Status int
	ETag   string
	Body   []byte
	// Of the request.
	token  string
	sentAt time.Time
}

// Response is what an HTTP request returned.
type Response struct {
	// Set if there was no answer: network or timeout.
	Err *Error

	Status        int
	ETag          string
	RequestID     string
	RetryAfter    time.Duration
	HasRetryAfter bool
	Body          []byte
}

type call struct {
	Call
	done  func(Answer, *Error)
	token string
	// Of the call, and of its newest request.
	begunAt, sentAt time.Time
	// 401 rejects the token once (T6).
	isRepeated bool
	// U6: repeatAt is zero unless the call waits.
	repeats  int
	repeatAt time.Time
	// Of the session: it ends when the client is closed (S4).
	isRefresh bool
}

// exposure identifies what is reported once (U4).
type exposure struct{ device, user, experiment, variant string }

// http is the part of the machine that uses the HTTP API.
type http struct {
	m         *Machine
	n         int
	calls     map[int]*call
	opened    *outbox
	exposures *outbox
	acks      *outbox
	// Of a stream (X7).
	presences *outbox

	etag string
	me   json.RawMessage
	// When the request for me was sent, and with which token.
	meAt    time.Time
	meToken string
	exposed map[exposure]struct{}

	wantsUnread bool
	counts      *Counts
	// Counts reports, so that older answers are recognized (U2).
	version int
}

func (h *http) init(m *Machine) {
	h.m = m
	h.calls = map[int]*call{}
	h.exposed = map[exposure]struct{}{}
	h.opened = newOutbox(m, timerOpened, "/v1/me/opened", "ids", batchMax, reportsMax)
	h.exposures = newOutbox(m, timerExposures, "/v1/me/exposures", "experiments", exposuresMax, exposuresMax)
	h.acks = newOutbox(m, timerAcks, "/v1/me/inbox/ack", "ids", batchMax, acksMax)
	h.presences = newOutbox(m, timerPresence, "/v1/me/presence", "state", 1, 1)
	h.presences.isState = true
	for _, id := range m.config.Kept {
		h.opened.waiting.add(id)
	}
	h.opened.keeps = m.config.Keeps
}

func (h *http) outboxes() [4]*outbox { return [4]*outbox{h.opened, h.exposures, h.acks, h.presences} }

func (h *http) open() {
	for _, outbox := range h.outboxes() {
		outbox.isClosed = false
		outbox.sendLater()
	}
}

func (h *http) close() {
	for _, outbox := range h.outboxes() {
		outbox.close()
	}
}

func (h *http) wake() {
	for _, outbox := range h.outboxes() {
		outbox.wake()
	}
}

func (h *http) connected() {
	h.wake()
	if h.wantsUnread { // U1
		h.refresh()
	}
}

// Request begins a call and returns its number. done must not block.
func (m *Machine) Request(now time.Time, c Call, done func(Answer, *Error)) (n int) {
	m.input(now, func() { n = m.request(c, done) })
	return n
}

func (m *Machine) request(c Call, done func(Answer, *Error)) int {
	m.n++
	m.calls[m.n] = &call{Call: c, done: done, begunAt: m.now}
	m.sendCall(m.n)
	return m.n
}

func (m *Machine) sendCall(n int) {
	m.tokens.take(func(token string, err *Error) {
		call, ok := m.calls[n]
		switch {
		case !ok: // cancelled
		case err != nil:
			delete(m.calls, n)
			call.done(Answer{}, err)
		default:
			call.token, call.sentAt = token, m.now
			m.do(Request{N: n, Method: call.Method, Path: call.Path, Query: call.Query, IfNoneMatch: call.IfNoneMatch, Token: token, Body: call.Body})
		}
	})
}

// Cancel forgets a call: its done is not called.
func (m *Machine) Cancel(n int) { delete(m.calls, n) }

// IsPending reports whether the done of a call has not been called.
func (m *Machine) IsPending(n int) bool {
	_, ok := m.calls[n]
	return ok
}

// Answered is the answer to Request.
func (m *Machine) Answered(now time.Time, n int, response Response) {
	m.input(now, func() {
		call, ok := m.calls[n]
		if !ok {
			return
		}
		if response.Err == nil && response.Status == 401 && !call.isRepeated { // T6
			call.isRepeated = true
			m.tokens.reject(call.token)
			m.sendCall(n)
			return
		}
		if response.Err == nil && m.willRepeat(call, response) {
			return
		}
		delete(m.calls, n)
		switch {
		case response.Err != nil:
			call.done(Answer{}, response.Err)
		case response.Status >= 200 && response.Status < 300 || response.Status == 304:
			call.done(Answer{response.Status, response.ETag, response.Body, call.token, call.sentAt}, nil)
		default:
			call.done(Answer{}, problem(response))
		}
	})
}

// willRepeat is U6.
func (h *http) willRepeat(call *call, response Response) bool {
	at := h.m.now.Add(response.RetryAfter)
	switch {
	case call.Method != "GET", response.Status != 429 && response.Status != 503, !response.HasRetryAfter:
		return false
	case call.repeats >= repeatsMax, at.After(call.begunAt.Add(repeatUntil)):
		return false
	}
	call.repeats++
	call.repeatAt = at
	h.awaitRepeat()
	return true
}

func (h *http) awaitRepeat() {
	var first time.Time
	for _, call := range h.calls {
		if at := call.repeatAt; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		h.m.timers.clear(timerRepeat)
		return
	}
	h.m.timers.set(timerRepeat, first, h.repeat)
}

func (h *http) repeat() {
	for _, n := range slices.Sorted(maps.Keys(h.calls)) {
		if call, ok := h.calls[n]; ok && !call.repeatAt.IsZero() && !call.repeatAt.After(h.m.now) {
			call.repeatAt = time.Time{}
			h.m.sendCall(n)
		}
	}
	h.awaitRepeat()
}

func problem(response Response) *Error {
	var body struct {
		Code   string `json:"code"`
		Title  string `json:"title"`
		Detail string `json:"detail"`
		Field  string `json:"field"`
	}
	_ = json.Unmarshal(response.Body, &body) // a proxy's page has no code
	err := &Error{
		Code: body.Code, Message: body.Detail, Status: response.Status, Field: body.Field, RequestID: response.RequestID,
		RetryAfter: response.RetryAfter, HasRetryAfter: response.HasRetryAfter,
	}
	if err.Code == "" {
		err.Code = "http_" + strconv.Itoa(response.Status)
	}
	if err.Message == "" {
		err.Message = body.Title
	}
	if err.Message == "" {
		err.Message = fmt.Sprintf("status %d", response.Status)
	}
	return err
}

func notJSON(cause error) *Error {
	return &Error{Code: "network", Message: "the answer is not JSON: " + cause.Error(), Cause: cause}
}

// ReportOpened reports that the user opened messages (O2).
func (m *Machine) ReportOpened(now time.Time, ids []string) {
	m.input(now, func() { m.opened.add(ids) })
}

// Kept returns the reports that wait.
func (m *Machine) Kept() []string { return slices.Clone(m.opened.waiting.order) }

// Me reads the state of the device (U3).
func (m *Machine) Me(now time.Time, done func(json.RawMessage, *Error)) (n int) {
	m.input(now, func() { n = m.readMe(done) })
	return n
}

func (m *Machine) readMe(done func(json.RawMessage, *Error)) int {
	known := m.etag
	return m.request(Call{Method: "GET", Path: "/v1/me", IfNoneMatch: known}, func(answer Answer, err *Error) {
		if err != nil {
			done(nil, err)
			return
		}
		me, etag := m.me, m.etag
		switch {
		case answer.Status != 304:
			if !json.Valid(answer.Body) {
				done(nil, notJSON(fmt.Errorf("%.40q", answer.Body)))
				return
			}
			me, etag = answer.Body, answer.ETag
		case etag != known: // the answer to another request has replaced the state that is meant
			done(me, nil)
			return
		}
		if !answer.sentAt.Before(m.meAt) {
			m.me, m.etag, m.meAt, m.meToken = me, etag, answer.sentAt, answer.token
		}
		done(me, nil)
	})
}

// Variant is the variant of an experiment (U5); nil if the device does not participate. expose reports it once (U4).
func (m *Machine) Variant(now time.Time, experiment string, expose bool, done func(json.RawMessage, *Error)) (n int) {
	found := func(me json.RawMessage, err *Error) {
		if err != nil {
			done(nil, err)
			return
		}
		var body struct {
			Device      string                     `json:"device"`
			User        string                     `json:"user"`
			Experiments map[string]json.RawMessage `json:"experiments"`
		}
		if cause := json.Unmarshal(me, &body); cause != nil {
			done(nil, notJSON(cause))
			return
		}
		var variant struct {
			Variant string `json:"variant"`
		}
		raw, ok := body.Experiments[experiment]
		if !ok || json.Unmarshal(raw, &variant) != nil {
			done(nil, nil)
			return
		}
		key := exposure{body.Device, body.User, experiment, variant.Variant}
		if _, isExposed := m.exposed[key]; expose && !isExposed {
			m.exposed[key] = struct{}{}
			m.exposures.add([]string{experiment})
		}
		done(raw, nil)
	}
	m.input(now, func() {
		if m.me != nil && m.meToken == m.tokens.current && m.now.Sub(m.meAt) < variantMax {
			found(m.me, nil)
			return
		}
		n = m.readMe(found)
	})
	return n
}

// WantUnread says whether the application observes unread items (U1).
func (m *Machine) WantUnread(now time.Time, wants bool) {
	m.input(now, func() {
		m.wantsUnread = wants
		if wants && m.state.Name == "connected" {
			m.refresh()
		}
	})
}

func (h *http) refresh() {
	n := h.readCounts(func(_ Counts, err *Error) {
		if err != nil {
			h.m.fail(err)
		}
	})
	h.calls[n].isRefresh = true
}

// stopped ends the requests of the session.
func (h *http) stopped() {
	maps.DeleteFunc(h.calls, func(_ int, call *call) bool { return call.isRefresh })
}

// ReadCounts reads the numbers of unread items.
func (m *Machine) ReadCounts(now time.Time, done func(Counts, *Error)) (n int) {
	m.input(now, func() { n = m.readCounts(done) })
	return n
}

func (h *http) readCounts(done func(Counts, *Error)) int {
	version := h.version
	return h.m.request(Call{Method: "GET", Path: "/v1/me/items/counts"}, func(answer Answer, err *Error) {
		var counts Counts
		if err == nil {
			if cause := json.Unmarshal(answer.Body, &counts); cause != nil {
				err = notJSON(cause)
			} else if version == h.version { // U2
				h.update(counts)
			}
		}
		done(counts, err)
	})
}

// Changed is the answer to a change of items.
type Changed struct {
	Counts
	Changed int64 `json:"changed"`
}

// ChangeItems changes the state of at most 100 items, or of all up to one.
func (m *Machine) ChangeItems(now time.Time, change map[string]any, done func(Changed, *Error)) (n int) {
	m.input(now, func() {
		version := m.version
		n = m.request(Call{Method: "PATCH", Path: "/v1/me/items", Body: encode(change)}, func(answer Answer, err *Error) {
			var changed Changed
			if err == nil {
				if cause := json.Unmarshal(answer.Body, &changed); cause != nil {
					err = notJSON(cause)
				} else if version == m.version { // U2
					m.update(changed.Counts)
				}
			}
			done(changed, err)
		})
	})
	return n
}

// update has newer counts.
func (h *http) update(counts Counts) {
	h.version++
	if counts.Categories == nil {
		counts.Categories = map[string]int64{}
	}
	if h.counts != nil && h.counts.Unread == counts.Unread && maps.Equal(h.counts.Categories, counts.Categories) {
		return
	}
	h.counts = &counts
	h.m.do(UnreadChanged{counts})
}

// Unread has the last known counts.
func (m *Machine) Unread() (Counts, bool) {
	if m.counts == nil {
		return Counts{}, false
	}
	return *m.counts, true
}
