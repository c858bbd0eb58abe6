package protocol

import (
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/vectors"
	"github.com/noroshi/noroshi/sdks/go/internal/retryafter"
)

// TestVectors plays every vector to a Machine, without any input or output.
func TestVectors(t *testing.T) {
	all, err := vectors.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, vector := range all {
		t.Run(vector.File+": "+vector.Name, func(t *testing.T) { newPlayer(t, vector).play() })
	}
}

type link struct {
	dial   Dial
	isOpen bool
	isOver bool
}

// player is the application and the service of a vector.
type player struct {
	t           *testing.T
	vector      vectors.Vector
	machine     *Machine
	now         time.Time
	random      []float64
	tokens      []vectors.Token
	wire, local []map[string]any
	dialled     []*link
	links       map[int]*link
	current     *link
	requests    []int
	passed      string
	hasUnread   bool
}

func newPlayer(t *testing.T, vector vectors.Vector) *player {
	p := &player{t: t, vector: vector, now: vectors.Start, random: vector.Random, tokens: vector.Tokens, links: map[int]*link{}}
	config := Config{
		App: vector.Options.App, PingInterval: time.Duration(vector.Options.PingInterval) * time.Second,
		Acknowledge: map[string]Acknowledge{"": Handled, "handled": Handled, "received": Received, "manual": Manual}[vector.Options.Acknowledge],
		Random: func() float64 {
			if len(p.random) == 0 {
				p.t.Error("the vector has no more random numbers")
				return 0
			}
			next := p.random[0]
			p.random = p.random[1:]
			return next
		},
	}
	for _, name := range vector.Options.Names() {
		config.Transports = append(config.Transports, Transport(name))
	}
	p.machine = New(config)
	p.machine.Listen(p.now, vector.Options.Listener != "none")
	return p
}

func (p *player) play() {
	for n, step := range append(p.vector.Steps, map[string]vectors.Step{"expect": vectors.Step(`{}`)}) {
		for name, argument := range step {
			p.step(name, argument)
			p.carryOut()
			if p.t.Failed() {
				p.t.Fatalf("in step %d: %s %.300s", n, name, argument)
			}
		}
	}
	if len(p.random) > 0 || len(p.tokens) > 0 {
		p.t.Errorf("not used: random numbers %v, tokens %v", p.random, p.tokens)
	}
}

func decode[T any](p *player, text json.RawMessage) T {
	var value T
	if err := json.Unmarshal(text, &value); err != nil {
		p.t.Fatal(err)
	}
	return value
}

type answer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
}

func (p *player) step(name string, argument json.RawMessage) {
	switch name {
	case "call":
		for call, value := range decode[map[string]json.RawMessage](p, argument) {
			p.call(call, value)
		}
	case "advance":
		end := p.now.Add(time.Duration(decode[int64](p, argument)) * time.Millisecond)
		for {
			at, ok := p.machine.Timeout()
			if !ok || at.After(end) {
				break
			}
			if at.After(p.now) {
				p.now = at
			}
			p.machine.Advance(p.now)
			p.carryOut()
		}
		p.now = end
	case "accept":
		one := p.dialled[0]
		p.dialled = p.dialled[1:]
		one.isOpen = true
		p.current = one
		p.machine.Opened(p.now, one.dial.Attempt)
	case "refuse":
		refusal := decode[answer](p, argument)
		one := p.dialled[0]
		p.dialled = p.dialled[1:]
		one.isOver = true
		end := End{}
		if one.dial.Transport == SSE {
			end.Status = refusal.Status
			var body struct {
				Code string `json:"code"`
			}
			_ = json.Unmarshal(refusal.Body, &body)
			end.Problem = body.Code
		}
		end.RetryAfter, end.HasRetryAfter = retryafter.Parse(refusal.Headers["retry-after"], p.now)
		p.machine.Ended(p.now, one.dial.Attempt, end)
	case "send":
		p.send(argument)
	case "send_many":
		many := decode[struct {
			Count int             `json:"count"`
			Frame json.RawMessage `json:"frame"`
		}](p, argument)
		for n := 1; n <= many.Count; n++ {
			p.send(json.RawMessage(strings.ReplaceAll(string(many.Frame), "#", strconv.Itoa(n))))
			p.carryOut()
		}
	case "end":
		end := decode[struct{ Code int }](p, argument)
		p.current.isOver = true
		p.machine.Ended(p.now, p.current.dial.Attempt, End{Code: end.Code})
	case "reply":
		reply := decode[answer](p, argument)
		n := p.requests[0]
		p.requests = p.requests[1:]
		response := Response{Status: reply.Status, ETag: reply.Headers["etag"], Body: reply.Body}
		if reply.Status == 0 {
			response = Response{Err: &Error{Code: "network", Message: "the network broke"}}
		}
		response.RetryAfter, response.HasRetryAfter = retryafter.Parse(reply.Headers["retry-after"], p.now)
		p.machine.Answered(p.now, n, response)
	case "expect":
		expected := decode[vectors.Expectation](p, argument)
		if diff := vectors.Diff(vectors.ByKind(expected.Wire), vectors.ByKind(p.wire)); diff != "" {
			p.t.Errorf("wire: %s", diff)
		}
		if diff := vectors.Diff(expected.Local, p.local); diff != "" {
			p.t.Errorf("local: %s", diff)
		}
		p.wire, p.local = nil, nil
	default:
		p.t.Fatalf("not a step: %s", name)
	}
}

