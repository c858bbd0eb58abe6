package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
)

// ErrSignedOut is what [Options.Token] returns if nobody is signed in. The client then stays closed.
var ErrSignedOut = errors.New("noroshi: nobody is signed in")

// Codes of this package. The other codes are those of the service: of problem documents, and of error frames (docs/native.md). The
// package uses one of them too: [CodeBadTopic] says that server-sent events cannot carry a topic, whose name has a comma; the client
// subscribes to it when it has a WebSocket.
const (
	// CodeTokenFailed: [Options.Token] failed, or took longer than 30 seconds.
	CodeTokenFailed Code = "token_failed"
	// CodeSignedOut: [Options.Token] returned [ErrSignedOut].
	CodeSignedOut Code = "signed_out"
	// CodeNetwork: a request found no server, or broke.
	CodeNetwork Code = "network"
	// CodeTimeout: a request took longer than 30 seconds.
	CodeTimeout Code = "timeout"
	// CodeBadFrame: the service sent something that is not a frame of the protocol.
	CodeBadFrame Code = "bad_frame"
	// CodeListenerFailed: a handler of messages returned an error. The message arrives again in the next session.
	CodeListenerFailed Code = "listener_failed"
	// CodeQueueFull: a bounded queue is full.
	CodeQueueFull Code = "queue_full"
	// CodeStorageFailed: [Options.Reports] failed.
	CodeStorageFailed Code = "storage_failed"
)

// Error is every error of this package, except those of a context.
//
//	var failed *client.Error
//	if errors.As(err, &failed) && failed.Code == client.CodeTooManyRequests { … }
type Error struct {
	// Code is stable. Texts are not.
	Code    Code
	Message string
	// Topic and Reason are set for an error about one topic.
	Topic, Reason string
	// Status is the HTTP status of a problem document, or 0.
	Status int
	// Field is the wrong field or parameter of a request.
	Field string
	// RequestID identifies the request in the logs of the service.
	RequestID string
	// RetryAfter is the time to wait before another attempt, if the service stated it.
	RetryAfter time.Duration
	cause      error
}

// Error implements error.
func (e *Error) Error() string {
	if e.RequestID != "" {
		return fmt.Sprintf("noroshi: %s: %s (request %s)", e.Code, e.Message, e.RequestID)
	}
	return fmt.Sprintf("noroshi: %s: %s", e.Code, e.Message)
}

// Unwrap returns the cause, such as the error of a handler.
func (e *Error) Unwrap() error { return e.cause }

func errorOf(err *protocol.Error) *Error {
	return &Error{
		Code: Code(err.Code), Message: err.Message, Topic: err.Topic, Reason: err.Reason, Status: err.Status, Field: err.Field,
		RequestID: err.RequestID, RetryAfter: err.RetryAfter, cause: err.Cause,
	}
}
