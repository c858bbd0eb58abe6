package noroshi

import (
	"encoding/json"
	"testing"
	"time"
)

func TestFieldsThatAreNotSetAreAbsent(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{Notification{To: To{Topic: "news"}, Data: map[string]int{"n": 1}}, `{"to":{"topic":"news"},"data":{"n":1}}`},
		{Notification{To: To{Everyone: true}, TTL: "0s", Push: &Push{Mode: PushModeFallback, After: For(90 * time.Second)}},
			`{"to":{"everyone":true},"ttl":"0s","push":{"mode":"fallback","after":"90s"}}`},
		{Shown{Title: "T", Badge: 0, Mutable: new(false), Relevance: new(0.0)}, `{"title":"T","relevance":0,"badge":0,"mutable":false}`},
		{Shown{Sound: Sound{Name: "chime.caf", Critical: true}}, `{"sound":{"name":"chime.caf","critical":true}}`},
		{AppChange{}, `{}`},
		// No channels, which differs from the default.
		{Preferences{Channels: []PreferenceChannel{}}, `{"channels":[]}`},
		{To{Users: []string{}}, `{"users":[]}`},
		{AppChange{Issuer: Set("https://id.example.com"), Audience: Null[string]()}, `{"issuer":"https://id.example.com","audience":null}`},
		{ChannelChange{}, `{"topic":null}`},
		{CategoryPreference{Muted: new(false)}, `{"muted":false}`},
		{PushToken{Service: "fcm", Token: "t"}, `{"service":"fcm","token":"t"}`},
	} {
		text, err := json.Marshal(test.value)
		if err != nil {
			t.Error(err)
		}
		if string(text) != test.want {
			t.Errorf("%s, want %s", text, test.want)
		}
	}
}

func TestAnswersAreRead(t *testing.T) {
	var receipt Receipt
	if err := json.Unmarshal([]byte(`{"id": "n1", "targets": null, "later": 1}`), &receipt); err != nil || receipt.Targets != nil || receipt.ID != "n1" {
		t.Errorf("%+v %v", receipt, err)
	}
	var change AppChange
	if err := json.Unmarshal([]byte(`{"issuer": null, "audience": "a"}`), &change); err != nil {
		t.Error(err)
	}
	if _, ok := change.Issuer.Value(); ok || change.Issuer.IsZero() || !change.JWKSURL.IsZero() {
		t.Errorf("%+v", change)
	}
	if audience, ok := change.Audience.Value(); !ok || audience != "a" {
		t.Errorf("%+v", change)
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[Duration]time.Duration{"90s": 90 * time.Second, "5": 5 * time.Second, "1500ms": 1500 * time.Millisecond, "2m": 2 * time.Minute, "24h": 24 * time.Hour, "28d": 28 * 24 * time.Hour} {
		if got, err := text.Parse(); err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []Duration{"", "s", "-1s", "1.5s", "1w", "99999999999999d"} {
		if got, err := text.Parse(); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
	if For(0) != "0s" || For(1500*time.Millisecond) != "1500ms" || For(time.Hour) != "3600s" {
		t.Error("For")
	}
	var read Duration
	if err := json.Unmarshal([]byte("90"), &read); err != nil || read != "90s" {
		t.Errorf("%q %v", read, err)
	}
	if err := json.Unmarshal([]byte(`"24h"`), &read); err != nil || read != "24h" {
		t.Errorf("%q %v", read, err)
	}
	if json.Unmarshal([]byte("true"), &read) == nil {
		t.Error("true was read")
	}
}
