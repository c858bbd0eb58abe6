package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
)

// TokenRequest says why a token is requested.
type TokenRequest struct {
	// Reason is first, expiring or rejected. Do not return a cached token for the last two.
	Reason string
	// Previous is the token that expires or was rejected.
	Previous string
}

// AckMode says when a stored message is acknowledged.
type AckMode int

const (
	// AckHandled acknowledges after the handlers have returned nil. A message without a handler is not acknowledged.
	AckHandled AckMode = iota
	// AckReceived acknowledges when the message arrives.
	AckReceived
	// AckManual leaves it to [Client.Ack].
	AckManual
)

// Options configure a Client. URL and Token are required.
type Options struct {
	// URL is the public address of the service, such as https://push.example.com.
	URL string
	// Token returns a token of the device: a device token, or a JWT of the app. It is called for the first connection, before a JWT
	// expires, and after a rejection, once at a time; its context ends after 30 seconds. If it fails, the client tries again, except
	// after [ErrSignedOut].
	Token func(context.Context, TokenRequest) (string, error)
	// App is the name of the app, if its JWTs do not name it.
	App string
	// Acknowledge says when messages are acknowledged.
	Acknowledge AckMode
	// PingInterval is the silence after which the client checks the connection. Default: a minute; never more than the service's own
	// interval.
	PingInterval time.Duration
	// Transports to use, in this order. Default: WebSocket, and SSE where a network blocks it.
	Transports []Transport
	// HTTPClient sends requests and opens connections. It must not have a Timeout. Default: a client with the transport of
	// http.DefaultClient.
	HTTPClient *http.Client
	// Reports keeps reports of opened messages until the service has them. Default: memory.
	Reports ReportStore
}

// Client is the connection of a device, and its requests. It is safe for concurrent use.
type Client struct {
	options Options
	base    *url.URL
	http    *http.Client
	clock   clock
	events  eventQueue
	saver   saver
	// Has a value after handlers of a message have returned.
	settled chan struct{}

	// mu guards what follows. No other lock is taken under it except that of events and saver, and nothing waits.
	mu           sync.Mutex
	machine      *protocol.Machine
	timer        stopper
	timerAt      time.Time
	links        map[int]link
	cancelToken  map[int]context.CancelFunc
	callContexts map[int]context.Context
	changed      chan struct{}
	handlers     handlers
	// Of the handlers of messages, until Close.
	handlerContext context.Context
	cancelHandlers context.CancelFunc
	// Of connections and requests, until a Close has waited for them.
	background context.Context
	cancelAll  context.CancelFunc
	// Connections and requests in progress; idle is closed when there are none.
	busy int
	idle chan struct{}
	// Tests see each effect, and how many inputs the machine had.
	observe    func(protocol.Effect)
	inputCount atomic.Int64
}

type handlers struct {
	message   func(context.Context, *Message) error
	topics    map[string]*Subscription
	state     func(State)
	recovered func(Recovered)
	denied    func(Denied)
	items     func(ItemsEvent)
	unread    func(ItemCounts)
	err       func(error)
}

// clock is replaced by tests.
type clock interface {
	Now() time.Time
	// AfterFunc calls f at that time.
	AfterFunc(at time.Time, f func()) stopper
	Random() float64
}

type stopper interface{ Stop() bool }

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(at time.Time, f func()) stopper {
	return time.AfterFunc(time.Until(at), f)
}

func (systemClock) Random() float64 { return rand.Float64() }

// New returns a client that is not connected yet.
func New(options Options) (*Client, error) { return newClient(options, systemClock{}) }

