package protocol

import (
	"encoding/json"
	"time"
)

// Effect is something that the caller carries out.
type Effect interface{ effect() }

// Transport names a way to connect.
type Transport string

// The transports.
const (
	WebSocket Transport = "websocket"
	SSE       Transport = "sse"
)

type (
	// Dial opens a connection. Opened, Frame, Heard and Ended report what happens to it.
	Dial struct {
		Attempt   int
		Transport Transport
		App       string
		// Of SSE, whose request has the token, the topics, and the last handled message.
		Token       string
		Topics      []string
		LastEventID string
	}

	// Send writes a frame to the open WebSocket.
	Send struct {
		Attempt int
		Frame   []byte
	}

	// Hangup ends a connection; nothing is reported about it any more.
	Hangup struct{ Attempt int }

	// AskToken asks the application for a token. TokenArrived has the answer.
	AskToken struct {
		N        int
		Reason   string
		Previous string
	}

	// CancelToken ends a request for a token.
	CancelToken struct{ N int }

	// Request is an HTTP request. Answered has the answer.
	Request struct {
		N           int
		Method      string
		Path        string
		Query       map[string]string
		IfNoneMatch string
		Token       string
		// JSON, or nil.
		Body []byte
	}

	// Pass hands a message to the application. Settled has the result. The machine passes one message at a time.
	Pass struct{ Message Message }

	// StateChanged reports another state to the application, as the following effects report other events.
	StateChanged struct{ State State }

	// Recovered reports the end of a recovery.
	Recovered struct {
		Topic string
		// Nil: unknown.
		Complete *bool
	}

	// Denied reports the end of a subscription.
	Denied struct{ Topic, Code, Reason string }

	// ItemsChanged is the frame items.
	ItemsChanged struct {
		Event      string           `json:"event"`
		IDs        []string         `json:"ids"`
		More       bool             `json:"more"`
		Unread     int64            `json:"unread"`
		Categories map[string]int64 `json:"categories"`
	}

	// UnreadChanged reports other counts of unread items.
	UnreadChanged struct{ Counts Counts }

	// Failed reports an error that no call returns.
	Failed struct{ Err *Error }

	// Keep stores the reports that wait, for the next process.
	Keep struct{ IDs []string }
)

func (Dial) effect()          {}
func (Send) effect()          {}
func (Hangup) effect()        {}
func (AskToken) effect()      {}
func (CancelToken) effect()   {}
func (Request) effect()       {}
func (Pass) effect()          {}
func (StateChanged) effect()  {}
func (Recovered) effect()     {}
func (Denied) effect()        {}
func (ItemsChanged) effect()  {}
func (UnreadChanged) effect() {}
func (Failed) effect()        {}
func (Keep) effect()          {}

// State is the state of the client.
type State struct {
	// idle, connecting, connected, waiting or closed.
	Name string
	// waiting, closed: why the last connection ended.
	Reason string
	// waiting: until the next attempt, if HasRetry.
	RetryIn  time.Duration
	HasRetry bool
	// connected.
	Transport Transport
	Device    string
}

// Message is the frame msg.
type Message struct {
	ID           string          `json:"id"`
	Topic        string          `json:"topic"`
	Epoch        string          `json:"epoch"`
	Offset       *int64          `json:"offset"`
	Ack          bool            `json:"ack"`
	SentAt       string          `json:"sent_at"`
	Notification json.RawMessage `json:"notification"`
	Data         json.RawMessage `json:"data"`
}

// Counts are numbers of unread items.
type Counts struct {
	Unread     int64            `json:"unread"`
	Categories map[string]int64 `json:"categories"`
}

// Error has a stable code: of this library, of an error frame, or of a problem document.
type Error struct {
	Code    string
	Message string
	// Of an error about one topic.
	Topic, Reason string
	// Of a problem document.
	Status     int
	Field      string
	RequestID  string
	RetryAfter time.Duration
	// Whether the answer had Retry-After.
	HasRetryAfter bool
	Cause         error
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
