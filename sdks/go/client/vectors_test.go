package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
	"github.com/noroshi/noroshi/sdks/go/client/internal/vectors"
)

// A vector waits for sockets most of the time; each has a server for itself.
const servers = 8

// TestVectors plays every vector to a Client, over real sockets.
func TestVectors(t *testing.T) {
	all, err := vectors.Load()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := vectors.Folder()
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan vectors.Vector)
	var players sync.WaitGroup
	for range servers {
		server := scriptedServer(t, filepath.Join(filepath.Dir(folder), "scripted-server", "server.mjs"))
		players.Go(func() {
			for vector := range waiting {
				t.Run(vector.File+": "+vector.Name, func(t *testing.T) { play(t, server, vector) })
			}
		})
	}
	// The longest first.
	slices.SortStableFunc(all, func(a, b vectors.Vector) int { return len(b.Steps) - len(a.Steps) })
	for _, vector := range all {
		waiting <- vector
	}
	close(waiting)
	players.Wait()
}

// scriptedServer returns the address of sdks/scripted-server.
func scriptedServer(t *testing.T, path string) string {
	t.Helper()
	command := exec.Command("node", path)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems bytes.Buffer
	command.Stderr = &problems
	if err := command.Start(); err != nil {
		t.Fatalf("the scripted server needs Node.js: %v", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the scripted server did not start; run npm ci in sdks/scripted-server: %v\n%s", err, problems.String())
	}
	return strings.TrimSpace(line)
}

// testClock moves only when a vector says so.
type testClock struct {
	mu     sync.Mutex
	t      *testing.T
	now    time.Time
	random []float64
	timer  *testTimer
}

type testTimer struct {
	clock *testClock
	at    time.Time
	f     func()
}

func (t *testTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	if t.clock.timer == t {
		t.clock.timer = nil
	}
	return true
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) AfterFunc(at time.Time, f func()) stopper {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = &testTimer{c, at, f}
	return c.timer
}

func (c *testClock) Random() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.random) == 0 {
		c.t.Error("the vector has no more random numbers")
		return 0
	}
	next := c.random[0]
	c.random = c.random[1:]
	return next
}

// next moves to the timer if it is due until end, and returns what to call.
func (c *testClock) next(end time.Time) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil || c.timer.at.After(end) {
		c.now = end
		return nil
	}
	timer := c.timer
	c.timer = nil
	if timer.at.After(c.now) {
		c.now = timer.at
	}
	return timer.f
}

// writeWatch counts requests whose head has been written: a connection that is cancelled before leaves no trace at the server.
type writeWatch struct {
	http.RoundTripper
	written atomic.Int64
}

func (w *writeWatch) RoundTrip(request *http.Request) (*http.Response, error) {
	count := sync.OnceFunc(func() { w.written.Add(1) })
	defer count()
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { count() }}
	return w.RoundTripper.RoundTrip(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
}

type remotePlayer struct {
	t      *testing.T
	vector vectors.Vector
	server string
	client *Client
	clock  *testClock
	watch  *writeWatch
	ctx    context.Context

	mu sync.Mutex
	// What the machine did, in order, and the results of calls.
	local []map[string]any
	// What the handlers got, in an order of their own for each kind.
	handled  map[string][]map[string]any
	tokens   []vectors.Token
	deferred map[string]chan error
	started  int64
	// Calls of the application that have not returned.
	calls int
	// How often a step may find that the client has not come so far.
	patience  int
	running   int
	hasUnread bool
}