func newClient(options Options, clock clock) (*Client, error) {
	base, err := url.Parse(options.URL)
	if err != nil {
		return nil, fmt.Errorf("noroshi: Options.URL: %w", err)
	}
	if base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return nil, fmt.Errorf("noroshi: Options.URL: %q is not an http or https address", options.URL)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	if options.Token == nil {
		return nil, errors.New("noroshi: Options.Token is required")
	}
	if options.HTTPClient == nil {
		options.HTTPClient = &http.Client{}
	}
	if options.HTTPClient.Timeout != 0 {
		return nil, errors.New("noroshi: Options.HTTPClient has a Timeout, which would end connections: requests have timeouts of their own")
	}
	if options.Transports == nil {
		options.Transports = []Transport{WebSocket, SSE}
	}
	config := protocol.Config{
		App: options.App, PingInterval: options.PingInterval, Keeps: options.Reports != nil, Random: clock.Random,
		Acknowledge: protocol.Acknowledge(options.Acknowledge),
	}
	for _, transport := range options.Transports {
		if transport != WebSocket && transport != SSE || slices.Contains(config.Transports, protocol.Transport(transport)) {
			return nil, fmt.Errorf("noroshi: Options.Transports: %q", options.Transports)
		}
		config.Transports = append(config.Transports, protocol.Transport(transport))
	}
	if len(config.Transports) == 0 {
		return nil, errors.New("noroshi: Options.Transports is empty")
	}
	if options.Reports != nil {
		if config.Kept, err = options.Reports.Load(); err != nil {
			return nil, fmt.Errorf("noroshi: Options.Reports: %w", err)
		}
	}
	c := &Client{
		options: options, base: base, http: options.HTTPClient, clock: clock, machine: protocol.New(config), links: map[int]link{},
		cancelToken: map[int]context.CancelFunc{}, callContexts: map[int]context.Context{}, changed: make(chan struct{}),
		settled: make(chan struct{}, 1),
	}
	c.handlers.topics = map[string]*Subscription{}
	c.background, c.cancelAll = context.WithCancel(context.Background())
	c.handlerContext, c.cancelHandlers = context.WithCancel(context.Background())
	c.events.handle = c.dispatch
	c.events.overflow = func(count int) event {
		return protocol.Failed{Err: &protocol.Error{Code: string(CodeQueueFull), Message: fmt.Sprintf("%d events were dropped", count)}}
	}
	c.saver.store = options.Reports
	c.saver.failed = func(err error) {
		c.events.push(protocol.Failed{Err: &protocol.Error{Code: string(CodeStorageFailed), Message: err.Error(), Cause: err}})
	}
	return c, nil
}

// input passes something to the machine, and carries out its effects.
func (c *Client) input(handle func(m *protocol.Machine, now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locked(handle)
}

func (c *Client) locked(handle func(m *protocol.Machine, now time.Time)) {
	handle(c.machine, c.clock.Now())
	c.inputCount.Add(1)
	for _, effect := range c.machine.Effects() {
		if c.observe != nil {
			c.observe(effect)
		}
		c.carryOut(effect)
	}
	at, ok := c.machine.Timeout()
	if ok && c.timer != nil && at.Equal(c.timerAt) {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if ok {
		c.timerAt = at
		c.timer = c.clock.AfterFunc(at, c.tick)
	}
}

func (c *Client) tick() {
	c.input(func(m *protocol.Machine, now time.Time) {
		c.timer = nil
		m.Advance(now)
	})
}

func (c *Client) carryOut(effect protocol.Effect) {
	switch e := effect.(type) {
	case protocol.Dial:
		c.links[e.Attempt] = c.dial(e)
	case protocol.Send:
		if link, ok := c.links[e.Attempt]; ok {
			link.send(e.Frame)
		}
	case protocol.Hangup:
		if link, ok := c.links[e.Attempt]; ok {
			delete(c.links, e.Attempt)
			link.hangup()
		}
	case protocol.AskToken:
		c.askToken(e)
	case protocol.CancelToken:
		if cancel, ok := c.cancelToken[e.N]; ok {
			cancel()
		}
	case protocol.Request:
		ctx, ok := c.callContexts[e.N]
		if !ok {
			ctx = c.background
		}
		c.start(func() { c.request(ctx, e) })
	case protocol.Keep:
		c.saver.save(e.IDs)
	case protocol.StateChanged:
		close(c.changed)
		c.changed = make(chan struct{})
		c.events.push(e)
	case protocol.Denied:
		c.events.push(deniedEvent{e, c.handlers.topics[e.Topic]})
		delete(c.handlers.topics, e.Topic)
	default:
		c.events.push(e)
	}
}

// deniedEvent has the subscription that ended; the application may have subscribed again.
type deniedEvent struct {
	protocol.Denied
	subscription *Subscription
}

// start runs a connection or a request. Close waits for it.
func (c *Client) start(work func()) {
	if c.busy == 0 {
		c.idle = make(chan struct{})
	}
	c.busy++
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.busy--
			if c.busy == 0 {
				close(c.idle)
			}
		}()
		work()
	}()
}

func (c *Client) askToken(e protocol.AskToken) {
	ctx, cancel := context.WithCancel(c.background)
	c.cancelToken[e.N] = cancel
	// Close does not wait for it.
	go func() {
		defer cancel()
		token, err := c.options.Token(ctx, TokenRequest{e.Reason, e.Previous})
		c.input(func(m *protocol.Machine, now time.Time) {
			delete(c.cancelToken, e.N)
			m.TokenArrived(now, e.N, token, errors.Is(err, ErrSignedOut), err)
		})
	}()
}

