package noroshi

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a duration as the API writes it: a number and one of the units ms, s, m, h and d, such as "90s" or "24h". Write it as a
// constant, or convert with [For]. The zero value is absent: the service takes its default.
type Duration string

// For converts a duration; parts of a millisecond are dropped.
func For(d time.Duration) Duration {
	if d%time.Second == 0 {
		return Duration(strconv.FormatInt(int64(d/time.Second), 10) + "s")
	}
	return Duration(strconv.FormatInt(d.Milliseconds(), 10) + "ms")
}

var units = []struct {
	suffix string
	unit   time.Duration
}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// Parse returns the duration. A number without a unit has seconds.
func (d Duration) Parse() (time.Duration, error) {
	number, unit := string(d), time.Second
	for _, one := range units {
		if rest, ok := strings.CutSuffix(string(d), one.suffix); ok {
			number, unit = rest, one.unit
			break
		}
	}
	count, err := strconv.ParseUint(number, 10, 63)
	if err != nil || count > uint64((1<<63-1)/unit) {
		return 0, fmt.Errorf("noroshi: %q is not a duration", string(d))
	}
	return time.Duration(count) * unit, nil
}

// UnmarshalJSON implements [json.Unmarshaler]. The API also accepts whole seconds.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var seconds uint64
	if json.Unmarshal(data, &seconds) == nil {
		*d = Duration(strconv.FormatUint(seconds, 10) + "s")
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*d = Duration(text)
	return nil
}
