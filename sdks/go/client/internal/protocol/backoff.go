package protocol

import (
	"math"
	"time"
)

// Backoff is half a second, doubled after each failure up to 30 s; the second half of it is random (B1).
func Backoff(failures int, random float64) time.Duration {
	ms := math.Min(30_000, 500*math.Pow(2, float64(failures)))
	return time.Duration(math.Round(ms*(0.5+random/2))) * time.Millisecond
}
