package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
)

func token(context.Context, TokenRequest) (string, error) { return "t1", nil }

func connect(t *testing.T, handler http.Handler, change ...func(*Options)) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	options := Options{URL: server.URL, Token: token}
	for _, one := range change {
		one(&options)
	}
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// service accepts log-ins, and sends frames.
func service(t *testing.T, send func(ctx context.Context, conn *websocket.Conn)) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		conn, err := websocket.Accept(response, request, &websocket.AcceptOptions{Subprotocols: []string{"noroshi.v1"}})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		ctx := request.Context()
		if _, _, err := conn.Read(ctx); err != nil {
			return
		}
		write(ctx, conn, `{"t":"ready","device":"d1","ping_s":240}`)
		send(ctx, conn)
	})
}

func write(ctx context.Context, conn *websocket.Conn, text string) {
	_ = conn.Write(ctx, websocket.MessageText, []byte(text))
}

func wait(t *testing.T, what string, probe func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !probe(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for: %s", what)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, options := range []Options{
		{URL: "push.example.com", Token: token}, {URL: "ws://push.example.com", Token: token}, {URL: "https://push.example.com"},
		{URL: "https://push.example.com", Token: token, Transports: []Transport{}}, {URL: "https://push.example.com", Token: token, Transports: []Transport{"mqtt"}},
		{URL: "https://push.example.com", Token: token, Transports: []Transport{SSE, SSE}},
		{URL: "https://push.example.com", Token: token, HTTPClient: &http.Client{Timeout: time.Second}},
		{URL: "https://push.example.com", Token: token, Reports: FileReports(t.TempDir())},
	} {
		if _, err := New(options); err == nil {
			t.Errorf("%+v was accepted", options)
		}
	}
}

func TestRunReturnsWhenItsContextEnds(t *testing.T) {
	c := connect(t, service(t, func(ctx context.Context, conn *websocket.Conn) { _, _, _ = conn.Read(ctx) }))
	cause := errors.New("the program ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	wait(t, "the connection", func() bool { return c.State().Status == StatusConnected })
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Error(err)
	}
	if s := c.State(); s.Status != StatusClosed || s.Reason != ReasonClosed {
		t.Error(s)
	}
}

func TestRunReturnsIfNobodyIsSignedIn(t *testing.T) {
	c := connect(t, http.NotFoundHandler(), func(o *Options) {
		o.Token = func(context.Context, TokenRequest) (string, error) {
			return "", fmt.Errorf("no session: %w", ErrSignedOut)
		}
	})
	if err := c.Run(t.Context()); err != nil { // A8
		t.Error(err)
	}
	if s := c.State(); s.Status != StatusClosed || s.Reason != ReasonSignedOut {
		t.Error(s)
	}
	if _, err := c.Me(t.Context()); !errors.Is(err, ErrSignedOut) {
		t.Error(err)
	}
}

