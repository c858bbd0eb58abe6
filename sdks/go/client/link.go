package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
	"github.com/noroshi/noroshi/sdks/go/internal/retryafter"
)

const (
	// A larger frame is not from the service.
	frameMax = 16 << 20
	// Frames that wait for the network. The machine collects what it sends, so they are few.
	sendQueueMax = 1_000
	// How long a connection that ends may take to send what waits.
	lastWriteTimeout = 5 * time.Second
)

// link is a connection. Its methods do not wait.
type link interface {
	send(frame []byte)
	hangup()
}

// dial opens a connection in a goroutine, which reports what happens to the machine.
func (c *Client) dial(e protocol.Dial) link {
	ctx, cancel := context.WithCancel(c.background)
	if e.Transport == protocol.SSE {
		c.start(func() {
			defer cancel()
			end := c.stream(ctx, e)
			c.input(func(m *protocol.Machine, now time.Time) { m.Ended(now, e.Attempt, end) })
		})
		return stream{cancel}
	}
	l := &socket{client: c, attempt: e.Attempt, cancelDial: cancel, frames: make(chan []byte, sendQueueMax), hungUp: make(chan struct{})}
	c.start(func() {
		defer cancel()
		end := l.run(ctx, e.App)
		c.input(func(m *protocol.Machine, now time.Time) { m.Ended(now, e.Attempt, end) })
	})
	return l
}

func (c *Client) address(path string, query map[string]string) *url.URL {
	address := *c.base
	address.RawPath = address.EscapedPath() + path
	address.Path, _ = url.PathUnescape(address.RawPath)
	values := url.Values{}
	for name, value := range query {
		if value != "" {
			values.Set(name, value)
		}
	}
	address.RawQuery = values.Encode()
	return &address
}

// socket is the native protocol over a WebSocket.
type socket struct {
	client     *Client
	attempt    int
	cancelDial context.CancelFunc
	frames     chan []byte
	hungUp     chan struct{}
	once       sync.Once
	// Guarded by the lock of the client.
	isOpen bool
}

func (s *socket) send(frame []byte) {
	select {
	case s.frames <- frame:
	default:
		// The network takes nothing. Ending the dial context ends the connection, which reports itself as lost.
		s.cancelDial()
	}
}

func (s *socket) hangup() {
	s.once.Do(func() { close(s.hungUp) })
	if !s.isOpen {
		s.cancelDial()
	}
}

func (s *socket) run(ctx context.Context, app string) protocol.End {
	c := s.client
	address := c.address("/v1/connect", map[string]string{"app": app})
	address.Scheme = strings.Replace(address.Scheme, "http", "ws", 1)
	conn, response, err := websocket.Dial(ctx, address.String(), &websocket.DialOptions{HTTPClient: c.http, Subprotocols: []string{"noroshi.v1"}})
	if err != nil {
		end := protocol.End{}
		if response != nil {
			end.RetryAfter, end.HasRetryAfter = retryafter.Parse(response.Header.Get("Retry-After"), c.clock.Now())
		}
		return end
	}
	defer conn.CloseNow()
	conn.SetReadLimit(frameMax)
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write(ctx, conn)
	}()
	c.input(func(m *protocol.Machine, now time.Time) {
		s.isOpen = true
		m.Opened(now, s.attempt)
	})
	end := s.read(ctx, conn)
	s.once.Do(func() { close(s.hungUp) })
	<-written
	return end
}

func (s *socket) read(ctx context.Context, conn *websocket.Conn) protocol.End {
	throttle := throttle{client: s.client}
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			if code := websocket.CloseStatus(err); code > 0 {
				return protocol.End{Code: int(code)}
			}
			return protocol.End{}
		}
		s.client.input(func(m *protocol.Machine, now time.Time) {
			m.Frame(now, s.attempt, data, kind == websocket.MessageBinary)
		})
		throttle.wait(ctx)
	}
}

