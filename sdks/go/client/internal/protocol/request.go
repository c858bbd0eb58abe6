package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

const (
	reportsMax   = 1_000
	exposuresMax = 100
	// A request has at most as many ids of messages.
	batchMax = 1_000
)

// encode writes JSON as it was given: without escapes for HTML, which would make frames larger than parts assumes.
func encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic("protocol: " + err.Error()) // maps, slices, texts and raw JSON that was checked
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
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
	// 401 rejects the token once (T6).
	isRepeated bool
}

// http is the part of the machine that uses the HTTP API.
type http struct {
	m         *Machine
	n         int
	calls     map[int]*call
	opened    *outbox
	exposures *outbox
	acks      *outbox

	etag    string
	me      json.RawMessage
	exposed map[string]struct{}

	wantsUnread bool
	counts      *Counts
	// Counts reports, so that older answers are recognized (U2).
	version int
}

func (h *http) init(m *Machine) {
	h.m = m
	h.calls = map[int]*call{}
	h.exposed = map[string]struct{}{}
	h.opened = newOutbox(m, timerOpened, "/v1/me/opened", "ids", batchMax, reportsMax)
	h.exposures = newOutbox(m, timerExposures, "/v1/me/exposures", "experiments", exposuresMax, exposuresMax)
	h.acks = newOutbox(m, timerAcks, "/v1/me/inbox/ack", "ids", batchMax, acksMax)
	for _, id := range m.config.Kept {
		h.opened.waiting.add(id)
	}
	h.opened.keeps = m.config.Keeps
}

func (h *http) outboxes() [3]*outbox { return [3]*outbox{h.opened, h.exposures, h.acks} }

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
	m.calls[m.n] = &call{Call: c, done: done}
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
			call.token = token
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
		delete(m.calls, n)
		switch {
		case response.Err != nil:
			call.done(Answer{}, response.Err)
		case response.Status >= 200 && response.Status < 300 || response.Status == 304:
			call.done(Answer{response.Status, response.ETag, response.Body}, nil)
		default:
			call.done(Answer{}, problem(response))
		}
	})
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

func (h *http) reportPresence(state string) {
	h.m.request(Call{Method: "PUT", Path: "/v1/me/presence", Body: encode(map[string]string{"state": state})}, func(_ Answer, err *Error) {
		if err != nil {
			h.m.fail(err)
		}
	})
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
	return m.request(Call{Method: "GET", Path: "/v1/me", IfNoneMatch: m.etag}, func(answer Answer, err *Error) {
		switch {
		case err != nil:
			done(nil, err)
			return
		case answer.Status != 304:
			if !json.Valid(answer.Body) {
				done(nil, notJSON(fmt.Errorf("%.40q", answer.Body)))
				return
			}
			m.me, m.etag = answer.Body, answer.ETag
		}
		done(m.me, nil)
	})
}

// Variant is the variant of an experiment; nil if the device does not participate. expose reports it once (U4).
func (m *Machine) Variant(now time.Time, experiment string, expose bool, done func(json.RawMessage, *Error)) (n int) {
	found := func(me json.RawMessage, err *Error) {
		if err != nil {
			done(nil, err)
			return
		}
		var body struct {
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
		key := experiment + " " + variant.Variant
		if _, isExposed := m.exposed[key]; expose && !isExposed {
			m.exposed[key] = struct{}{}
			m.exposures.add([]string{experiment})
		}
		done(raw, nil)
	}
	m.input(now, func() {
		if m.me != nil {
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
	h.readCounts(func(_ Counts, err *Error) {
		if err != nil {
			h.m.fail(err)
		}
	})
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