// A8: what the application wanted is no error of Run.
func TestRunReturnsNilAfterClose(t *testing.T) {
	c := connect(t, service(t, func(ctx context.Context, conn *websocket.Conn) { _, _, _ = conn.Read(ctx) }))
	ended := make(chan error)
	go func() { ended <- c.Run(t.Context()) }()
	wait(t, "the connection", func() bool { return c.State().Status == StatusConnected })
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRunReturnsAnErrorIfTheDeviceWasReplaced(t *testing.T) {
	c := connect(t, service(t, func(ctx context.Context, conn *websocket.Conn) {
		write(ctx, conn, `{"t":"close","reason":"replaced","reconnect":false}`)
		_ = conn.Close(4001, "replaced")
	}))
	var failed *Error
	if err := c.Run(t.Context()); !errors.As(err, &failed) || failed.Code != CodeReplaced {
		t.Error(err)
	}
}

// A8: a handler that does not return has not handled its message.
func TestAHandlerThatEndsItsGoroutineHasFailed(t *testing.T) {
	var sessions atomic.Int64
	acks := make(chan string, 10)
	c := connect(t, service(t, func(ctx context.Context, conn *websocket.Conn) {
		write(ctx, conn, `{"t":"msg","id":"m1","ack":true,"data":1}`)
		if sessions.Add(1) == 1 {
			write(ctx, conn, `{"t":"msg","id":"m2","ack":true,"data":1}`)
		}
		for {
			_, text, err := conn.Read(ctx)
			if err != nil {
				return
			}
			acks <- string(text)
			if sessions.Load() == 1 {
				return
			}
		}
	}))
	errs := make(chan error, 10)
	c.OnError(func(err error) { errs <- err })
	var calls atomic.Int64
	c.OnMessage(func(context.Context, *Message) error {
		if calls.Add(1) == 1 {
			runtime.Goexit()
		}
		return nil
	})
	c.Connect()
	for _, want := range []string{`{"ids":["m2"],"t":"ack"}`, `{"ids":["m1"],"t":"ack"}`} {
		select {
		case got := <-acks:
			if got != want {
				t.Errorf("%s, not %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no acknowledgement")
		}
	}
	var failed *Error
	if err := <-errs; !errors.As(err, &failed) || failed.Code != CodeListenerFailed {
		t.Error(err)
	}
}

// S4: nothing happens after Close.
func TestAMessageThatWaitsBehindOtherEventsIsDroppedByClose(t *testing.T) {
	acked := make(chan string, 10)
	c := connect(t, service(t, func(ctx context.Context, conn *websocket.Conn) {
		write(ctx, conn, `{"t":"msg","id":"m1","ack":true,"data":1}`)
		if _, text, err := conn.Read(ctx); err == nil {
			acked <- string(text)
		}
	}))
	release, isBlocked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.OnState(func(s State) {
		if s.Status == StatusConnected {
			once.Do(func() {
				close(isBlocked)
				<-release
			})
		}
	})
	messages := make(chan string, 10)
	c.OnMessage(func(_ context.Context, m *Message) error { messages <- m.ID; return nil })
	c.Connect()
	<-isBlocked
	wait(t, "the message", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.machine.Waiting() == 1 })
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	close(release)
	wait(t, "the events", func() bool {
		c.events.mu.Lock()
		defer c.events.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.events.isRunning && c.machine.Waiting() == 0
	})
	select {
	case id := <-messages:
		t.Errorf("%s was passed on", id)
	default:
	}
	c.Connect()
	if id := <-messages; id != "m1" {
		t.Error(id)
	}
	if ack := <-acked; ack != `{"ids":["m1"],"t":"ack"}` {
		t.Error(ack)
	}
}

func TestHandlersMayCallEveryMethod(t *testing.T) {
	c := connect(t, service(t, func(ctx context.Context, conn *websocket.Conn) {
		write(ctx, conn, `{"t":"msg","id":"m1","ack":true,"data":1,"sent_at":"2026-01-01T00:00:00Z"}`)
		_, _, _ = conn.Read(ctx)
		_, _, _ = conn.Read(ctx)
	}))
	closed := make(chan struct{})
	c.OnState(func(s State) {
		c.Subscribe("a", SubscribeOptions{}).Unsubscribe()
		c.OnError(nil)
		if s.Status == StatusClosed {
			close(closed)
		}
	})
	c.OnMessage(func(ctx context.Context, m *Message) error {
		c.Ack(m.ID)
		if err := c.Close(ctx); err == nil {
			return nil
		}
		<-ctx.Done() // Close cancelled it
		return nil
	})
	c.Connect()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the client did not close")
	}
}

func TestRequestsEndWithTheirContext(t *testing.T) {
	release := make(chan struct{})
	c := connect(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer close(release)
	cause := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	if _, err := c.ListItems(ctx, ItemsQuery{}); !errors.Is(err, cause) {
		t.Error(err)
	}
	if _, err := c.Counts(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.callContexts) != 0 {
		t.Errorf("%d contexts are left", len(c.callContexts))
	}
}

func TestErrorsAreTyped(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		response.Header().Set("X-Request-Id", "r1")
		response.Header().Set("Retry-After", "31")
		if request.URL.Path == "/v1/me/items/counts" {
			fmt.Fprint(response, "<html>")
			return
		}
		response.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(response, `{"code": "too_many_requests", "detail": "slow down", "field": "limit"}`)
	}))
	_, err := c.ListItems(t.Context(), ItemsQuery{Limit: 5})
	var failed *Error
	if !errors.As(err, &failed) || failed.Code != CodeTooManyRequests || failed.Status != 429 || failed.RetryAfter != 31*time.Second || failed.Field != "limit" || failed.RequestID != "r1" {
		t.Errorf("%+v", err)
	}
	if err.Error() != "noroshi: too_many_requests: slow down (request r1)" {
		t.Error(err)
	}
	if _, err := c.Counts(t.Context()); !errors.As(err, &failed) || failed.Code != CodeNetwork {
		t.Error(err)
	}
	c.base.Host = "127.0.0.1:1"
	if _, err := c.ListItems(t.Context(), ItemsQuery{}); !errors.As(err, &failed) || failed.Code != CodeNetwork {
		t.Error(err)
	}
}