func play(t *testing.T, server string, vector vectors.Vector) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	p := &remotePlayer{
		t: t, vector: vector, server: server, ctx: ctx, clock: &testClock{t: t, now: vectors.Start, random: vector.Random},
		watch: &writeWatch{RoundTripper: transport}, handled: map[string][]map[string]any{}, tokens: vector.Tokens, deferred: map[string]chan error{},
		patience: 20,
	}
	p.control("reset", nil)
	options := Options{
		URL: server, App: vector.Options.App, PingInterval: time.Duration(vector.Options.PingInterval) * time.Second, Token: p.token,
		Acknowledge: map[string]AckMode{"": AckHandled, "handled": AckHandled, "received": AckReceived, "manual": AckManual}[vector.Options.Acknowledge],
		HTTPClient:  &http.Client{Transport: p.watch},
	}
	for _, name := range vector.Options.Names() {
		options.Transports = append(options.Transports, Transport(name))
	}
	client, err := newClient(options, p.clock)
	if err != nil {
		t.Fatal(err)
	}
	p.client = client
	client.observe = p.observe
	if vector.Options.Listener != "none" {
		client.OnMessage(p.message)
	}
	client.OnState(func(s State) {
		event := map[string]any{"state": s.Status}
		if s.Reason != "" {
			event["reason"] = s.Reason
		}
		p.handle("state", event)
	})
	client.OnRecovered(func(e Recovered) {
		p.handle("recovered", map[string]any{"recovered": e.Topic, "complete": e.Completeness})
	})
	client.OnDenied(func(e Denied) {
		p.handle("denied", map[string]any{"denied": e.Topic, "code": e.Code, "reason": e.Reason})
	})
	client.OnItems(func(e ItemsEvent) { p.handle("items", map[string]any{"items": e.Event, "ids": e.IDs}) })
	client.OnError(func(err error) {
		var known *Error
		if !errors.As(err, &known) {
			t.Errorf("not an *Error: %v", err)
			return
		}
		p.handle("error", map[string]any{"error": known.Code})
	})
	defer func() {
		ended, end := context.WithCancel(context.Background())
		end()
		_ = client.Close(ended)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, one := range p.deferred {
			close(one)
		}
		p.deferred = nil
	}()
	for n, step := range append(vector.Steps, map[string]vectors.Step{"expect": vectors.Step(`{}`)}) {
		for name, argument := range step {
			p.step(name, argument)
			if t.Failed() {
				t.Fatalf("in step %d: %s %.300s", n, name, argument)
			}
		}
	}
	if len(p.clock.random) > 0 || len(p.tokens) > 0 {
		t.Errorf("not used: random numbers %v, tokens %v", p.clock.random, p.tokens)
	}
}

// control calls the scripted server.
func (p *remotePlayer) control(path string, body any) {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.Post(p.server+"/control/"+path, "application/json", bytes.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if bytes.Contains(answer, []byte("nothing waits for this step")) && p.patience > 0 {
		p.patience-- // a slow machine: each attempt takes a second
		p.control(path, body)
	} else if response.StatusCode == http.StatusConflict {
		var difference struct{ Expected, Observed []map[string]any }
		_ = json.Unmarshal(answer, &difference)
		p.t.Errorf("wire: %s", vectors.Diff(vectors.ByKind(difference.Expected), vectors.ByKind(difference.Observed)))
	} else if response.StatusCode != http.StatusOK {
		p.t.Fatalf("%s %.300s: %s", path, text, answer)
	}
}

// observe sees the effects of the machine.
func (p *remotePlayer) observe(effect protocol.Effect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	see := func(event map[string]any) { p.local = append(p.local, event) }
	switch e := effect.(type) {
	case protocol.Dial, protocol.Request:
		p.started++
	case protocol.AskToken:
		see(map[string]any{"token": e.Reason})
	case protocol.Pass:
		p.running++
		see(map[string]any{"message": e.Message.ID})
	case protocol.StateChanged:
		event := map[string]any{"state": e.State.Name}
		if e.State.Reason != "" {
			event["reason"] = e.State.Reason
		}
		if e.State.HasRetry {
			event["in_ms"] = e.State.RetryIn.Milliseconds()
		}
		if e.State.Transport != "" {
			event["transport"] = e.State.Transport
		}
		see(event)
	case protocol.Recovered:
		see(map[string]any{"recovered": e.Topic, "complete": e.Complete})
	case protocol.Denied:
		see(map[string]any{"denied": e.Topic, "code": e.Code, "reason": e.Reason})
	case protocol.ItemsChanged:
		see(map[string]any{"items": e.Event, "ids": e.IDs})
	case protocol.UnreadChanged:
		if p.hasUnread {
			see(map[string]any{"unread": e.Counts.Unread, "categories": e.Counts.Categories})
		}
	case protocol.Failed:
		see(map[string]any{"error": e.Err.Code})
	}
}

func (p *remotePlayer) handle(kind string, event map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handled[kind] = append(p.handled[kind], event)
}

func (p *remotePlayer) token(ctx context.Context, request TokenRequest) (string, error) {
	p.mu.Lock()
	if len(p.tokens) == 0 {
		p.mu.Unlock()
		p.t.Error("the vector has no more tokens")
		return "", errors.New("no more tokens")
	}
	next := p.tokens[0]
	p.tokens = p.tokens[1:]
	p.mu.Unlock()
	if next.Pending {
		<-ctx.Done()
		return "", ctx.Err()
	}
	switch {
	case next.Fail:
		return "", errors.New("the backend is away")
	case next.None:
		return "", ErrSignedOut
	}
	return next.Text(p.clock.Now()), nil
}

func (p *remotePlayer) message(_ context.Context, m *Message) error {
	p.mu.Lock()
	p.running-- // what follows is an input, which settle sees
	p.handled["message"] = append(p.handled["message"], map[string]any{"message": m.ID})
	result := make(chan error, 1)
	switch {
	case p.vector.Options.Listener == "throws":
		result <- errors.New("the listener failed")
	case p.vector.Options.Listener == "deferred" && p.deferred != nil:
		p.deferred[m.ID] = result
	default:
		result <- nil
	}
	p.mu.Unlock()
	return <-result
}

// settle waits until the client has nothing to do but wait for the service, the clock or the application.
func (p *remotePlayer) settle() {
	p.t.Helper()
	quiet := 0
	for deadline := time.Now().Add(60 * time.Second); quiet < 3; time.Sleep(500 * time.Microsecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("the client does not settle")
		}
		if p.isQuiet() {
			quiet++
		} else {
			quiet = 0
		}
	}
}

