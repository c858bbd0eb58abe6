package client

import (
	"fmt"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
)

// Status is what the client does.
type Status string

const (
	// StatusIdle: not started.
	StatusIdle Status = "idle"
	// StatusConnecting: until the service accepts the log-in.
	StatusConnecting Status = "connecting"
	// StatusConnected: in a session.
	StatusConnected Status = "connected"
	// StatusWaiting: until the next attempt.
	StatusWaiting Status = "waiting"
	// StatusClosed: ended, until the next Connect or Run.
	StatusClosed Status = "closed"
)

// Transport is a way to connect.
type Transport string

const (
	// WebSocket carries frames in both directions.
	WebSocket Transport = "websocket"
	// SSE is a stream of server-sent events; what the client sends takes requests.
	SSE Transport = "sse"
)

// Reason is why a connection ended: docs/close-reasons.md, or one of this package. A later version of the service may add reasons.
type Reason string

const (
	ReasonDrain         Reason = "drain"
	ReasonReplaced      Reason = "replaced"
	ReasonExpired       Reason = "expired"
	ReasonRevoked       Reason = "revoked"
	ReasonUnauthorized  Reason = "unauthorized"
	ReasonAuthTimeout   Reason = "auth_timeout"
	ReasonPingTimeout   Reason = "ping_timeout"
	ReasonSlowConsumer  Reason = "slow_consumer"
	ReasonRateLimited   Reason = "rate_limited"
	ReasonBadMessage    Reason = "bad_message"
	ReasonOverloaded    Reason = "overloaded"
	ReasonInternal      Reason = "internal"
	ReasonQuotaExceeded Reason = "quota_exceeded"
	ReasonRulesChanged  Reason = "rules_changed"
	ReasonProtocolError Reason = "protocol_error"
	ReasonInvalidUTF8   Reason = "invalid_utf8"
	ReasonTooBig        Reason = "too_big"
	// ReasonConnectionLost: the connection ended without a reason, or never began.
	ReasonConnectionLost Reason = "connection_lost"
	// ReasonClosed: the application called Close, or the context of Run ended.
	ReasonClosed Reason = "closed"
	// ReasonSignedOut: [Options.Token] returned [ErrSignedOut].
	ReasonSignedOut Reason = "signed_out"
	// ReasonQueueFull: the application handles messages more slowly than they arrive.
	ReasonQueueFull Reason = "queue_full"
)

// State is the state of a client.
type State struct {
	Status Status
	// Reason says why the last connection ended: waiting and closed.
	Reason Reason
	// RetryIn is the time until the next attempt: waiting. It is 0 while the application catches up.
	RetryIn time.Duration
	// Transport is set when connected.
	Transport Transport
	// Device is the id of the device: connected by WebSocket.
	Device string
}

// String is for logs.
func (s State) String() string {
	switch {
	case s.Status == StatusConnected:
		return fmt.Sprintf("%s (%s)", s.Status, s.Transport)
	case s.Status == StatusWaiting:
		return fmt.Sprintf("%s %v (%s)", s.Status, s.RetryIn, s.Reason)
	case s.Reason != "":
		return fmt.Sprintf("%s (%s)", s.Status, s.Reason)
	}
	return string(s.Status)
}

func stateOf(s protocol.State) State {
	return State{Status: Status(s.Name), Reason: Reason(s.Reason), RetryIn: s.RetryIn, Transport: Transport(s.Transport), Device: s.Device}
}

// Recovered says that everything that was missed on a topic has arrived, if Completeness is Complete.
type Recovered struct {
	Topic        string
	Completeness Completeness
}

// Completeness says whether messages of a topic are missing after a reconnection.
type Completeness int

const (
	// Incomplete: messages are missing. Read the current state from your own backend.
	Incomplete Completeness = iota
	// Complete: no message is missing.
	Complete
	// Unknown: the service did not report it (server-sent events). Treat it as Incomplete.
	Unknown
)

// Denied says that a subscription was refused, or ended because topic rules changed. It is not tried again.
type Denied struct {
	Topic  string
	Code   Code
	Reason string
}

// ItemsEvent says that items of the user's notification centre changed.
type ItemsEvent struct {
	// Event is added, read, unread, archived, unarchived or deleted.
	Event string
	// IDs are at most 100.
	IDs []string
	// More: other items changed too. List them again.
	More bool
	// Counts are the unread items afterwards.
	Counts ItemCounts
}

func countsOf(c protocol.Counts) ItemCounts {
	return ItemCounts{Unread: c.Unread, Categories: c.Categories}
}
