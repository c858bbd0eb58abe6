package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
	"github.com/noroshi/noroshi/sdks/go/internal/retryafter"
)

const (
	requestTimeout = 30 * time.Second
	// A larger answer is not from the service.
	answerMax = 64 << 20
)

// request sends a request of the machine, which repeats it if need be.
func (c *Client) request(ctx context.Context, e protocol.Request) {
	response := c.roundTrip(ctx, e)
	c.input(func(m *protocol.Machine, now time.Time) {
		m.Answered(now, e.N, response)
	})
}

func (c *Client) roundTrip(ctx context.Context, e protocol.Request) protocol.Response {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	failed := func(cause error) protocol.Response {
		err := &protocol.Error{Code: string(CodeNetwork), Message: fmt.Sprintf("%s %s: %v", e.Method, e.Path, cause), Cause: cause}
		if errors.Is(cause, context.DeadlineExceeded) {
			err.Code = string(CodeTimeout)
		}
		return protocol.Response{Err: err}
	}
	query := map[string]string{"app": c.options.App}
	for name, value := range e.Query {
		query[name] = value
	}
	var body io.Reader
	if e.Body != nil {
		body = bytes.NewReader(e.Body)
	}
	request, err := http.NewRequestWithContext(ctx, e.Method, c.address(e.Path, query).String(), body)
	if err != nil {
		return failed(err)
	}
	request.Header.Set("Authorization", "Bearer "+e.Token)
	if e.Body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if e.IfNoneMatch != "" {
		request.Header.Set("If-None-Match", e.IfNoneMatch)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax+1))
	if err != nil {
		return failed(err)
	}
	if len(text) > answerMax {
		return failed(errors.New("the answer is too large"))
	}
	result := protocol.Response{
		Status: response.StatusCode, ETag: response.Header.Get("ETag"), RequestID: response.Header.Get("X-Request-Id"), Body: text,
	}
	result.RetryAfter, result.HasRetryAfter = retryafter.Parse(response.Header.Get("Retry-After"), c.clock.Now())
	return result
}

// await begins a call of the machine, which gets a function for its result, and waits for it.
func await[T any](ctx context.Context, c *Client, begin func(m *protocol.Machine, now time.Time, done func(T, *protocol.Error)) int) (T, error) {
	type result struct {
		value T
		err   *protocol.Error
	}
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, context.Cause(ctx)
	}
	results := make(chan result, 1)
	n := 0
	c.mu.Lock()
	handle := func(m *protocol.Machine, now time.Time) {
		n = begin(m, now, func(value T, err *protocol.Error) { results <- result{value, err} })
		if n != 0 {
			c.callContexts[n] = ctx
		}
	}
	c.locked(handle)
	c.mu.Unlock()
	select {
	case r := <-results:
		c.input(func(*protocol.Machine, time.Time) { delete(c.callContexts, n) })
		if r.err == nil {
			return r.value, nil
		}
		if ctx.Err() != nil {
			return zero, context.Cause(ctx)
		}
		return zero, errorOf(r.err)
	case <-ctx.Done():
		c.input(func(m *protocol.Machine, _ time.Time) {
			m.Cancel(n)
			delete(c.callContexts, n)
		})
		return zero, context.Cause(ctx)
	}
}

// do sends a request, and reads the answer into out unless it is nil.
func (c *Client) do(ctx context.Context, method, path string, query map[string]string, in, out any) error {
	call := protocol.Call{Method: method, Path: path, Query: query}
	if in != nil {
		var err error
		if call.Body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("noroshi: %s %s: %w", method, path, err)
		}
	}
	answer, err := await(ctx, c, func(m *protocol.Machine, now time.Time, done func(protocol.Answer, *protocol.Error)) int {
		return m.Request(now, call, done)
	})
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(answer.Body, out); err != nil {
		return &Error{Code: CodeNetwork, Message: fmt.Sprintf("%s %s: the answer is not what was expected: %v", method, path, err), cause: err}
	}
	return nil
}

func get[T any](ctx context.Context, c *Client, path string, query map[string]string) (*T, error) {
	var out T
	if err := c.do(ctx, http.MethodGet, path, query, nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

func segment(text string) string { return url.PathEscape(text) }
