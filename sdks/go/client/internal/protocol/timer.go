package protocol

import "time"

type timerID int

const (
	timerRetry timerID = iota
	timerConnect
	timerPong
	timerBeat
	timerRenew
	timerWebSocket
	timerFlush
	timerIdle
	timerToken
	timerOpened
	timerExposures
	timerAcks
	timerPresence
	timerRepeat
	timerCount
)

type timer struct {
	at    time.Time
	order int
	fire  func()
}

type timers struct {
	all   [timerCount]timer
	order int
}

func (t *timers) set(id timerID, at time.Time, fire func()) {
	t.order++
	t.all[id] = timer{at, t.order, fire}
}

func (t *timers) clear(ids ...timerID) {
	for _, id := range ids {
		t.all[id] = timer{}
	}
}

func (t *timers) isSet(id timerID) bool { return t.all[id].fire != nil }

// next is the timer that is due first.
func (t *timers) next() (timerID, bool) {
	first, found := timerID(0), false
	for id, one := range t.all {
		if one.fire == nil {
			continue
		}
		best := t.all[first]
		if !found || one.at.Before(best.at) || one.at.Equal(best.at) && one.order < best.order {
			first, found = timerID(id), true
		}
	}
	return first, found
}