func TestAMessageThatCannotBeReadIsReportedAndPassedOn(t *testing.T) {
	c := connect(t, service(t, func(ctx context.Context, conn *websocket.Conn) {
		write(ctx, conn, `{"t":"msg","id":"m1","notification":{"title":1},"data":{"n":1},"sent_at":"now"}`)
		_, _, _ = conn.Read(ctx)
	}))
	messages, errs := make(chan *Message, 1), make(chan error, 1)
	c.OnMessage(func(_ context.Context, m *Message) error { messages <- m; return nil })
	c.OnError(func(err error) { errs <- err })
	c.Connect()
	m := <-messages
	var data struct{ N int }
	if m.Notification != nil || m.Decode(&data) != nil || data.N != 1 {
		t.Errorf("%+v", m)
	}
	var failed *Error
	if !errors.As(<-errs, &failed) || failed.Code != CodeBadFrame {
		t.Error(failed)
	}
}

func TestReadEvents(t *testing.T) {
	read := func(text string) (events []string) {
		err := readEvents(strings.NewReader(text), func(data []byte) {
			if data != nil {
				events = append(events, string(data))
			}
		})
		if !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v", text, err)
		}
		return events
	}
	long := strings.Repeat("x", 200_000)
	for text, want := range map[string][]string{
		"":                                    nil,
		"event: msg\nid: 1\ndata: {}\n\n":     {"{}"},
		"data:a\r\ndata: b\r\n\r\n":           {"a\nb"},
		": comment\n\n\ndata: a\n\ndata: cut": {"a"},
		"data\n\nretry: 5\n\ndata:  a\n\n":    {" a"},
		"data: " + long + "\n\n":              {long},
		"data:\n\n":                           {""},
	} {
		if got := read(text); !slices.Equal(got, want) {
			t.Errorf("%.40q: %.80q", text, got)
		}
	}
	if err := readEvents(strings.NewReader("data: "+strings.Repeat("x", frameMax)), func([]byte) {}); !errors.Is(err, errEventTooLarge) {
		t.Error(err)
	}
}

// A handler that hangs drops the oldest events, but no message.
func TestEventsAreBounded(t *testing.T) {
	release := make(chan struct{})
	var got []event
	done := make(chan struct{})
	q := eventQueue{overflow: func(count int) event { return protocol.Failed{Err: &protocol.Error{Code: fmt.Sprint(count)}} }}
	q.handle = func(e event) {
		if got == nil {
			<-release
		}
		got = append(got, e)
		if state, ok := e.(protocol.StateChanged); ok && state.State.Name == "last" {
			close(done)
		}
	}
	q.push(protocol.StateChanged{State: protocol.State{Name: "first"}})
	wait(t, "the handler", func() bool { q.mu.Lock(); defer q.mu.Unlock(); return len(q.waiting) == 0 })
	q.push(protocol.Pass{Message: protocol.Message{ID: "m"}})
	for n := range 2 * eventsMax {
		q.push(protocol.StateChanged{State: protocol.State{Name: fmt.Sprint(n)}})
	}
	q.push(protocol.StateChanged{State: protocol.State{Name: "last"}})
	close(release)
	<-done
	if len(got) != eventsMax+2 {
		t.Errorf("%d events", len(got))
	}
	if failed, ok := got[1].(protocol.Failed); !ok || failed.Err.Code != fmt.Sprint(eventsMax+2) {
		t.Errorf("%+v", got[1])
	}
	if _, ok := got[2].(protocol.Pass); !ok {
		t.Errorf("%+v", got[2])
	}
	wait(t, "the goroutine to end", func() bool { q.mu.Lock(); defer q.mu.Unlock(); return !q.isRunning })
}

// brokenStore cannot save.
type brokenStore struct{ saved atomic.Int64 }

func (*brokenStore) Load() ([]string, error) { return nil, nil }

func (s *brokenStore) Save([]string) error {
	s.saved.Add(1)
	return errors.New("the disk is full")
}

func TestAStoreThatFailsIsReported(t *testing.T) {
	store := &brokenStore{}
	c := connect(t, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { fmt.Fprint(response, "{}") }), func(o *Options) { o.Reports = store })
	errs := make(chan error, 10)
	c.OnError(func(err error) { errs <- err })
	c.Opened("m1")
	var failed *Error
	if err := <-errs; !errors.As(err, &failed) || failed.Code != CodeStorageFailed {
		t.Error(err)
	}
}

