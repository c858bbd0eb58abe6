package noroshi

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Why a request is not a webhook of the service.
var (
	// ErrWebhookHeader: a header is missing, or is not what Standard Webhooks define.
	ErrWebhookHeader = errors.New("noroshi: not the headers of a webhook")
	// ErrWebhookTimestamp: the request was signed too long ago, or in the future. It may be a replay.
	ErrWebhookTimestamp = errors.New("noroshi: the timestamp of the webhook is out of tolerance")
	// ErrWebhookSignature: no signature is by one of the secrets.
	ErrWebhookSignature = errors.New("noroshi: the signature of the webhook is wrong")
)

const (
	secretPrefix = "whsec_"
	// WebhookTolerance is how far the timestamp of a webhook may be from the clock.
	WebhookTolerance = 5 * time.Minute
	// WebhookBodyMax is the largest body that [Webhook.Handler] reads.
	WebhookBodyMax = 16 << 20
)

// Webhook verifies requests that the service signs according to Standard Webhooks: the event log, topic rules, and providers behind
// webhooks. It is safe for concurrent use.
type Webhook struct{ secrets [][]byte }

// NewWebhook returns a verifier. A secret is whsec_ and 24 to 64 bytes in base64. While a secret is being replaced, pass both.
func NewWebhook(secrets ...string) (*Webhook, error) {
	if len(secrets) == 0 {
		return nil, errors.New("noroshi: a webhook needs a secret")
	}
	w := &Webhook{}
	for _, secret := range secrets {
		text, ok := strings.CutPrefix(secret, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, errors.New("noroshi: the secret of a webhook is whsec_ and 24 to 64 bytes in base64")
		}
		w.secrets = append(w.secrets, key)
	}
	return w, nil
}

// Verify returns nil if the request was signed with one of the secrets at about this time. It depends on nothing but its arguments.
// The header webhook-id is the same when the service repeats a request.
func (w *Webhook) Verify(header http.Header, body []byte, now time.Time) error {
	id, timestamp, signatures := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp"), header.Get("Webhook-Signature")
	if id == "" || timestamp == "" || signatures == "" {
		return ErrWebhookHeader
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: webhook-timestamp is not a number", ErrWebhookHeader)
	}
	// In seconds: no sum of an attacker's number overflows.
	if here := now.Unix(); seconds < here-int64(WebhookTolerance/time.Second) || seconds > here+int64(WebhookTolerance/time.Second) {
		return ErrWebhookTimestamp
	}
	isValid := false
	for _, secret := range w.secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		expected := mac.Sum(nil)
		for one := range strings.FieldsSeq(signatures) {
			text, ok := strings.CutPrefix(one, "v1,")
			signature, err := base64.StdEncoding.DecodeString(text)
			if ok && err == nil && hmac.Equal(signature, expected) { // constant time
				isValid = true
			}
		}
	}
	if !isValid {
		return ErrWebhookSignature
	}
	return nil
}

// Handler verifies requests before it passes them on, with a body that can be read again. It answers others with 401, bodies of more
// than [WebhookBodyMax] with 413, and methods other than POST with 405.
func (w *Webhook) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPost {
			response.Header().Set("Allow", http.MethodPost)
			http.Error(response, "a webhook is a POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, WebhookBodyMax))
		if err != nil {
			status := http.StatusBadRequest
			var tooLarge *http.MaxBytesError
			if errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(response, "the body cannot be read", status)
			return
		}
		if err := w.Verify(request.Header, body, time.Now()); err != nil {
			http.Error(response, err.Error(), http.StatusUnauthorized)
			return
		}
		verified := request.Clone(request.Context())
		verified.Body = io.NopCloser(bytes.NewReader(body))
		verified.ContentLength = int64(len(body))
		next.ServeHTTP(response, verified)
	})
}

// TopicQuestion is what the service asks the webhook of topic rules.
type TopicQuestion struct {
	App      string      `json:"app"`
	Device   string      `json:"device"`
	User     string      `json:"user"`
	Action   TopicAction `json:"action"`
	Topic    string      `json:"topic"`
	Protocol string      `json:"protocol"`
}

// TopicAnswer allows or denies.
type TopicAnswer struct {
	Allow bool `json:"allow"`
	// ExpiresIn is how long the service may remember the answer, at most a day. Default: that of the rules.
	ExpiresIn Duration `json:"expires_in,omitzero"`
}

// TopicHandler answers the questions of topic rules with ask. If ask fails, the answer is 500: the service denies the topic, and asks
// again at the next attempt. The logger gets the error; it may be nil.
func (w *Webhook) TopicHandler(ask func(context.Context, TopicQuestion) (TopicAnswer, error), logger *slog.Logger) http.Handler {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return w.Handler(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		var question TopicQuestion
		if err := json.NewDecoder(request.Body).Decode(&question); err != nil {
			http.Error(response, "the body is not JSON", http.StatusBadRequest)
			return
		}
		answer, err := ask(request.Context(), question)
		if err != nil {
			logger.ErrorContext(request.Context(), "noroshi: no answer about a topic", "topic", question.Topic, "device", question.Device, "error", err)
			http.Error(response, "no answer", http.StatusInternalServerError)
			return
		}
		response.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(response).Encode(answer) // the service has gone
	}))
}
