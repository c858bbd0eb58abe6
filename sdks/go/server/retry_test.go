package noroshi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// attempts answers with each status in turn, and records the waits instead of waiting.
type attempts struct {
	mu       sync.Mutex
	statuses []int
	header   http.Header
	keys     []string
	waits    []time.Duration
	random   float64
}

func (a *attempts) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	a.mu.Lock()
	a.keys = append(a.keys, request.Header.Get("Idempotency-Key"))
	status := a.statuses[min(len(a.keys), len(a.statuses))-1]
	a.mu.Unlock()
	switch status {
	case 0:
		panic(http.ErrAbortHandler)
	case 200:
		fmt.Fprint(response, `{"id": "n1", "targets": 1}`)
		return
	}
	for name, values := range a.header {
		response.Header()[name] = values
	}
	response.Header().Set("X-Request-Id", "r1")
	response.Header().Set("Content-Type", "application/problem+json")
	response.WriteHeader(status)
	fmt.Fprintf(response, `{"type": "/docs#x", "title": "Title", "status": %d, "code": "overloaded", "detail": "Detail", "field": "to"}`, status)
}

// seen are the keys of the requests.
func (a *attempts) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.keys)
}

func (a *attempts) client(t *testing.T, change ...func(*Options)) *Client {
	c := testClient(t, a, change...)
	c.random = func() float64 { return a.random }
	now := time.Now()
	c.now = func() time.Time { return now }
	c.sleep = func(_ context.Context, d time.Duration) error {
		a.waits = append(a.waits, d)
		now = now.Add(d)
		return nil
	}
	return c
}

func TestRetries(t *testing.T) {
	const publish, get, start = "publish", "get", "start"
	for _, test := range []struct {
		call     string
		statuses []int
		want     int // attempts
	}{
		{publish, []int{200}, 1},
		{publish, []int{503, 200}, 2},
		{publish, []int{0, 408, 425, 200}, 4},
		{publish, []int{429, 500, 502, 200}, 4},
		{publish, []int{504, 504, 504, 504, 504}, 4},
		{publish, []int{400}, 1},
		{publish, []int{401}, 1},
		{publish, []int{409}, 1},
		{publish, []int{501}, 1},
		{publish, []int{507}, 1},
		{get, []int{0, 500, 200}, 3},
		// Without a key: only if the service has not processed it.
		{start, []int{503, 425, 429, 200}, 4},
		{start, []int{500, 200}, 1},
		{start, []int{408, 200}, 1},
		{start, []int{0, 200}, 1},
	} {
		a := &attempts{statuses: test.statuses, random: 0.5}
		c := a.client(t)
		var err error
		switch test.call {
		case publish:
			_, err = c.Publish(t.Context(), Notification{})
		case get:
			_, err = c.Notification(t.Context(), "n1")
		case start:
			_, err = c.StartCampaign(t.Context(), "c1", 0)
		}
		if len(a.seen()) != test.want {
			t.Errorf("%s %v: %d attempts, want %d", test.call, test.statuses, len(a.seen()), test.want)
		}
		succeeds := test.statuses[min(test.want, len(test.statuses))-1] == 200
		if (err == nil) != succeeds {
			t.Errorf("%s %v: %v", test.call, test.statuses, err)
		}
		for _, key := range a.seen() {
			if (key != "") != (test.call == publish) || key != a.seen()[0] {
				t.Errorf("%s %v: keys %q", test.call, test.statuses, a.seen())
			}
		}
	}
}

func TestARefusedConnectionIsRepeatedForEveryRequest(t *testing.T) {
	a := &attempts{}
	c := a.client(t)
	c.base.Host = "127.0.0.1:1"
	_, err := c.StartCampaign(t.Context(), "c1", 0)
	var failed *NetworkError
	if !errors.As(err, &failed) || failed.Attempts != DefaultAttempts {
		t.Errorf("%v", err)
	}
}

func TestBackoff(t *testing.T) {
	a := &attempts{statuses: []int{500}, random: 0.5}
	c := a.client(t, func(o *Options) { o.Attempts, o.Deadline = 9, time.Hour })
	if _, err := c.Notification(t.Context(), "n1"); err == nil {
		t.Fatal("it succeeded")
	}
	// Half of 200 ms, doubled up to 10 s.
	want := "[100ms 200ms 400ms 800ms 1.6s 3.2s 5s 5s]"
	if got := fmt.Sprint(a.waits); got != want {
		t.Errorf("waits %s, want %s", got, want)
	}
}

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"3": 3 * time.Second, "0": 50 * time.Millisecond} {
		a := &attempts{statuses: []int{503, 200}, header: http.Header{"Retry-After": {header}}, random: 0.25}
		if _, err := a.client(t).Notification(t.Context(), "n1"); err != nil {
			t.Error(err)
		}
		if len(a.waits) != 1 || a.waits[0] != want {
			t.Errorf("%s: waits %v", header, a.waits)
		}
	}
	at := time.Now().Add(20 * time.Second).UTC().Format(http.TimeFormat)
	a := &attempts{statuses: []int{503, 200}, header: http.Header{"Retry-After": {at}}}
	if _, err := a.client(t).Notification(t.Context(), "n1"); err != nil {
		t.Error(err)
	}
	if len(a.waits) != 1 || a.waits[0] < 18*time.Second || a.waits[0] > 20*time.Second {
		t.Errorf("a date: waits %v", a.waits)
	}
}