// write sends frames until the machine hangs up or the connection ends.
func (s *socket) write(ctx context.Context, conn *websocket.Conn) {
	for {
		select {
		case frame := <-s.frames:
			if conn.Write(ctx, websocket.MessageText, frame) != nil {
				conn.CloseNow()
				return
			}
		case <-s.hungUp:
			last, cancel := context.WithTimeout(ctx, lastWriteTimeout)
			defer cancel()
			for {
				select {
				case frame := <-s.frames:
					if conn.Write(last, websocket.MessageText, frame) != nil {
						conn.CloseNow()
						return
					}
				default:
					conn.Close(websocket.StatusNormalClosure, "")
					return
				}
			}
		}
	}
}

const (
	// Above this number of waiting messages the client reads no faster than handlers return.
	throttleAbove = protocol.QueueMax * 3 / 4
	// Handlers that need longer do not slow down reading: the queue fills, and the machine disconnects (L2).
	throttleWait = 100 * time.Millisecond
)

// throttle slows down reading during a burst of messages, such as the recovery of a topic, so that TCP slows down the service.
type throttle struct {
	client *Client
	// No handler returned during the last wait.
	isStalled bool
}

func (t *throttle) wait(ctx context.Context) {
	timer := (*time.Timer)(nil)
	for {
		t.client.mu.Lock()
		waiting := t.client.machine.Waiting()
		t.client.mu.Unlock()
		if waiting < throttleAbove {
			t.isStalled = false
			return
		}
		if t.isStalled {
			select {
			case <-t.client.settled:
				t.isStalled = false
			default:
				return
			}
		}
		if timer == nil {
			timer = time.NewTimer(throttleWait)
			defer timer.Stop()
		} else {
			timer.Reset(throttleWait)
		}
		select {
		case <-t.client.settled:
		case <-timer.C:
			t.isStalled = true
			return
		case <-ctx.Done():
			return
		}
	}
}

// stream is a stream of server-sent events. What the device sends goes through the HTTP API.
type stream struct{ cancel context.CancelFunc }

func (stream) send([]byte) {}

func (s stream) hangup() { s.cancel() }

func (c *Client) stream(ctx context.Context, e protocol.Dial) protocol.End {
	address := c.address("/v1/events", map[string]string{"topics": strings.Join(e.Topics, ","), "app": e.App})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return protocol.End{}
	}
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("Cache-Control", "no-store")
	request.Header.Set("Authorization", "Bearer "+e.Token)
	if e.LastEventID != "" {
		request.Header.Set("Last-Event-Id", e.LastEventID)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return protocol.End{}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		end := protocol.End{Status: response.StatusCode}
		var problem struct {
			Code string `json:"code"`
		}
		_ = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&problem) // a proxy's page has no code
		end.Problem = problem.Code
		end.RetryAfter, end.HasRetryAfter = retryafter.Parse(response.Header.Get("Retry-After"), c.clock.Now())
		return end
	}
	c.input(func(m *protocol.Machine, now time.Time) { m.Opened(now, e.Attempt) })
	throttle := throttle{client: c}
	_ = readEvents(response.Body, func(data []byte) {
		c.input(func(m *protocol.Machine, now time.Time) {
			if data == nil {
				m.Heard(now, e.Attempt)
				return
			}
			m.Frame(now, e.Attempt, data, false)
		})
		throttle.wait(ctx)
	})
	return protocol.End{}
}

var errEventTooLarge = errors.New("an event is too large")

// readEvents calls found with the data of each event, and with nil for other lines. It never returns nil.
func readEvents(body io.Reader, found func(data []byte)) error {
	reader := bufio.NewReaderSize(body, 64<<10)
	var data []byte
	hasData := false
	for {
		line, err := readLine(reader, frameMax)
		if err != nil {
			return err
		}
		switch value, isData := bytes.CutPrefix(line, []byte("data:")); {
		case len(line) == 0 && hasData:
			found(data)
			data, hasData = nil, false
		case isData:
			if hasData {
				data = append(data, '\n')
			} else {
				data = []byte{}
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
			hasData = true
			if len(data) > frameMax {
				return errEventTooLarge
			}
		default:
			found(nil)
		}
	}
}

// readLine returns a line without its end.
func readLine(reader *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := reader.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, errEventTooLarge
		}
		line = append(line, part...)
		if err == nil {
			return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}