func (p *player) send(frame json.RawMessage) {
	special := decode[struct {
		Raw    *string `json:"raw"`
		Binary bool    `json:"binary"`
	}](p, frame)
	switch {
	case p.current.isOver:
	case special.Raw != nil:
		p.machine.Frame(p.now, p.current.dial.Attempt, []byte(*special.Raw), false)
	case special.Binary:
		p.machine.Frame(p.now, p.current.dial.Attempt, []byte{0}, true)
	default:
		p.machine.Frame(p.now, p.current.dial.Attempt, frame, false)
	}
}

func (p *player) call(name string, argument json.RawMessage) {
	switch name {
	case "connect":
		p.machine.Connect(p.now)
	case "close":
		p.machine.Close(p.now)
	case "subscribe":
		options := decode[struct {
			Topic   string `json:"topic"`
			Recover bool   `json:"recover"`
		}](p, argument)
		p.machine.Subscribe(p.now, options.Topic, options.Recover, false)
	case "unsubscribe":
		p.machine.Unsubscribe(p.now, decode[string](p, argument))
	case "ack":
		p.machine.Ack(p.now, decode[[]string](p, argument))
	case "opened":
		p.machine.ReportOpened(p.now, decode[[]string](p, argument))
	case "presence":
		p.machine.SetPresence(p.now, decode[string](p, argument))
	case "page":
		page := decode[struct {
			Hidden *bool `json:"hidden"`
			Online bool  `json:"online"`
		}](p, argument)
		if page.Hidden != nil {
			p.machine.SetHidden(p.now, *page.Hidden)
		}
		if page.Online {
			p.machine.NetworkReturned(p.now)
		}
	case "finish", "fail":
		if id := decode[string](p, argument); id != p.passed {
			p.t.Errorf("the application has %q, not %q", p.passed, id)
		}
		p.passed = ""
		var err error
		if name == "fail" {
			err = errors.New("the listener failed")
		}
		p.machine.Settled(p.now, err)
	case "listen_unread":
		p.hasUnread = true
		p.machine.WantUnread(p.now, true)
	case "me":
		p.machine.Me(p.now, func(me json.RawMessage, err *Error) {
			if p.failed(err) {
				return
			}
			p.saw(map[string]any{"me": decode[struct{ Device string }](p, me).Device})
		})
	case "variant":
		p.machine.Variant(p.now, decode[string](p, argument), true, func(variant json.RawMessage, err *Error) {
			if p.failed(err) {
				return
			}
			var name any
			if variant != nil {
				name = decode[struct{ Variant string }](p, variant).Variant
			}
			p.saw(map[string]any{"variant": name})
		})
	case "mark_read":
		p.machine.ChangeItems(p.now, map[string]any{"action": "read", "ids": decode[[]string](p, argument)}, func(changed Changed, err *Error) {
			if p.failed(err) {
				return
			}
			p.carryOut()
			p.saw(map[string]any{"changed": changed.Changed})
		})
	default:
		p.t.Fatalf("not a call: %s", name)
	}
}

func (p *player) failed(err *Error) bool {
	if err != nil {
		p.saw(map[string]any{"failed": err.Code})
	}
	return err != nil
}

