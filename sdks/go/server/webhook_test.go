package noroshi

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The example of Standard Webhooks.
const (
	exampleSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleBody      = `{"test": 2432232314}`
	exampleID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	exampleTime      = 1_614_265_330
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	otherSecret      = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
)

func exampleHeader(change ...string) http.Header {
	header := http.Header{}
	header.Set("webhook-id", exampleID)
	header.Set("webhook-timestamp", strconv.Itoa(exampleTime))
	header.Set("webhook-signature", exampleSignature)
	for n := 0; n < len(change); n += 2 {
		header.Set(change[n], change[n+1])
	}
	return header
}

func TestWebhookVerify(t *testing.T) {
	now := time.Unix(exampleTime, 0)
	for name, test := range map[string]struct {
		secrets []string
		header  http.Header
		body    string
		now     time.Time
		want    error
	}{
		"the example":                  {nil, exampleHeader(), exampleBody, now, nil},
		"four minutes late":            {nil, exampleHeader(), exampleBody, now.Add(4 * time.Minute), nil},
		"exactly five minutes late":    {nil, exampleHeader(), exampleBody, now.Add(5 * time.Minute), nil},
		"too late":                     {nil, exampleHeader(), exampleBody, now.Add(5*time.Minute + time.Second), ErrWebhookTimestamp},
		"from the future":              {nil, exampleHeader(), exampleBody, now.Add(-5*time.Minute - time.Second), ErrWebhookTimestamp},
		"another body":                 {nil, exampleHeader(), exampleBody + " ", now, ErrWebhookSignature},
		"another id":                   {nil, exampleHeader("webhook-id", "msg_2"), exampleBody, now, ErrWebhookSignature},
		"another time":                 {nil, exampleHeader("webhook-timestamp", strconv.Itoa(exampleTime+1)), exampleBody, now, ErrWebhookSignature},
		"another secret":               {[]string{otherSecret}, exampleHeader(), exampleBody, now, ErrWebhookSignature},
		"the new secret is second":     {[]string{otherSecret, exampleSecret}, exampleHeader(), exampleBody, now, nil},
		"the valid signature is third": {nil, exampleHeader("webhook-signature", "v1a,x v1,AAAA "+exampleSignature), exampleBody, now, nil},
		"another version":              {nil, exampleHeader("webhook-signature", strings.Replace(exampleSignature, "v1", "v2", 1)), exampleBody, now, ErrWebhookSignature},
		"a part of the signature":      {nil, exampleHeader("webhook-signature", "v1,g0hM"), exampleBody, now, ErrWebhookSignature},
		"an empty signature":           {nil, exampleHeader("webhook-signature", "v1,"), exampleBody, now, ErrWebhookSignature},
		"no header":                    {nil, http.Header{}, exampleBody, now, ErrWebhookHeader},
		"no id":                        {nil, exampleHeader("webhook-id", ""), exampleBody, now, ErrWebhookHeader},
		"a time that is no number":     {nil, exampleHeader("webhook-timestamp", "now"), exampleBody, now, ErrWebhookHeader},
		"a time that overflows":        {nil, exampleHeader("webhook-timestamp", "-9223372036854775808"), exampleBody, now, ErrWebhookTimestamp},
	} {
		if test.secrets == nil {
			test.secrets = []string{exampleSecret}
		}
		webhook, err := NewWebhook(test.secrets...)
		if err != nil {
			t.Fatal(err)
		}
		if err := webhook.Verify(test.header, []byte(test.body), test.now); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWebhookSecrets(t *testing.T) {
	for _, secrets := range [][]string{{}, {""}, {"whsec_"}, {"whsec_!"}, {strings.TrimPrefix(exampleSecret, "whsec_")}, {"whsec_AAAA"}, {exampleSecret, "x"}} {
		if _, err := NewWebhook(secrets...); err == nil {
			t.Errorf("%q was accepted", secrets)
		}
	}
}

func signed(t *testing.T, body []byte, at time.Time) *http.Request {
	t.Helper()
	request := httptest.NewRequest(http.MethodPost, "/hook", bytes.NewReader(body))
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(exampleSecret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("id." + timestamp + "."))
	mac.Write(body)
	request.Header.Set("webhook-id", "id")
	request.Header.Set("webhook-timestamp", timestamp)
	request.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return request
}

func TestWebhookHandler(t *testing.T) {
	webhook, err := NewWebhook(exampleSecret)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	handler := webhook.Handler(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		seen = append(seen, string(body))
		response.WriteHeader(http.StatusNoContent)
	}))
	get := httptest.NewRequest(http.MethodGet, "/hook", nil)
	forged := signed(t, []byte("a"), time.Now())
	forged.Body = io.NopCloser(strings.NewReader("b"))
	for _, test := range []struct {
		request *http.Request
		want    int
	}{
		{signed(t, []byte("a"), time.Now()), 204},
		{signed(t, nil, time.Now()), 204},
		{signed(t, []byte("old"), time.Now().Add(-time.Hour)), 401},
		{signed(t, make([]byte, WebhookBodyMax), time.Now()), 204},
		{signed(t, make([]byte, WebhookBodyMax+1), time.Now()), 413},
		{forged, 401},
		{get, 405},
	} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, test.request)
		if response.Code != test.want {
			t.Errorf("%d instead of %d: %s", response.Code, test.want, response.Body)
		}
	}
	if len(seen) != 3 || seen[0] != "a" || seen[1] != "" {
		t.Errorf("%d bodies passed", len(seen))
	}
}

func TestTopicHandler(t *testing.T) {
	webhook, err := NewWebhook(exampleSecret)
	if err != nil {
		t.Fatal(err)
	}
	var asked TopicQuestion
	answer, failure := TopicAnswer{Allow: true, ExpiresIn: "5m"}, error(nil)
	handler := webhook.TopicHandler(func(_ context.Context, q TopicQuestion) (TopicAnswer, error) {
		asked = q
		return answer, failure
	}, nil)
	body := []byte(`{"app": "shop", "device": "d1", "user": "u1", "action": "subscribe", "topic": "room/7", "protocol": "native"}`)
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, signed(t, body, time.Now()))
	if want := (TopicQuestion{"shop", "d1", "u1", TopicActionSubscribe, "room/7", "native"}); asked != want {
		t.Errorf("%+v", asked)
	}
	if got := strings.TrimSpace(response.Body.String()); response.Code != 200 || got != `{"allow":true,"expires_in":"5m"}` {
		t.Errorf("%d %s", response.Code, got)
	}
	answer = TopicAnswer{}
	response = httptest.NewRecorder()
	handler.ServeHTTP(response, signed(t, body, time.Now()))
	if got := strings.TrimSpace(response.Body.String()); got != `{"allow":false}` {
		t.Error(got)
	}
	failure = errors.New("the database is away")
	response = httptest.NewRecorder()
	handler.ServeHTTP(response, signed(t, body, time.Now()))
	if response.Code != 500 || strings.Contains(response.Body.String(), "database") {
		t.Errorf("%d %s", response.Code, response.Body)
	}
	response = httptest.NewRecorder()
	handler.ServeHTTP(response, signed(t, []byte("{"), time.Now()))
	if response.Code != 400 {
		t.Errorf("%d", response.Code)
	}
}
