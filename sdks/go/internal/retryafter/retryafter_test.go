package retryafter

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"0", 0, true},
		{"9", 9 * time.Second, true},
		{"7200", time.Hour, true},
		{"99999999999999999999", 0, false},
		{"18446744073709551615", time.Hour, true},
		{"Thu, 01 Jan 2026 00:00:30 GMT", 30 * time.Second, true},
		{"Wed, 31 Dec 2025 00:00:30 GMT", 0, true},
		{"Fri, 01 Jan 2027 00:00:00 GMT", time.Hour, true},
		{"", 0, false},
		{"-1", 0, false},
		{"soon", 0, false},
	} {
		got, ok := Parse(test.text, now)
		if got != test.want || ok != test.ok {
			t.Errorf("Parse(%q) = %v, %v; want %v, %v", test.text, got, ok, test.want, test.ok)
		}
	}
}
