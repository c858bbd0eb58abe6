package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The package does no input or output, starts no goroutine and reads no clock.
func TestThePackageIsPure(t *testing.T) {
	allowed := map[string]bool{"bytes": true, "container/list": true, "encoding/base64": true, "encoding/json": true, "fmt": true, "maps": true, "math": true, "slices": true, "strconv": true, "strings": true, "time": true}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range file.Imports {
			if !allowed[strings.Trim(one.Path.Value, `"`)] {
				t.Errorf("%s imports %s", name, one.Path.Value)
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt:
				t.Errorf("%s: %T", name, n)
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "time" {
					switch n.Sel.Name {
					case "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick":
						t.Errorf("%s: time.%s", name, n.Sel.Name)
					}
				}
			}
			return true
		})
	}
}

// Random sequences of inputs never break what the caller relies on.
func TestRandomInputs(t *testing.T) {
	frames := []string{
		`{"t":"ready","device":"d","ping_s":3}`, `{"t":"ready"}`, `{"t":"ready","ping_s":0.0000000001}`, `{"t":"pong"}`, `{"t":"msg","id":"%d","ack":true}`, `{"t":"msg","id":"%d","topic":"a","epoch":"e","offset":%d,"ack":true}`,
		`{"t":"msg","id":"%d","topic":"b","epoch":"f","offset":1}`, `{"t":"recovered","topic":"a","complete":true}`, `{"t":"error","code":"topic_forbidden","topic":"a"}`,
		`{"t":"error","code":"expired"}`, `{"t":"error","code":"rate_limited"}`, `{"t":"close","reason":"drain","reconnect":true,"after_ms":10}`, `{"t":"close","reason":"revoked","reconnect":false}`,
		`{"t":"items","event":"added","ids":["i"],"unread":%d,"categories":{}}`, `{"t":"msg"}`, `[]`, `null`, `{`, `{"t":1}`, `{"t":"msg","id":"x","offset":"y"}`,
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		now := time.Unix(1_767_225_600, 0)
		transports := [][]Transport{{WebSocket, SSE}, {WebSocket}, {SSE}}[random.IntN(3)]
		m := New(Config{Transports: transports, Random: random.Float64, Acknowledge: Acknowledge(random.IntN(3)), Keeps: true})
		m.Listen(now, true)
		newest, isDialed, isOpen, isPassed := 0, false, false, false
		asked, isAsking := 0, false
		requests := []int{}
		for step := range 400 {
			now = now.Add(time.Duration(random.IntN(2_000)) * time.Millisecond)
			attempt := newest - random.IntN(2)*random.IntN(2)
			switch random.IntN(22) {
			case 0:
				m.Connect(now)
			case 1:
				if random.IntN(5) == 0 {
					m.Close(now)
				}
			case 2:
				m.Subscribe(now, string(rune('a'+random.IntN(3))), random.IntN(2) == 0, random.IntN(2) == 0)
			case 3:
				m.Unsubscribe(now, string(rune('a'+random.IntN(3))))
			case 4, 5:
				m.Opened(now, attempt)
				isOpen = isOpen || isDialed && attempt == newest
			case 6:
				m.Ended(now, attempt, End{Code: []int{0, 1006, 4000, 4002}[random.IntN(4)], Status: []int{0, 401, 503}[random.IntN(3)]})
			case 7, 8, 9, 10, 11:
				frame := frames[random.IntN(len(frames))]
				if count := strings.Count(frame, "%d"); count > 0 {
					arguments := []any{step, step}[:count]
					frame = fmt.Sprintf(frame, arguments...)
				}
				m.Frame(now, attempt, []byte(frame), false)
			case 12:
				m.Heard(now, attempt)
			case 13, 14:
				if isAsking {
					m.TokenArrived(now, asked, fmt.Sprintf("t%d", step), random.IntN(30) == 0, nil)
					isAsking = false
				}
			case 15, 16:
				var err error
				if random.IntN(3) == 0 {
					err = errors.New("failed")
				}
				isPassed = false
				m.Settled(now, err)
			case 17:
				m.Ack(now, []string{fmt.Sprint(random.IntN(100))})
			case 18:
				m.ReportOpened(now, []string{fmt.Sprint(random.IntN(100))})
			case 19:
				if len(requests) > 0 {
					m.Answered(now, requests[0], Response{Status: []int{200, 304, 401, 404, 503}[random.IntN(5)], Body: []byte(`{"unread":1}`)})
					requests = requests[1:]
				}
			case 20:
				m.SetHidden(now, random.IntN(2) == 0)
				m.NetworkReturned(now)
				m.WantUnread(now, random.IntN(2) == 0)
				m.Me(now, func(json.RawMessage, *Error) {})
			}
			for range 50 { // timers that set timers
				at, ok := m.Timeout()
				if !ok || at.After(now) {
					break
				}
				m.Advance(now)
			}
			for _, effect := range m.Effects() {
				switch e := effect.(type) {
				case Dial:
					if isDialed {
						t.Fatalf("seed %d step %d: two connections", seed, step)
					}
					if e.Attempt <= newest {
						t.Fatalf("seed %d step %d: attempt %d after %d", seed, step, e.Attempt, newest)
					}
					newest, isDialed, isOpen = e.Attempt, true, false
				case Send:
					if !isDialed || !isOpen || e.Attempt != newest || len(e.Frame) > 64<<10 {
						t.Fatalf("seed %d step %d: sent %s", seed, step, e.Frame)
					}
				case Hangup:
					if !isDialed || e.Attempt != newest {
						t.Fatalf("seed %d step %d: hung up %d", seed, step, e.Attempt)
					}
					isDialed = false
				case AskToken:
					if isAsking {
						t.Fatalf("seed %d step %d: two requests for a token", seed, step)
					}
					asked, isAsking = e.N, true
				case CancelToken:
					isAsking = false
				case Pass:
					if isPassed {
						t.Fatalf("seed %d step %d: two messages at a time", seed, step)
					}
					isPassed = true
				case Request:
					requests = append(requests, e.N)
				}
			}
			if m.Waiting() > QueueMax || m.acks.len() > acksMax || m.opened.waiting.len() > reportsMax {
				t.Fatalf("seed %d step %d: a queue is too long", seed, step)
			}
		}
	}
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: 375, 1: 750, 5: 12_000, 6: 22_500, 1_000: 22_500} {
		if got := Backoff(failures, 0.5); got != want*time.Millisecond {
			t.Errorf("%d: %v", failures, got)
		}
	}
}

