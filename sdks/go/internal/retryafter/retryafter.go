// Package retryafter reads the header Retry-After.
package retryafter

import (
	"net/http"
	"strconv"
	"time"
)

// Max is the longest time that counts.
const Max = time.Hour

// Parse reads seconds or a date (RFC 9110 §10.2.3). It reports false for anything else.
func Parse(text string, now time.Time) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		if seconds > uint64(Max/time.Second) {
			return Max, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), Max), true
}