func TestFileReports(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reports.json")
	store := FileReports(path)
	if ids, err := store.Load(); err != nil || ids != nil {
		t.Error(ids, err)
	}
	if err := store.Save([]string{"a", "b"}); err != nil {
		t.Error(err)
	}
	if ids, err := store.Load(); err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Error(ids, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Load(); err == nil {
		t.Error("a broken file was read")
	}
	if err := FileReports(filepath.Join(path, "x")).Save(nil); err == nil {
		t.Error("a file below a file was written")
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

// Every method at once, while the connection breaks again and again.
func TestMethodsAreSafeForConcurrentUse(t *testing.T) {
	var n atomic.Int64
	sockets := service(t, func(ctx context.Context, conn *websocket.Conn) {
		for range 20 {
			write(ctx, conn, fmt.Sprintf(`{"t":"msg","id":"m%d","ack":true,"data":1}`, n.Add(1)))
		}
	})
	c := connect(t, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/v1/connect" {
			sockets.ServeHTTP(response, request)
			return
		}
		_ = json.NewEncoder(response).Encode(map[string]any{"device": "d1", "unread": 1, "items": []any{}})
	}), func(o *Options) { o.Transports = []Transport{WebSocket} })
	var shown atomic.Int64
	c.OnMessage(func(context.Context, *Message) error { shown.Add(1); return nil })
	c.OnUnread(func(ItemCounts) {})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var group sync.WaitGroup
	for _, work := range []func(){
		func() { c.Connect() }, func() { c.NetworkReturned() }, func() { _, _ = c.Me(ctx) }, func() { _, _ = c.Counts(ctx) },
		func() { c.Subscribe("a", SubscribeOptions{Recover: true}).Unsubscribe() }, func() { c.Opened("m") }, func() { c.Ack("m") },
		func() { c.SetHidden(true); c.SetHidden(false) }, func() { _ = c.State().String(); _, _ = c.Unread() }, func() { _ = c.SetPresence(PresenceIdle) },
		func() {
			last, end := context.WithTimeout(ctx, 50*time.Millisecond)
			defer end()
			_ = c.Close(last)
		},
	} {
		group.Go(func() {
			for ctx.Err() == nil {
				work()
				time.Sleep(time.Millisecond)
			}
		})
	}
	group.Wait()
	if shown.Load() == 0 {
		t.Error("no message was shown")
	}
	if err := c.SetPresence(PresenceOffline); err == nil {
		t.Error("a device stated that it is offline")
	}
}

func TestACloseLeavesNoGoroutine(t *testing.T) {
	server := httptest.NewServer(service(t, func(ctx context.Context, conn *websocket.Conn) {
		write(ctx, conn, `{"t":"msg","id":"m1","ack":true,"data":1}`)
		_, _, _ = conn.Read(ctx)
		_, _, _ = conn.Read(ctx)
	}))
	defer server.Close()
	before := runtime.NumGoroutine()
	for range 10 {
		transport := &http.Transport{}
		c, err := New(Options{URL: server.URL, Token: token, HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		shown := make(chan struct{})
		c.OnMessage(func(context.Context, *Message) error { close(shown); return nil })
		c.Connect()
		<-shown
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	}
	wait(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// A read that waits for another attempt (U6) ends with its context.
func TestARepetitionEndsWithItsContext(t *testing.T) {
	var requests atomic.Int64
	c := connect(t, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			response.Header().Set("Retry-After", "0")
		} else {
			response.Header().Set("Retry-After", "20")
		}
		response.WriteHeader(http.StatusServiceUnavailable)
	}))
	cause := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := c.ListItems(ctx, ItemsQuery{})
		ended <- err
	}()
	wait(t, "both answers", func() bool { return c.inputCount.Load() >= 5 }) // the call, the token, an answer, the timer, an answer
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) || requests.Load() != 2 {
		t.Error(err, requests.Load())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.callContexts) != 0 {
		t.Errorf("%d contexts are left", len(c.callContexts))
	}
}

// A service that is overloaded refuses WebSockets with a time to wait.
func TestRetryAfterOfARefusedWebSocket(t *testing.T) {
	c := connect(t, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		response.Header().Set("Retry-After", "7")
		response.WriteHeader(http.StatusServiceUnavailable)
	}))
	c.Connect()
	wait(t, "the refusal", func() bool { return c.State().Status == StatusWaiting })
	if s := c.State(); s.RetryIn != 7*time.Second || s.Reason != ReasonConnectionLost {
		t.Error(s)
	}
}

// The second request of a call, after a rejected token, ends with its context too.
func TestARepeatedRequestEndsWithItsContext(t *testing.T) {
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tokens atomic.Int64
	c := connect(t, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Header.Get("Authorization") == "Bearer t1" {
			response.WriteHeader(http.StatusUnauthorized)
			return
		}
		cancel()
		<-request.Context().Done()
		close(ended)
	}), func(o *Options) {
		o.Token = func(context.Context, TokenRequest) (string, error) { return fmt.Sprintf("t%d", tokens.Add(1)), nil }
	})
	if _, err := c.Counts(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the request did not end")
	}
}