func TestClaims(t *testing.T) {
	for text, want := range map[string]bool{
		"nd1.opaque": false, "": false, "a.!.b": false, "a.e30.b": false, // {}
		"a.eyJleHAiOjF9.b":    true,  // {"exp":1}
		"a.eyJleHAiOiIxIn0.b": false, // {"exp":"1"}
		"a.W10.b":             false, "a.bnVsbA.b": false,
	} {
		if _, _, ok := claims(text); ok != want {
			t.Errorf("%q: %v", text, ok)
		}
	}
}

// Close forgets messages that the application does not have yet; they arrive again.
func TestCloseDropsWaitingMessages(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	m := New(Config{Transports: []Transport{WebSocket}, Random: func() float64 { return 0 }})
	m.Listen(now, true)
	passed := func() (ids []string) {
		for _, effect := range m.Effects() {
			switch e := effect.(type) {
			case Pass:
				ids = append(ids, e.Message.ID)
			case AskToken:
				m.TokenArrived(now, e.N, "t", false, nil)
			case Dial:
				m.Opened(now, e.Attempt)
				m.Frame(now, e.Attempt, []byte(`{"t":"ready"}`), false)
				for _, id := range []string{"1", "2", "3"} {
					m.Frame(now, e.Attempt, []byte(`{"t":"msg","id":"`+id+`","ack":true}`), false)
				}
			}
		}
		return ids
	}
	all := func() (ids []string) {
		for range 4 {
			ids = append(ids, passed()...)
		}
		return ids
	}
	m.Connect(now)
	if got := all(); fmt.Sprint(got) != "[1]" {
		t.Fatal(got)
	}
	m.Close(now)
	m.Settled(now, nil)
	if got := all(); len(got) != 0 {
		t.Fatal(got)
	}
	m.Connect(now)
	if got := all(); fmt.Sprint(got) != "[2]" {
		t.Fatal(got)
	}
	m.Settled(now, nil)
	if got := all(); fmt.Sprint(got) != "[3]" {
		t.Fatal(got)
	}
}

func TestReportsAreKept(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	m := New(Config{Transports: []Transport{WebSocket}, Random: func() float64 { return 0 }, Kept: []string{"old"}, Keeps: true})
	m.ReportOpened(now, []string{"new"})
	m.Connect(now)
	kept, body := []string{}, ""
	for range 4 {
		for _, effect := range m.Effects() {
			switch e := effect.(type) {
			case AskToken:
				m.TokenArrived(now, e.N, "t", false, nil)
			case Keep:
				kept = append(kept, fmt.Sprint(e.IDs))
			case Request:
				body = string(e.Body)
				m.Answered(now, e.N, Response{Status: 200, Body: []byte("{}")})
			}
		}
	}
	if body != `{"ids":["old","new"]}` || fmt.Sprint(kept) != "[[old new] []]" || len(m.Kept()) != 0 {
		t.Errorf("%s %v %v", body, kept, m.Kept())
	}
}

func TestTextsOfFramesAreNotEscapedForHTML(t *testing.T) {
	if got := string(encode(map[string]string{"a": "<&>\u2028ü"})); got != "{\"a\":\"<&>\\u2028ü\"}" {
		t.Error(got)
	}
}