func (p *remotePlayer) isQuiet() bool {
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, link := range c.links {
		if socket, ok := link.(*socket); ok && socket.isOpen && len(socket.frames) > 0 {
			return false
		}
	}
	c.events.mu.Lock()
	isDispatching := c.events.isRunning
	c.events.mu.Unlock()
	pending := 0
	for n := range c.callContexts {
		if c.machine.IsPending(n) {
			pending++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls == pending && !isDispatching && (len(c.cancelToken) == 0 || p.isPending()) && p.watch.written.Load() >= p.started && p.running == 0
}

// isPending reports whether the vector answers the newest request for a token.
func (p *remotePlayer) isPending() bool {
	answered := len(p.vector.Tokens) - len(p.tokens)
	return answered > 0 && p.vector.Tokens[answered-1].Pending
}

func (p *remotePlayer) step(name string, argument json.RawMessage) {
	p.t.Helper()
	switch name {
	case "call":
		var calls map[string]json.RawMessage
		p.decode(argument, &calls)
		for call, value := range calls {
			p.call(call, value)
			if call != "finish" && call != "fail" {
				p.settle()
			}
		}
	case "advance":
		var ms int64
		p.decode(argument, &ms)
		p.settle()
		end := p.clock.Now().Add(time.Duration(ms) * time.Millisecond)
		for f := p.clock.next(end); f != nil; f = p.clock.next(end) {
			f()
			p.settle()
		}
	case "expect":
		var expected vectors.Expectation
		p.decode(argument, &expected)
		p.control("expect", append([]map[string]any{}, expected.Wire...))
		p.expect(expected.Local)
	default:
		before := p.client.inputCount.Load()
		p.control("step", map[string]json.RawMessage{name: argument})
		if name != "send" && name != "send_many" {
			for deadline := time.Now().Add(2 * time.Second); p.client.inputCount.Load() == before && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
		}
		p.settle()
	}
}

func (p *remotePlayer) expect(expected []map[string]any) {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		p.settle()
		p.mu.Lock()
		diff := vectors.Diff(expected, p.local)
		if diff == "" || time.Now().After(deadline) {
			p.local = nil
			p.mu.Unlock()
			if diff != "" {
				p.t.Errorf("local: %s", diff)
			}
			break
		}
		p.mu.Unlock()
	}
	// The handlers got the same events.
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := map[string][]map[string]any{}
	for _, event := range expected {
		for _, kind := range []string{"message", "state", "recovered", "denied", "items", "unread", "error"} {
			if _, ok := event[kind]; !ok {
				continue
			}
			event := maps.Clone(event)
			if kind == "state" {
				delete(event, "in_ms")
				delete(event, "transport")
			}
			if kind == "recovered" {
				switch event["complete"] {
				case true:
					event["complete"] = Complete
				case false:
					event["complete"] = Incomplete
				default:
					event["complete"] = Unknown
				}
			}
			wanted[kind] = append(wanted[kind], event)
			break
		}
	}
	for kind, events := range p.handled {
		if diff := vectors.Diff(wanted[kind], events); diff != "" {
			p.t.Errorf("handlers of %s: %s", kind, diff)
		}
	}
	for kind, events := range wanted {
		if len(p.handled[kind]) == 0 {
			p.t.Errorf("no handler of %s was called: %v", kind, events)
		}
	}
	p.handled = map[string][]map[string]any{}
}

func (p *remotePlayer) decode(text json.RawMessage, value any) {
	p.t.Helper()
	if err := json.Unmarshal(text, value); err != nil {
		p.t.Fatal(err)
	}
}

func (p *remotePlayer) texts(argument json.RawMessage) []string {
	var texts []string
	p.decode(argument, &texts)
	return texts
}

func (p *remotePlayer) text(argument json.RawMessage) string {
	var text string
	p.decode(argument, &text)
	return text
}

// result records what a call returned.
func (p *remotePlayer) result(err error, event map[string]any) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls--
	}()
	var failed *Error
	switch {
	case p.ctx.Err() != nil:
		return
	case errors.As(err, &failed):
		event = map[string]any{"failed": failed.Code}
	case err != nil:
		p.t.Errorf("not an *Error: %v", err)
	}
	p.mu.Lock()
	p.local = append(p.local, event)
	p.mu.Unlock()
}

