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
	"slices"
	"strings"
	"testing"
	"time"
)

// The package does no input or output, starts no goroutine and reads no clock.
func TestThePackageIsPure(t *testing.T) {
	allowed := map[string]bool{"bytes": true, "container/list": true, "encoding/base64": true, "encoding/json": true, "fmt": true, "maps": true, "math": true, "slices": true, "strconv": true, "strings": true, "time": true, "unicode/utf8": true}
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

func TestTextsOfFramesAreNotEscapedWithoutNeed(t *testing.T) {
	for text, want := range map[string]string{
		"<&>ü\u2028\u2029\xff😀": "\"<&>ü\u2028\u2029\ufffd😀\"", `\u2028`: `"\\u2028"`, `\` + "\u2028": `"\\` + "\u2028\"", "\x01\"": `"\u0001\""`,
	} {
		if got := string(encode(text)); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// script is a machine and what its service got. The application has the token "t" and then "t2" and so on.
type script struct {
	*testing.T
	*Machine
	now      time.Time
	tokens   int
	dials    []Dial
	requests []Request
	events   []string
}

func newScript(t *testing.T, transports ...Transport) *script {
	s := &script{T: t, now: time.Unix(1_767_225_600, 0)}
	s.Machine = New(Config{Transports: transports, Random: func() float64 { return 0 }})
	return s
}

// run carries out the effects.
func (s *script) run() {
	for effects := s.Effects(); len(effects) > 0; effects = s.Effects() {
		for _, effect := range effects {
			switch e := effect.(type) {
			case AskToken:
				s.tokens++
				s.TokenArrived(s.now, e.N, fmt.Sprintf("t%d", s.tokens), false, nil)
			case Dial:
				s.dials = append(s.dials, e)
			case Request:
				s.requests = append(s.requests, e)
			case StateChanged:
				s.events = append(s.events, e.State.Name)
			case Failed:
				s.events = append(s.events, e.Err.Code)
			}
		}
	}
}

// advance moves the clock.
func (s *script) advance(by time.Duration) {
	end := s.now.Add(by)
	for s.run(); ; s.run() {
		at, ok := s.Timeout()
		if !ok || at.After(end) {
			break
		}
		if at.After(s.now) {
			s.now = at
		}
		s.Advance(s.now)
	}
	s.now = end
}

// got takes the requests since the last call.
func (s *script) got(want ...string) {
	s.Helper()
	s.run()
	got := []string{}
	for _, one := range s.requests {
		got = append(got, strings.TrimSpace(one.Method+" "+one.Path+" "+string(one.Body)))
	}
	s.requests = nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("requests %q, not %q", got, want)
	}
}

func (s *script) saw(want ...string) {
	s.Helper()
	s.run()
	if fmt.Sprint(s.events) != fmt.Sprint(want) {
		s.Fatalf("events %q, not %q", s.events, want)
	}
	s.events = nil
}

// connect opens the newest connection; a WebSocket also gets ready.
func (s *script) connect() {
	s.Connect(s.now)
	s.run()
	s.accept()
}

func (s *script) accept() {
	dial := s.dials[len(s.dials)-1]
	s.Opened(s.now, dial.Attempt)
	if dial.Transport == WebSocket {
		s.Frame(s.now, dial.Attempt, []byte(`{"t":"ready"}`), false)
	}
	s.run()
}

func (s *script) frame(text string) {
	s.Frame(s.now, s.dials[len(s.dials)-1].Attempt, []byte(text), false)
	s.run()
}

// listenFor moves the clock while the stream has comments.
func (s *script) listenFor(duration time.Duration) {
	for range 3 {
		s.advance(duration / 3)
		s.Heard(s.now, s.dials[len(s.dials)-1].Attempt)
	}
}

func (s *script) answer(n, status int, body string, retryAfter ...time.Duration) {
	response := Response{Status: status, Body: []byte(body)}
	if len(retryAfter) > 0 {
		response.RetryAfter, response.HasRetryAfter = retryAfter[0], true
	}
	s.Answered(s.now, n, response)
	s.run()
}

// O4: of a thousand reports only the bad one is lost.
func TestABadReportCostsFewRequests(t *testing.T) {
	s := newScript(t, WebSocket)
	ids, want := []string{}, []string{}
	for n := range 1_000 {
		if n == 700 {
			ids = append(ids, "bad")
			continue
		}
		ids = append(ids, fmt.Sprint(n))
		want = append(want, fmt.Sprint(n))
	}
	s.ReportOpened(s.now, ids)
	s.run()
	taken, count := []string{}, 0
	for len(s.requests) > 0 {
		request := s.requests[0]
		s.requests = s.requests[1:]
		count++
		var body struct{ IDs []string }
		if err := json.Unmarshal(request.Body, &body); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(body.IDs, "bad") {
			s.answer(request.N, 400, `{"code":"invalid_field"}`)
			continue
		}
		taken = append(taken, body.IDs...)
		s.answer(request.N, 200, `{}`)
	}
	s.saw("invalid_field")
	if !slices.Equal(taken, want) || count > 21 {
		t.Errorf("%d reports in %d requests", len(taken), count)
	}
}

// L1: lengths are of UTF-16, and no topic of the service makes a frame larger than 64 KiB.
func TestPartsCountCodeUnits(t *testing.T) {
	for text, want := range map[string]int{"": 0, "ab": 2, "ü": 1, "語": 1, "😀": 2, "\xff": 1} {
		if got := codeUnits(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
	for _, letter := range []string{"x", "\"", "语", "\u2028", "😀"} {
		texts := []string{}
		for n := range 1_000 {
			texts = append(texts, fmt.Sprintf("%03d", n)+strings.Repeat(letter, 252/len(letter)))
		}
		whole := 60_000 / (6*(3+codeUnits(letter)*(252/len(letter))) + 64)
		for n, part := range parts(texts) {
			since := map[string]*position{}
			for _, text := range part {
				since[text] = &position{"0123456789abcdef", 1 << 40}
			}
			if size := len(encode(map[string]any{"t": "sub", "topics": part, "since": since})); size > 64<<10 {
				t.Errorf("%q: %d bytes", letter, size)
			}
			if n == 0 && len(part) != whole {
				t.Errorf("%q: %d entries, not %d", letter, len(part), whole)
			}
		}
	}
}

// U5: the request counts, not its answer; an older answer replaces no newer one.
func TestVariantsComeFromTheNewestRequest(t *testing.T) {
	s := newScript(t, WebSocket)
	seen := []string{}
	found := func(variant json.RawMessage, err *Error) { seen = append(seen, string(variant)) }
	me := func(colour string) string {
		return `{"device":"d","user":"u","experiments":{"colour":{"variant":"` + colour + `"}}}`
	}
	older := s.Me(s.now, func(json.RawMessage, *Error) {})
	s.advance(20 * time.Second)
	newer := s.Variant(s.now, "colour", false, found)
	s.got("GET /v1/me", "GET /v1/me")
	s.advance(10 * time.Second)
	s.answer(newer, 200, me("green"))
	s.answer(older, 200, me("red"))
	s.advance(49*time.Second + 999*time.Millisecond)
	s.Variant(s.now, "colour", false, found)
	s.got()
	s.advance(time.Millisecond)
	s.Variant(s.now, "colour", false, found)
	s.got("GET /v1/me")
	green := `{"variant":"green"}`
	if !slices.Equal(seen, []string{green, green}) {
		t.Error(seen)
	}
}

// U5: while the token is rejected, the variant of its device does not count.
func TestAVariantNeedsTheTokenOfNow(t *testing.T) {
	s := newScript(t, WebSocket)
	n := s.Variant(s.now, "colour", true, func(json.RawMessage, *Error) {})
	s.got("GET /v1/me")
	s.answer(n, 200, `{"device":"d","user":"u","experiments":{"colour":{"variant":"green"}}}`)
	s.got(`POST /v1/me/exposures {"experiments":["colour"]}`)
	s.Machine.tokens.reject("t1")
	s.Variant(s.now, "colour", true, func(json.RawMessage, *Error) {})
	s.got("GET /v1/me")
}

// U6: each call has a time of its own, and one that was cancelled is not repeated.
func TestCallsAreRepeatedIndependently(t *testing.T) {
	s := newScript(t, WebSocket)
	get := func(path string) int {
		return s.Request(s.now, Call{Method: "GET", Path: path}, func(_ Answer, err *Error) { s.events = append(s.events, path) })
	}
	a, b, c := get("/a"), get("/b"), get("/c")
	s.got("GET /a", "GET /b", "GET /c")
	s.answer(a, 503, "", 5*time.Second)
	s.answer(b, 429, "", 0)
	s.answer(c, 503, "", 5*time.Second)
	s.advance(0)
	s.got("GET /b")
	s.Cancel(c)
	s.advance(4_999 * time.Millisecond)
	s.got()
	s.advance(time.Millisecond)
	s.got("GET /a")
	s.answer(a, 502, "", time.Second)
	s.answer(b, 401, "")
	s.got("GET /b")
	s.answer(b, 503, "", 25*time.Second)
	s.advance(25 * time.Second)
	s.got("GET /b")
	s.answer(b, 503, "", 0)
	s.saw("/a", "/b")
}

// S4: the client's own reads end when it closes.
func TestUnreadItemsAreNotReadAfterClose(t *testing.T) {
	for _, isAnswered := range []bool{true, false} {
		s := newScript(t, WebSocket)
		s.WantUnread(s.now, true)
		s.connect()
		n := s.requests[0].N
		s.got("GET /v1/me/items/counts")
		if isAnswered {
			s.answer(n, 503, "", time.Second)
		}
		s.Close(s.now)
		if !isAnswered {
			s.answer(n, 503, "", time.Second)
		}
		s.advance(time.Minute)
		s.got()
		s.saw("connecting", "connected", "closed")
	}
}

// X7: the answer to a report of an earlier stream does not count for the next one.
func TestPresenceOfAnEarlierStream(t *testing.T) {
	s := newScript(t, SSE)
	s.connect()
	s.advance(time.Second)
	s.SetPresence(s.now, "idle")
	s.run()
	n := s.requests[0].N
	s.got(`PUT /v1/me/presence {"state":"idle"}`)
	s.Ended(s.now, s.dials[0].Attempt, End{})
	s.advance(time.Second)
	s.accept()
	s.got(`PUT /v1/me/presence {"state":"idle"}`)
	s.answer(n, 400, `{"code":"x"}`)
	s.advance(time.Minute)
	s.got()
	s.saw("connecting", "connected", "waiting", "connecting", "connected")
}

// X7, O4: what the service refuses is reported, and not repeated.
func TestPresenceThatIsRefused(t *testing.T) {
	s := newScript(t, SSE)
	s.connect()
	s.advance(time.Second)
	s.SetPresence(s.now, "idle")
	s.run()
	n := s.requests[0].N
	s.got(`PUT /v1/me/presence {"state":"idle"}`)
	s.answer(n, 422, `{"code":"invalid_field"}`)
	s.advance(time.Minute)
	s.got()
	s.saw("connecting", "connected", "invalid_field")
}

// X4: neither X3 nor another reason opens a stream while the service ends the present one.
func TestAStreamThatEndsIsNotReplaced(t *testing.T) {
	s := newScript(t, WebSocket, SSE)
	s.Connect(s.now)
	for range 2 {
		s.run()
		s.Ended(s.now, s.dials[len(s.dials)-1].Attempt, End{})
		s.advance(time.Second)
	}
	s.accept()
	s.listenFor(webSocketAgain - time.Second)
	s.frame(`{"t":"close","reason":"drain","reconnect":true,"after_ms":20000}`)
	s.Subscribe(s.now, "a", false, false)
	s.advance(2 * time.Second)
	if len(s.dials) != 3 {
		t.Fatal(s.dials)
	}
	s.Ended(s.now, s.dials[2].Attempt, End{})
	s.advance(20 * time.Second)
	if len(s.dials) != 4 || s.dials[3].Transport != WebSocket {
		t.Error(s.dials)
	}
}

// X4: a topic with a comma waits for a WebSocket.
func TestATopicWithACommaIsSubscribedOverAWebSocket(t *testing.T) {
	s := newScript(t, WebSocket, SSE)
	s.Subscribe(s.now, "a", false, false)
	s.Subscribe(s.now, "b,c", false, false)
	s.Connect(s.now)
	for range 2 {
		s.run()
		s.Ended(s.now, s.dials[len(s.dials)-1].Attempt, End{})
		s.advance(time.Second)
	}
	if dial := s.dials[2]; dial.Transport != SSE || !slices.Equal(dial.Topics, []string{"a"}) {
		t.Fatal(dial)
	}
	s.events = nil
	s.accept()
	s.saw("connected", "bad_topic")
	s.listenFor(webSocketAgain)
	s.Opened(s.now, s.dials[3].Attempt)
	s.run()
	s.Frame(s.now, s.dials[3].Attempt, []byte(`{"t":"ready"}`), false)
	frames := ""
	for _, effect := range s.Effects() {
		if send, ok := effect.(Send); ok {
			frames += string(send.Frame)
		}
	}
	if frames != `{"t":"sub","topics":["a","b,c"]}` {
		t.Error(frames)
	}
}

// S4: the client drops what waits, whatever closes it.
func TestEveryEndDropsWaitingMessages(t *testing.T) {
	for name, end := range map[string]func(*script){
		"quota_exceeded": func(s *script) {
			s.frame(`{"t":"close","reason":"quota_exceeded","reconnect":false}`)
			s.advance(time.Minute)
		},
		"signed_out": func(s *script) {
			s.Frame(s.now, 1, []byte(`{"t":"close","reason":"expired","reconnect":true}`), false)
			s.Ended(s.now, 1, End{})
			s.Advance(s.now)
			for _, effect := range s.Effects() {
				if ask, ok := effect.(AskToken); ok {
					s.TokenArrived(s.now, ask.N, "", true, nil)
				}
			}
		},
	} {
		s := newScript(t, WebSocket)
		s.Listen(s.now, true)
		s.connect()
		s.frame(`{"t":"msg","id":"1","ack":true}`)
		s.frame(`{"t":"msg","id":"2","ack":true}`)
		end(s)
		if state := s.State(); state.Name != "closed" || state.Reason != name || s.Waiting() != 1 {
			t.Errorf("%s: %v, %d messages", name, state, s.Waiting())
		}
		s.Settled(s.now, nil)
		for _, effect := range s.Effects() {
			if pass, ok := effect.(Pass); ok {
				t.Errorf("%s: %s was passed on", name, pass.Message.ID)
			}
		}
	}
}