// dispatch calls the handlers of an event. The machine passes one message at a time.
func (c *Client) dispatch(effect event) {
	if pass, ok := effect.(protocol.Pass); ok {
		go c.handle(pass.Message)
		return
	}
	c.mu.Lock()
	handlers := c.handlers
	var subscription *Subscription
	if recovered, ok := effect.(protocol.Recovered); ok {
		subscription = handlers.topics[recovered.Topic]
	}
	c.mu.Unlock()
	switch e := effect.(type) {
	case protocol.StateChanged:
		call(handlers.state, stateOf(e.State))
	case protocol.Recovered:
		event := Recovered{Topic: e.Topic, Completeness: Unknown}
		if e.Complete != nil && *e.Complete {
			event.Completeness = Complete
		} else if e.Complete != nil {
			event.Completeness = Incomplete
		}
		if subscription != nil {
			call(subscription.options.OnRecovered, event)
		}
		call(handlers.recovered, event)
	case deniedEvent:
		event := Denied{e.Topic, Code(e.Code), e.Reason}
		if e.subscription != nil {
			call(e.subscription.options.OnDenied, event)
		}
		call(handlers.denied, event)
	case protocol.ItemsChanged:
		call(handlers.items, ItemsEvent{e.Event, e.IDs, e.More, ItemCounts{e.Unread, e.Categories}})
	case protocol.UnreadChanged:
		call(handlers.unread, countsOf(e.Counts))
	case protocol.Failed:
		call(handlers.err, error(errorOf(e.Err)))
	}
}

func call[T any](handler func(T), event T) {
	if handler != nil {
		handler(event)
	}
}

// handle passes a message to the handler of its topic, and to that of all messages.
func (c *Client) handle(raw protocol.Message) {
	c.mu.Lock()
	begins := c.machine.Begins()
	c.mu.Unlock()
	if !begins {
		return
	}
	failed := errors.New("the handler ended its goroutine")
	// Also if the handler calls runtime.Goexit, as t.FailNow does.
	defer func() {
		c.input(func(m *protocol.Machine, now time.Time) { m.Settled(now, failed) })
		select {
		case c.settled <- struct{}{}:
		default:
		}
	}()
	message, err := messageOf(raw)
	if err != nil {
		c.events.push(protocol.Failed{Err: &protocol.Error{Code: string(CodeBadFrame), Message: "message " + raw.ID + ": " + err.Error(), Cause: err}})
	}
	c.mu.Lock()
	all, ctx := c.handlers.message, c.handlerContext
	var ofTopic func(context.Context, *Message) error
	if subscription, ok := c.handlers.topics[raw.Topic]; ok {
		ofTopic = subscription.options.OnMessage
	}
	c.mu.Unlock()
	if ofTopic == nil && all == nil {
		failed = errors.New("the handler was removed while the message waited")
		return
	}
	var results error
	for _, handler := range []func(context.Context, *Message) error{ofTopic, all} {
		if handler != nil {
			results = errors.Join(results, handler(ctx, message))
		}
	}
	failed = results
}

// Connect connects in the background, and stays connected until Close. It has no effect while the client is connected.
func (c *Client) Connect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handlerContext.Err() != nil {
		c.handlerContext, c.cancelHandlers = context.WithCancel(context.Background())
	}
	c.locked((*protocol.Machine).Connect)
}

// Close ends the connection. It sends pending acknowledgements and reports first, and waits until they are sent or ctx ends. Messages
// that wait for their handlers are dropped; stored ones arrive again in the next session. A handler that runs gets a cancelled
// context; Close does not wait for it, and if it returns nil its message is acknowledged in the next session. Connect starts the
// client again.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.cancelHandlers()
	c.locked((*protocol.Machine).Close)
	// What begins later does not end with this Close.
	cancel := c.cancelAll
	c.background, c.cancelAll = context.WithCancel(context.Background())
	c.mu.Unlock()
	defer cancel()
	for {
		c.mu.Lock()
		busy, idle := c.busy, c.idle
		c.mu.Unlock()
		if busy == 0 {
			break
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return c.saver.wait(ctx)
}

// closeTimeout is how long Run waits for acknowledgements and reports at its end.
const closeTimeout = 5 * time.Second

// Run connects, and stays connected until ctx ends or the client closes for good. It returns the cause of ctx; nil after [Client.Close],
// or if nobody is signed in ([ErrSignedOut]); or an [*Error] whose code is the reason, because another connection of the device replaced
// this one, or the service rejects its tokens.
func (c *Client) Run(ctx context.Context) error {
	c.Connect()
	for {
		c.mu.Lock()
		state, changed := stateOf(c.machine.State()), c.changed
		c.mu.Unlock()
		if state.Status == StatusClosed {
			if state.Reason == ReasonClosed || state.Reason == ReasonSignedOut { // the application wanted it (A8)
				return nil
			}
			return &Error{Code: Code(state.Reason), Message: "the connection has ended"}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			_ = c.Close(last) // what was not sent arrives again
			return context.Cause(ctx)
		}
	}
}

// State returns the present state.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stateOf(c.machine.State())
}

