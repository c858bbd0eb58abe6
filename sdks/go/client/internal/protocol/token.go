package protocol

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

const tokenTimeout = 30 * time.Second

// tokens asks the application for tokens: one request at a time, a new token before the old one expires or after a rejection.
type tokens struct {
	m *Machine
	// "" if there is none.
	current string
	// When to ask for the next token; zero: never.
	renewAt  time.Time
	reason   string
	previous string
	n        int
	isAsking bool
	waiting  []func(token string, err *Error)
}

// take calls done with the current token, or with a new one.
func (t *tokens) take(done func(string, *Error)) {
	if t.current != "" {
		done(t.current, nil)
		return
	}
	t.ask(done)
}

// renew calls done with a new token. The current one stays in use until then.
func (t *tokens) renew(done func(string, *Error)) {
	if t.current != "" {
		t.reason, t.previous = "expiring", t.current
	}
	t.ask(done)
}

// reject drops the token, if it is still the current one.
func (t *tokens) reject(token string) {
	if token == "" || token != t.current {
		return
	}
	t.reason, t.previous, t.current, t.renewAt = "rejected", token, "", time.Time{}
}

func (t *tokens) ask(done func(string, *Error)) {
	t.waiting = append(t.waiting, done)
	if t.isAsking { // T2
		return
	}
	t.n++
	t.isAsking = true
	t.m.do(AskToken{t.n, t.reason, t.previous})
	t.m.timers.set(timerToken, t.m.now.Add(tokenTimeout), func() {
		t.m.do(CancelToken{t.n})
		t.settle("", &Error{Code: "token_failed", Message: "no token after 30 s"})
	})
}

func (t *tokens) settle(token string, err *Error) {
	t.isAsking = false
	t.m.timers.clear(timerToken)
	waiting := t.waiting
	t.waiting = nil
	if err == nil {
		switch token {
		case "":
			err = &Error{Code: "token_failed", Message: "the application returned an empty token"}
		case t.previous: // T3
			err = &Error{Code: "token_failed", Message: "the application returned the previous token"}
		default:
			t.current = token
			t.renewAt = t.renewal(token)
		}
	}
	for _, done := range waiting {
		done(token, err)
	}
}

// TokenArrived is the answer to AskToken. isSignedOut: nobody is signed in.
func (m *Machine) TokenArrived(now time.Time, n int, token string, isSignedOut bool, cause error) {
	m.input(now, func() {
		if !m.tokens.isAsking || n != m.tokens.n {
			return
		}
		switch {
		case isSignedOut:
			m.tokens.settle("", &Error{Code: reasonSignedOut, Message: "nobody is signed in", Cause: cause})
		case cause != nil:
			m.tokens.settle("", &Error{Code: "token_failed", Message: "no token: " + cause.Error(), Cause: cause})
		default:
			m.tokens.settle(token, nil)
		}
	})
}

// renewal is the time at which the next token is requested (T4, K1 to K3).
func (t *tokens) renewal(token string) time.Time {
	exp, iat, ok := claims(token)
	if !ok { // T8
		return time.Time{}
	}
	here := float64(t.m.now.UnixMilli())
	issued := here
	if iat != nil {
		issued = *iat * 1000
	}
	lifetime := exp*1000 - issued
	left := exp*1000 - here
	if here < issued || here >= exp*1000 { // K2: the clock contradicts a token that the application has just obtained
		left = lifetime
	}
	if left <= 0 { // K3
		return time.Time{}
	}
	margin := min(60_000, left/5)
	wait := max(left-margin*(1+t.m.random()/2), min(1_000, left/2))
	// Longer than any process; a larger number has no time.Duration.
	wait = min(wait, 100*365*24*60*60*1000)
	return t.m.now.Add(time.Duration(wait * float64(time.Millisecond)))
}

// claims reads exp and iat of a JWT. It reports false without exp, and for other tokens.
func claims(token string) (exp float64, iat *float64, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) < 2 {
		return 0, nil, false
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return 0, nil, false
	}
	var body struct {
		Exp *float64 `json:"exp"`
		Iat *float64 `json:"iat"`
	}
	if json.Unmarshal(text, &body) != nil || body.Exp == nil {
		return 0, nil, false
	}
	return *body.Exp, body.Iat, true
}
