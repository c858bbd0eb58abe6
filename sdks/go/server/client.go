package noroshi

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Defaults of Options.
const (
	DefaultTimeout  = 10 * time.Second
	DefaultDeadline = 30 * time.Second
	DefaultAttempts = 4
)

const (
	backoffFirst = 200 * time.Millisecond
	backoffMax   = 10 * time.Second
	// A larger answer is not from the service.
	answerMax = 256 << 20
)

// Options configure a Client. URL and Key are required.
type Options struct {
	// URL is the public address of the service, such as https://push.example.com.
	URL string
	// Key is an API key. It belongs to one app and has scopes.
	Key string
	// HTTPClient sends the requests. Default: a client with a copy of http.DefaultTransport that keeps as many connections to the
	// service as to all hosts.
	HTTPClient *http.Client
	// Timeout of each attempt. Default: [DefaultTimeout].
	Timeout time.Duration
	// Deadline of a request with all its attempts and the waits between them. Default: [DefaultDeadline].
	Deadline time.Duration
	// Attempts is how often a request is sent at most. 1 never repeats. Default: [DefaultAttempts].
	Attempts int
	// Logger gets a record of each attempt: at the level Debug, and at Warn if it failed. Default: none.
	Logger *slog.Logger
	// Traceparent returns the W3C trace context of a request, such as that of the current span, or "". The service continues the
	// trace of requests that publish.
	Traceparent func(context.Context) string
}

// Client sends requests with an API key. It is safe for concurrent use.
type Client struct {
	options Options
	base    *url.URL
	http    *http.Client
	logger  *slog.Logger
	// Tests replace them.
	now    func() time.Time
	random func() float64
	sleep  func(context.Context, time.Duration) error
}

// New returns a client. It does not connect.
func New(options Options) (*Client, error) {
	base, err := url.Parse(options.URL)
	if err != nil {
		return nil, fmt.Errorf("noroshi: Options.URL: %w", err)
	}
	if base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return nil, fmt.Errorf("noroshi: Options.URL: %q is not an http or https address", options.URL)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	if options.Key == "" {
		return nil, errors.New("noroshi: Options.Key is required")
	}
	if options.Timeout < 0 || options.Deadline < 0 || options.Attempts < 0 {
		return nil, errors.New("noroshi: Options.Timeout, Deadline and Attempts are not negative")
	}
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	if options.Deadline == 0 {
		options.Deadline = DefaultDeadline
	}
	if options.Attempts == 0 {
		options.Attempts = DefaultAttempts
	}
	c := &Client{options: options, base: base, http: options.HTTPClient, logger: options.Logger, now: time.Now, random: rand.Float64, sleep: sleep}
	if c.http == nil {
		c.http = &http.Client{Transport: defaultTransport()}
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// defaultTransport keeps more than two idle connections to a host: all requests go to one.
func defaultTransport() http.RoundTripper {
	shared, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	own := shared.Clone()
	own.MaxIdleConnsPerHost = own.MaxIdleConns
	return own
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RequestOption changes one request.
type RequestOption func(*call)

// IdempotencyKey sets the Idempotency-Key: for 24 hours, a request with the same key and the same content returns the first answer and
// does nothing again. Use the id of what causes the notification, so that repeating your own work publishes once. The default is a
// random key for each call. In a batch, each request has the key and the number of its first line.
func IdempotencyKey(key string) RequestOption {
	return func(c *call) { c.idempotencyKey = key }
}

// Traceparent sets the W3C trace context of one request, instead of that of [Options.Traceparent].
func Traceparent(value string) RequestOption {
	return func(c *call) { c.traceparent = value }
}

// call is a request.
type call struct {
	method string
	// Escaped.
	path        string
	query       url.Values
	body        []byte
	contentType string
	accept      string
	// Another attempt changes nothing: the method is idempotent, or there is a key.
	canRepeat      bool
	takesKey       bool
	idempotencyKey string
	traceparent    string
}

// keyed says that the request takes an Idempotency-Key.
func keyed(c *call) {
	c.takesKey, c.canRepeat = true, true
	if c.idempotencyKey == "" {
		c.idempotencyKey = crand.Text()
	}
}

// repeatable says that another attempt of this POST or PATCH changes nothing.
func repeatable(c *call) { c.canRepeat = true }

func (c *Client) newCall(method string, in any, path string, segments []string, options []RequestOption) (*call, error) {
	escaped := make([]any, len(segments))
	for n, segment := range segments {
		if segment == "" || segment == "." || segment == ".." {
			return nil, fmt.Errorf("noroshi: %s %s: %q cannot be a part of the path", method, path, segment)
		}
		escaped[n] = url.PathEscape(segment)
	}
	call := &call{method: method, path: fmt.Sprintf(path, escaped...), canRepeat: method != http.MethodPost && method != http.MethodPatch}
	for _, option := range options {
		option(call)
	}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("noroshi: %s %s: %w", method, call.path, err)
		}
		call.body, call.contentType = body, "application/json"
	}
	return call, nil
}

// send sends a request until it succeeds or must not be repeated. read reads the body of a success; if it fails, the answer was cut
// off, which counts as a network error.
func (c *Client) send(ctx context.Context, call *call, read func([]byte) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Deadline, fmt.Errorf("the deadline of %v is over: %w", c.options.Deadline, context.DeadlineExceeded))
	defer cancel()
	deadline, _ := ctx.Deadline()
	for attempt := 1; ; attempt++ {
		began := c.now()
		mayRepeat, failure := c.attempt(ctx, call, read)
		took := c.now().Sub(began)
		attributes := []slog.Attr{
			slog.String("method", call.method), slog.String("path", call.path), slog.Int("attempt", attempt), slog.Duration("took", took),
		}
		if failure == nil {
			c.logger.LogAttrs(ctx, slog.LevelDebug, "noroshi request", attributes...)
			return nil
		}
		wait := time.Duration(c.random() * float64(min(backoffMax, backoffFirst<<min(attempt-1, 16))))
		var refused *Error
		if errors.As(failure, &refused) {
			refused.Attempts = attempt
			wait = max(wait, refused.RetryAfter)
			attributes = append(attributes, slog.Int("status", refused.Status), slog.String("code", string(refused.Code)), slog.String("request_id", refused.RequestID))
		} else {
			attributes = append(attributes, slog.String("error", failure.Error()))
			failure = &NetworkError{call.method, call.path, attempt, failure}
		}
		if ctx.Err() != nil && refused == nil {
			failure = &NetworkError{call.method, call.path, attempt, context.Cause(ctx)}
			mayRepeat = false
		}
		if !mayRepeat || attempt >= c.options.Attempts || c.now().Add(wait).After(deadline) {
			c.logger.LogAttrs(ctx, slog.LevelWarn, "noroshi request failed", attributes...)
			return failure
		}
		c.logger.LogAttrs(ctx, slog.LevelWarn, "noroshi request failed", append(attributes, slog.Duration("retry_in", wait))...)
		if err := c.sleep(ctx, wait); err != nil {
			return failure
		}
	}
}