// OnMessage sets the handler of all messages, also of those with a handler of their topic. A message is acknowledged after its
// handlers have returned nil; otherwise it arrives again in the next session. Nil removes the handler.
func (c *Client) OnMessage(handler func(context.Context, *Message) error) {
	c.input(func(m *protocol.Machine, now time.Time) {
		c.handlers.message = handler
		m.Listen(now, handler != nil)
	})
}

// OnState sets the handler of changes of the state.
func (c *Client) OnState(handler func(State)) { set(c, &c.handlers.state, handler) }

// OnRecovered sets the handler of the ends of recoveries.
func (c *Client) OnRecovered(handler func(Recovered)) { set(c, &c.handlers.recovered, handler) }

// OnDenied sets the handler of refused subscriptions.
func (c *Client) OnDenied(handler func(Denied)) { set(c, &c.handlers.denied, handler) }

// OnItems sets the handler of changes in the notification centre of the user.
func (c *Client) OnItems(handler func(ItemsEvent)) { set(c, &c.handlers.items, handler) }

// OnError sets the handler of errors that no method returns. Each is an [*Error].
func (c *Client) OnError(handler func(error)) { set(c, &c.handlers.err, handler) }

// OnUnread sets the handler of the numbers of unread items. With it, the client reads them after each log-in.
func (c *Client) OnUnread(handler func(ItemCounts)) {
	c.input(func(m *protocol.Machine, now time.Time) {
		c.handlers.unread = handler
		m.WantUnread(now, handler != nil)
	})
}

func set[T any](c *Client, field *func(T), handler func(T)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*field = handler
}

// SubscribeOptions configure a subscription.
type SubscribeOptions struct {
	// Recover gets what was missed while the connection was lost; then OnRecovered is called.
	Recover bool
	// OnMessage handles the messages of this topic, before [Client.OnMessage].
	OnMessage func(context.Context, *Message) error
	// OnRecovered and OnDenied handle the events of this topic, before those of the client.
	OnRecovered func(Recovered)
	OnDenied    func(Denied)
}

// Subscription is a subscription for as long as the client is used, across connections.
type Subscription struct {
	client  *Client
	topic   string
	options SubscribeOptions
}

// Topic returns the name of the topic.
func (s *Subscription) Topic() string { return s.topic }

// Unsubscribe ends the subscription.
func (s *Subscription) Unsubscribe() {
	s.client.input(func(m *protocol.Machine, now time.Time) {
		if s.client.handlers.topics[s.topic] != s {
			return
		}
		delete(s.client.handlers.topics, s.topic)
		m.Unsubscribe(now, s.topic)
	})
}

// Subscribe subscribes to a topic. A second call for the same topic replaces the options.
func (c *Client) Subscribe(topic string, options SubscribeOptions) *Subscription {
	s := &Subscription{client: c, topic: topic, options: options}
	c.input(func(m *protocol.Machine, now time.Time) {
		c.handlers.topics[topic] = s
		m.Subscribe(now, topic, options.Recover, options.OnMessage != nil)
	})
	return s
}

// Ack acknowledges messages ([AckManual]).
func (c *Client) Ack(ids ...string) {
	c.input(func(m *protocol.Machine, now time.Time) { m.Ack(now, slices.Clone(ids)) })
}

// Opened reports that the user opened messages. Reports wait for the network, at most 1,000.
func (c *Client) Opened(ids ...string) {
	c.input(func(m *protocol.Machine, now time.Time) { m.ReportOpened(now, slices.Clone(ids)) })
}

// SetHidden says whether the user sees the application. A device whose application is hidden for 10 seconds is idle.
func (c *Client) SetHidden(hidden bool) {
	c.input(func(m *protocol.Machine, now time.Time) { m.SetHidden(now, hidden) })
}

// SetPresence states the presence of the device, active or idle, instead of what follows from SetHidden; "" follows SetHidden again.
func (c *Client) SetPresence(presence Presence) error {
	switch presence {
	case "":
		presence = "auto"
	case PresenceActive, PresenceIdle:
	default:
		return fmt.Errorf("noroshi: a device cannot state the presence %q", presence)
	}
	c.input(func(m *protocol.Machine, now time.Time) { m.SetPresence(now, string(presence)) })
	return nil
}

// NetworkReturned says that the network works again, or that the machine has woken up: the client checks its connection, or tries
// again at once.
func (c *Client) NetworkReturned() {
	c.input(func(m *protocol.Machine, now time.Time) { m.NetworkReturned(now) })
}