func (p *remotePlayer) call(name string, argument json.RawMessage) {
	c := p.client
	switch name {
	case "connect":
		c.Connect()
	case "close":
		go func() { _ = c.Close(p.ctx) }()
		for deadline := time.Now().Add(20 * time.Second); c.State().Status != StatusClosed && c.State().Status != StatusIdle && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	case "subscribe":
		var options struct {
			Topic   string
			Recover bool
		}
		p.decode(argument, &options)
		c.Subscribe(options.Topic, SubscribeOptions{Recover: options.Recover})
	case "unsubscribe":
		c.mu.Lock()
		subscription := c.handlers.topics[p.text(argument)]
		c.mu.Unlock()
		subscription.Unsubscribe()
	case "ack":
		c.Ack(p.texts(argument)...)
	case "opened":
		c.Opened(p.texts(argument)...)
	case "presence":
		presence := Presence(p.text(argument))
		if presence == "auto" {
			presence = ""
		}
		if err := c.SetPresence(presence); err != nil {
			p.t.Error(err)
		}
	case "page":
		var page struct {
			Hidden *bool
			Online bool
		}
		p.decode(argument, &page)
		if page.Hidden != nil {
			c.SetHidden(*page.Hidden)
		}
		if page.Online {
			c.NetworkReturned()
		}
	case "finish", "fail":
		id := p.text(argument)
		var result chan error
		for deadline := time.Now().Add(20 * time.Second); result == nil; {
			if time.Now().After(deadline) {
				p.t.Fatalf("the application does not have %q", id)
			}
			p.mu.Lock()
			result = p.deferred[id]
			delete(p.deferred, id)
			p.mu.Unlock()
			if result == nil {
				time.Sleep(100 * time.Microsecond)
			}
		}
		before := c.inputCount.Load()
		if name == "fail" {
			result <- errors.New("the listener failed")
		} else {
			result <- nil
		}
		for deadline := time.Now().Add(20 * time.Second); c.inputCount.Load() == before && time.Now().Before(deadline); {
			time.Sleep(100 * time.Microsecond)
		}
	case "listen_unread":
		p.mu.Lock()
		p.hasUnread = true
		p.mu.Unlock()
		c.OnUnread(func(counts ItemCounts) {
			p.handle("unread", map[string]any{"unread": counts.Unread, "categories": counts.Categories})
		})
	case "me":
		p.begin(func() {
			me, err := c.Me(p.ctx)
			device := ""
			if me != nil {
				device = me.Device
			}
			p.result(err, map[string]any{"me": device})
		})
	case "variant":
		p.begin(func() {
			variant, err := c.Variant(p.ctx, p.text(argument))
			name := any(nil)
			if variant != nil {
				name = variant.Variant
			}
			p.result(err, map[string]any{"variant": name})
		})
	case "mark_read":
		p.begin(func() {
			changed, err := c.MarkRead(p.ctx, IDs(p.texts(argument)...))
			count := int64(0)
			if changed != nil {
				count = changed.Changed
			}
			p.result(err, map[string]any{"changed": count})
		})
	default:
		p.t.Fatalf("not a call: %s", name)
	}
}

// begin makes a call of the application, which returns later.
func (p *remotePlayer) begin(call func()) {
	p.mu.Lock()
	p.calls++
	p.mu.Unlock()
	go call()
}