// attempt sends a request once. It reports whether another attempt may help and does no harm.
func (c *Client) attempt(ctx context.Context, call *call, read func([]byte) error) (mayRepeat bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Timeout, fmt.Errorf("no answer after %v: %w", c.options.Timeout, context.DeadlineExceeded))
	defer cancel()
	address := *c.base
	address.RawPath = address.EscapedPath() + call.path
	if address.Path, err = url.PathUnescape(address.RawPath); err != nil {
		return false, err
	}
	address.RawQuery = call.query.Encode()
	request, err := http.NewRequestWithContext(ctx, call.method, address.String(), bytes.NewReader(call.body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Authorization", "Bearer "+c.options.Key)
	request.Header.Set("User-Agent", userAgent)
	if call.contentType != "" {
		request.Header.Set("Content-Type", call.contentType)
	}
	if call.accept != "" {
		request.Header.Set("Accept", call.accept)
	}
	if call.takesKey {
		request.Header.Set("Idempotency-Key", call.idempotencyKey)
	}
	traceparent := call.traceparent
	if traceparent == "" && c.options.Traceparent != nil {
		traceparent = c.options.Traceparent(ctx)
	}
	if traceparent != "" {
		request.Header.Set("Traceparent", traceparent)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return call.canRepeat || wasNotSent(err), err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return call.canRepeat, err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return mayHelp(response.StatusCode, call.canRepeat), errorOf(request, call.path, response, body, c.now())
	}
	if read != nil {
		if err := read(body); err != nil {
			return call.canRepeat, err
		}
	}
	return false, nil
}

// wasNotSent reports whether there was no connection.
func wasNotSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func mayHelp(status int, canRepeat bool) bool {
	switch status {
	case http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true // the service has not processed it
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return canRepeat
	}
	return false
}

// do sends JSON and reads JSON.
func do[Out any](ctx context.Context, c *Client, call *call, err error) (*Out, error) {
	if err != nil {
		return nil, err
	}
	var out Out
	if err := c.send(ctx, call, func(body []byte) error { return json.Unmarshal(body, &out) }); err != nil {
		return nil, err
	}
	return &out, nil
}

// get reads JSON.
func get[Out any](ctx context.Context, c *Client, query url.Values, path string, segments ...string) (*Out, error) {
	call, err := c.newCall(http.MethodGet, nil, path, segments, nil)
	if err == nil {
		call.query = query
	}
	return do[Out](ctx, c, call, err)
}

// put replaces something, and reads its new state.
func put[Out any](ctx context.Context, c *Client, in any, path string, segments ...string) (*Out, error) {
	call, err := c.newCall(http.MethodPut, in, path, segments, nil)
	return do[Out](ctx, c, call, err)
}

// patch sets fields to values; another attempt sets them again.
func patch[Out any](ctx context.Context, c *Client, in any, path string, segments ...string) (*Out, error) {
	call, err := c.newCall(http.MethodPatch, in, path, segments, []RequestOption{repeatable})
	return do[Out](ctx, c, call, err)
}

// post sends a request that is not repeated if the service may have processed it, unless an option says otherwise.
func post[Out any](ctx context.Context, c *Client, in any, options []RequestOption, path string, segments ...string) (*Out, error) {
	call, err := c.newCall(http.MethodPost, in, path, segments, options)
	return do[Out](ctx, c, call, err)
}

// act sends a request without an answer.
func (c *Client) act(ctx context.Context, method string, in any, query url.Values, path string, segments ...string) error {
	call, err := c.newCall(method, in, path, segments, nil)
	if err != nil {
		return err
	}
	call.query = query
	return c.send(ctx, call, nil)
}

// pages returns the entries of all pages from the one after the cursor on.
func pages[Page, Entry any](ctx context.Context, after string, list func(ctx context.Context, after string) (*Page, error), read func(*Page) ([]Entry, string)) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for next := after; ; {
			page, err := list(ctx, next)
			if err != nil {
				yield(*new(Entry), err)
				return
			}
			entries, cursor := read(page)
			for _, entry := range entries {
				if !yield(entry, nil) {
					return
				}
			}
			if cursor == "" {
				return
			}
			next = cursor
		}
	}
}
