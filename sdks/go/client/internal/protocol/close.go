package protocol

// Reasons of the client.
const (
	reasonLost      = "connection_lost"
	reasonClosed    = "closed"
	reasonSignedOut = "signed_out"
	reasonQueueFull = "queue_full"
)

var closeReasons = [...]string{
	"drain", "replaced", "expired", "revoked", "unauthorized", "auth_timeout", "ping_timeout", "slow_consumer", "rate_limited",
	"bad_message", "overloaded", "internal", "quota_exceeded", "rules_changed",
}

// reasonOf is the reason that a WebSocket close code stands for, or "".
func reasonOf(code int) string {
	switch {
	case code == 1002:
		return "protocol_error"
	case code == 1007:
		return "invalid_utf8"
	case code == 1009:
		return "too_big"
	case code >= 4000 && code < 4000+len(closeReasons):
		return closeReasons[code-4000]
	}
	return ""
}

// rejectsToken reports whether a connection that ended for this reason needs another token (C3).
func rejectsToken(reason string) bool {
	return reason == "expired" || reason == "revoked" || reason == "unauthorized"
}