func (p *player) saw(event map[string]any) { p.local = append(p.local, event) }

func (p *player) carryOut() {
	for {
		effects := p.machine.Effects()
		if len(effects) == 0 {
			return
		}
		for _, effect := range effects {
			p.effect(effect)
		}
	}
}

func (p *player) effect(effect Effect) {
	switch e := effect.(type) {
	case Dial:
		one := &link{dial: e}
		p.links[e.Attempt] = one
		p.dialled = append(p.dialled, one)
		seen := map[string]any{"open": string(e.Transport)}
		for name, value := range map[string]string{
			"app": e.App, "token": vectors.TokenName(e.Token), "topics": strings.Join(e.Topics, ","), "last_event_id": e.LastEventID,
		} {
			if value != "" {
				seen[name] = value
			}
		}
		p.wire = append(p.wire, seen)
	case Send:
		if one := p.links[e.Attempt]; !one.isOpen || one.isOver {
			p.t.Errorf("sent %s on a connection that is not open", e.Frame)
		}
		frame := decode[map[string]any](p, e.Frame)
		if token, ok := frame["token"].(string); ok {
			frame["token"] = vectors.TokenName(token)
		}
		p.wire = append(p.wire, map[string]any{"frame": frame})
	case Hangup:
		one := p.links[e.Attempt]
		if one.isOver {
			return
		}
		one.isOver = true
		p.dialled = slices.DeleteFunc(p.dialled, func(other *link) bool { return other == one })
		code := any(nil)
		if one.isOpen && one.dial.Transport == WebSocket {
			code = 1000
		}
		p.wire = append(p.wire, map[string]any{"close": code})
	case AskToken:
		p.saw(map[string]any{"token": e.Reason})
		if len(p.tokens) == 0 {
			p.t.Error("the vector has no more tokens")
			return
		}
		next := p.tokens[0]
		p.tokens = p.tokens[1:]
		switch {
		case next.Fail:
			p.machine.TokenArrived(p.now, e.N, "", false, errors.New("the backend is away"))
		case next.None:
			p.machine.TokenArrived(p.now, e.N, "", true, nil)
		case !next.Pending:
			p.machine.TokenArrived(p.now, e.N, next.Text(p.now), false, nil)
		}
	case CancelToken, Keep:
	case Request:
		p.requests = append(p.requests, e.N)
		seen := map[string]any{"method": e.Method, "path": e.Path, "token": vectors.TokenName(e.Token)}
		query := url.Values{}
		for name, value := range e.Query {
			query.Set(name, value)
		}
		if len(query) > 0 {
			seen["query"] = maps.Clone(e.Query)
		}
		if e.IfNoneMatch != "" {
			seen["if_none_match"] = e.IfNoneMatch
		}
		if e.Body != nil {
			seen["body"] = decode[any](p, e.Body)
		}
		p.wire = append(p.wire, map[string]any{"request": seen})
	case Pass:
		p.saw(map[string]any{"message": e.Message.ID})
		switch p.vector.Options.Listener {
		case "deferred":
			p.passed = e.Message.ID
		case "throws":
			p.machine.Settled(p.now, errors.New("the listener failed"))
		default:
			p.machine.Settled(p.now, nil)
		}
	case StateChanged:
		seen := map[string]any{"state": e.State.Name}
		if e.State.Reason != "" {
			seen["reason"] = e.State.Reason
		}
		if e.State.HasRetry {
			seen["in_ms"] = e.State.RetryIn.Milliseconds()
		}
		if e.State.Transport != "" {
			seen["transport"] = e.State.Transport
		}
		p.saw(seen)
	case Recovered:
		p.saw(map[string]any{"recovered": e.Topic, "complete": e.Complete})
	case Denied:
		p.saw(map[string]any{"denied": e.Topic, "code": e.Code, "reason": e.Reason})
	case ItemsChanged:
		p.saw(map[string]any{"items": e.Event, "ids": e.IDs})
	case UnreadChanged:
		if p.hasUnread {
			p.saw(map[string]any{"unread": e.Counts.Unread, "categories": e.Counts.Categories})
		}
	case Failed:
		p.saw(map[string]any{"error": e.Err.Code})
	default:
		p.t.Fatalf("not an effect: %T", effect)
	}
}