func TestTheDeadlineEndsRetries(t *testing.T) {
	a := &attempts{statuses: []int{503}, header: http.Header{"Retry-After": {"31"}}}
	_, err := a.client(t).Notification(t.Context(), "n1")
	var failed *Error
	if !errors.As(err, &failed) || failed.RetryAfter != 31*time.Second || len(a.seen()) != 1 {
		t.Errorf("%v after %d attempts", err, len(a.seen()))
	}
}

func TestErrorsAreTyped(t *testing.T) {
	a := &attempts{statuses: []int{400}}
	_, err := a.client(t).Publish(t.Context(), Notification{})
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("%v", err)
	}
	want := Error{
		Status: 400, Code: CodeOverloaded, Title: "Title", Detail: "Detail", Field: "to", RequestID: "r1", Method: "POST",
		Path: "/v1/notifications", Attempts: 1,
	}
	if *failed != want {
		t.Errorf("%+v", *failed)
	}
	if text := err.Error(); text != "noroshi: POST /v1/notifications: 400 overloaded: Detail (field to) (request r1)" {
		t.Error(text)
	}

	proxy := testClient(t, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		response.WriteHeader(http.StatusForbidden)
		fmt.Fprint(response, "<html>")
	}))
	_, err = proxy.Notification(t.Context(), "n1")
	if !errors.As(err, &failed) || failed.Code != "http_403" {
		t.Errorf("%v", err)
	}
}

func TestAnAnswerThatIsCutOffIsANetworkError(t *testing.T) {
	c := testClient(t, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { fmt.Fprint(response, `{"id": "n`) }),
		func(o *Options) { o.Attempts = 1 })
	_, err := c.Publish(t.Context(), Notification{})
	var failed *NetworkError
	if !errors.As(err, &failed) {
		t.Errorf("%v", err)
	}
}

func TestTimeoutsAndCancellation(t *testing.T) {
	release := make(chan struct{})
	c := testClient(t, http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		select {
		case <-request.Context().Done():
		case <-release:
		}
	}), func(o *Options) { o.Timeout, o.Attempts = 20*time.Millisecond, 2 })
	defer close(release)
	c.sleep = func(context.Context, time.Duration) error { return nil }
	_, err := c.Notification(t.Context(), "n1")
	var failed *NetworkError
	if !errors.As(err, &failed) || failed.Attempts != 2 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the user left")
	cancel(cause)
	if _, err = c.Notification(ctx, "n1"); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}

func TestHeaders(t *testing.T) {
	var header http.Header
	c := testClient(t, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		header = request.Header
		fmt.Fprint(response, "{}")
	}), func(o *Options) { o.Traceparent = func(context.Context) string { return "00-span" } })
	if _, err := c.Publish(t.Context(), Notification{}, IdempotencyKey("order-7")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer key", "Idempotency-Key": "order-7", "Traceparent": "00-span", "Content-Type": "application/json", "User-Agent": "noroshi-go/" + Version,
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, err := c.Publish(t.Context(), Notification{}, Traceparent("00-other")); err != nil {
		t.Fatal(err)
	}
	if header.Get("Traceparent") != "00-other" || len(header.Get("Idempotency-Key")) < 20 {
		t.Errorf("%v", header)
	}
}

func TestAttemptsAreLogged(t *testing.T) {
	var out bytes.Buffer
	a := &attempts{statuses: []int{503, 200}, random: 0.5}
	c := a.client(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	if _, err := c.Notification(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	for n, parts := range [][]string{
		{"level=WARN", "method=GET", "path=/v1/notifications/n1", "attempt=1", "status=503", "code=overloaded", "request_id=r1", "retry_in=100ms"},
		{"level=DEBUG", "attempt=2"},
	} {
		for _, part := range parts {
			if !strings.Contains(lines[n], part) {
				t.Errorf("%q has no %q", lines[n], part)
			}
		}
	}
	if strings.Contains(out.String(), "Bearer") {
		t.Error("the log has the key")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, options := range []Options{
		{URL: "push.example.com", Key: "k"}, {URL: "ftp://push.example.com", Key: "k"}, {URL: "https://push.example.com"},
		{URL: "https://push.example.com", Key: "k", Attempts: -1}, {URL: "http://%zz", Key: "k"},
	} {
		if _, err := New(options); err == nil {
			t.Errorf("%+v was accepted", options)
		}
	}
}
