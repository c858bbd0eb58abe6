package noroshi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/noroshi/noroshi/sdks/go/internal/retryafter"
)

// Error is an answer that is not a success: a problem document (RFC 9457).
type Error struct {
	// Status is the HTTP status. In a line of a batch it is the status that the line would have had as a request.
	Status int
	// Code is stable. Texts are not. An answer that is not from Noroshi, such as that of a proxy, has the code http_STATUS.
	Code   Code
	Title  string
	Detail string
	// Field is the path of the wrong field, or the name of the wrong parameter.
	Field string
	// RequestID identifies the request in the logs of the service.
	RequestID string
	// RetryAfter is the time to wait before another attempt, if the service stated it.
	RetryAfter time.Duration
	// Method and Path are those of the request.
	Method, Path string
	// Attempts is how many requests were sent. It is 0 for a line of a batch.
	Attempts int
}

// Error implements error.
func (e *Error) Error() string {
	text := fmt.Sprintf("noroshi: %s %s: %d %s", e.Method, e.Path, e.Status, e.Code)
	if e.Detail != "" {
		text += ": " + e.Detail
	} else if e.Title != "" {
		text += ": " + e.Title
	}
	if e.Field != "" {
		text += " (field " + e.Field + ")"
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// NetworkError is a request that got no answer, or one that is not what the API promises. The service may have processed it.
type NetworkError struct {
	Method, Path string
	Attempts     int
	Err          error
}

// Error implements error.
func (e *NetworkError) Error() string {
	return fmt.Sprintf("noroshi: %s %s: no usable answer in %d attempts: %v", e.Method, e.Path, e.Attempts, e.Err)
}

// Unwrap returns the cause.
func (e *NetworkError) Unwrap() error { return e.Err }

type problem struct {
	Status int    `json:"status"`
	Code   Code   `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
}

func (p problem) error(method, path string) *Error {
	return &Error{Status: p.Status, Code: p.Code, Title: p.Title, Detail: p.Detail, Field: p.Field, Method: method, Path: path}
}

func errorOf(request *http.Request, path string, response *http.Response, body []byte, now time.Time) *Error {
	var read problem
	_ = json.Unmarshal(body, &read) // a proxy's page is none
	err := read.error(request.Method, path)
	err.Status = response.StatusCode
	if err.Code == "" {
		err.Code = Code("http_" + strconv.Itoa(response.StatusCode))
	}
	err.RequestID = response.Header.Get("X-Request-Id")
	err.RetryAfter, _ = retryafter.Parse(response.Header.Get("Retry-After"), now)
	return err
}
