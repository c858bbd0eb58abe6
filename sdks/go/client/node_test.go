package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client"
	"github.com/noroshi/noroshi/sdks/go/internal/recorder"
	"github.com/noroshi/noroshi/sdks/go/internal/testnode"
	noroshi "github.com/noroshi/noroshi/sdks/go/server"
)

var node *testnode.Node

// TestMain starts a node for the tests and examples that need one.
func TestMain(m *testing.M) {
	code := func() int {
		flag.Parse()
		if os.Getenv("NOROSHI_BIN") == "" {
			if run := flag.Lookup("test.run"); run.Value.String() == "" {
				_ = run.Value.Set("^Test") // the examples need a node
			}
			return m.Run()
		}
		var err error
		if node, err = testnode.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer node.Stop()
		// For the examples.
		os.Setenv("NOROSHI_URL", node.URL)
		os.Setenv("NOROSHI_TOKEN", recorder.JWT("example", time.Hour))
		b, err := noroshi.New(noroshi.Options{URL: node.URL, Key: testnode.Key})
		if err == nil {
			_, err = b.RegisterDevice(context.Background(), noroshi.DeviceRegistration{Device: "example", User: recorder.User("example")})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}()
	os.Exit(code)
}

func needNode(t *testing.T) {
	t.Helper()
	if node == nil {
		t.Skip("NOROSHI_BIN does not name a node")
	}
}

// own returns a node that the test may kill.
func own(t *testing.T) *testnode.Node {
	t.Helper()
	needNode(t)
	n, err := testnode.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func backend(t *testing.T, n *testnode.Node) *noroshi.Client {
	t.Helper()
	c, err := noroshi.New(noroshi.Options{URL: n.URL, Key: testnode.Key})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func until(t *testing.T, what string, probe func() bool) {
	t.Helper()
	if err := recorder.Until(what, probe); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// device connects a device.
func device(t *testing.T, url, name string, change func(*client.Options)) *recorder.Device {
	t.Helper()
	d, err := recorder.New(url, name, change)
	check(t, err)
	t.Cleanup(d.End)
	d.Connect()
	until(t, name+" to be connected", func() bool { return d.Is(client.StatusConnected) })
	return d
}

func publish(t *testing.T, c *noroshi.Client, to noroshi.To, text string) string {
	t.Helper()
	receipt, err := c.Publish(t.Context(), noroshi.Notification{To: to, Data: text})
	check(t, err)
	return receipt.ID
}

func toUser(d *recorder.Device) noroshi.To { return noroshi.To{Users: []string{d.User}} }

func shows(t *testing.T, d *recorder.Device, want ...string) {
	t.Helper()
	_ = recorder.Until("", func() bool { return len(d.Shown()) >= len(want) })
	if got := d.Shown(); !slices.Equal(got, want) {
		t.Fatalf("%s showed %q, not %q; states %v, errors %v", d.Name, got, want, d.States(), d.Errors())
	}
}

func inboxIsEmpty(t *testing.T, d *recorder.Device) {
	t.Helper()
	until(t, "every message to be acknowledged", func() bool {
		me, err := d.Me(t.Context())
		check(t, err)
		return me.Inbox == 0
	})
}

func numbers(prefix string, from, to int) []string {
	var all []string
	for n := from; n < to; n++ {
		all = append(all, fmt.Sprintf("%s%d", prefix, n))
	}
	return all
}

func TestNodeMessagesArriveAndAreAcknowledged(t *testing.T) {
	t.Parallel()
	needNode(t)
	b := backend(t, node)
	d, err := recorder.New(node.URL, "live", nil)
	check(t, err)
	defer d.End()
	ofTopic := make(chan string, 100)
	subscription := d.Subscribe("live/news", client.SubscribeOptions{OnMessage: func(_ context.Context, m *client.Message) error {
		if m.Topic != "live/news" || m.Epoch == "" || m.SentAt.IsZero() || !m.Stored {
			t.Errorf("%+v", m)
		}
		var text string
		ofTopic <- text
		return m.Decode(&text)
	}})
	d.Connect()
	until(t, "live to be connected", func() bool { return d.Is(client.StatusConnected) })
	if s := d.State(); s.Transport != client.WebSocket || s.Device != "live" {
		t.Errorf("%+v", s)
	}
	publish(t, b, toUser(d), "1")
	shows(t, d, "1")
	until(t, "the subscription", func() bool {
		publish(t, b, noroshi.To{Topic: "live/news"}, "probe")
		return len(d.Shown()) > 1
	})
	if len(ofTopic) == 0 {
		t.Error("the handler of the topic was not called")
	}
	inboxIsEmpty(t, d)
	subscription.Unsubscribe()
	check(t, d.Close(t.Context()))
	if d.State().Reason != client.ReasonClosed || len(d.Errors()) != 0 {
		t.Errorf("%v %v", d.State(), d.Errors())
	}
}

func TestNodeAfterAKillNothingIsLostOrShownTwice(t *testing.T) {
	t.Parallel()
	n := own(t)
	b := backend(t, n)
	d, err := recorder.New(n.URL, "killed", nil)
	check(t, err)
	defer d.End()
	d.Subscribe("log", client.SubscribeOptions{Recover: true})
	d.Connect()
	until(t, "killed to be connected", func() bool { return d.Is(client.StatusConnected) })
	until(t, "the subscription", func() bool {
		publish(t, b, noroshi.To{Topic: "log"}, "probe")
		return len(d.Shown()) > 0
	})
	time.Sleep(200 * time.Millisecond)
	d.Forget()
	both := func(i int) {
		publish(t, b, toUser(d), fmt.Sprintf("inbox %d", i))
		publish(t, b, noroshi.To{Topic: "log"}, fmt.Sprintf("topic %d", i))
	}
	for i := range 10 {
		both(i)
	}
	until(t, "20 messages", func() bool { return len(d.Shown()) >= 20 })
	check(t, n.Kill())
	until(t, "the loss to be noticed", func() bool { return d.Is(client.StatusWaiting) })
	check(t, n.Spawn())
	for i := 10; i < 20; i++ {
		both(i)
	}
	until(t, "40 messages", func() bool { return len(d.Shown()) >= 40 })
	both(20)
	until(t, "42 messages", func() bool { return len(d.Shown()) >= 42 })
	for prefix, want := range map[string][]string{"inbox ": numbers("inbox ", 0, 21), "topic ": numbers("topic ", 0, 21)} {
		got := slices.DeleteFunc(d.Shown(), func(text string) bool { return !strings.HasPrefix(text, prefix) })
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	}
	if r := d.Recovered(); len(r) == 0 || r[len(r)-1] != (client.Recovered{Topic: "log", Completeness: client.Complete}) {
		t.Errorf("%+v", r)
	}
}

func TestNodeADrainMovesTheClient(t *testing.T) {
	t.Parallel()
	n := own(t)
	b := backend(t, n)
	d := device(t, n.URL, "drained", nil)
	for i := range 20 {
		publish(t, b, toUser(d), fmt.Sprint(i))
	}
	check(t, n.Drain())
	check(t, n.Spawn())
	for i := 20; i < 40; i++ {
		publish(t, b, toUser(d), fmt.Sprint(i))
	}
	shows(t, d, numbers("", 0, 40)...)
	if !d.HadReason(client.ReasonDrain) {
		t.Errorf("%v", d.States())
	}
}

func TestNodeANewerConnectionReplacesTheClient(t *testing.T) {
	t.Parallel()
	needNode(t)
	first := device(t, node.URL, "replaced", nil)
	ended := make(chan error, 1)
	go func() { ended <- first.Run(t.Context()) }()
	second := device(t, node.URL, "replaced", nil)
	until(t, "the first one to be closed", func() bool { return first.Is(client.StatusClosed) })
	var reason *client.Error
	if err := <-ended; !errors.As(err, &reason) || reason.Code != client.Code(client.ReasonReplaced) {
		t.Errorf("Run returned %v", err)
	}
	publish(t, backend(t, node), toUser(second), "here")
	shows(t, second, "here")
	if len(first.Shown()) != 0 {
		t.Errorf("%q", first.Shown())
	}
}

func TestNodeARevokedDeviceContinuesWithAnotherToken(t *testing.T) {
	t.Parallel()
	needNode(t)
	b := backend(t, node)
	d := device(t, node.URL, "revoked", nil)
	time.Sleep(1100 * time.Millisecond) // a JWT of the second of the revocation stays rejected
	_, err := b.RevokeDevice(t.Context(), "revoked")
	check(t, err)
	until(t, "another token", func() bool { return slices.Contains(d.Asked(), "rejected") })
	until(t, "the connection", func() bool { return d.Is(client.StatusConnected) })
	publish(t, b, toUser(d), "again")
	shows(t, d, "again")
}

func TestNodeATokenIsRenewedOnTheOpenConnection(t *testing.T) {
	t.Parallel()
	needNode(t)
	d, err := recorder.New(node.URL, "renewed", nil)
	check(t, err)
	defer d.End()
	d.Lifetime = 4 * time.Second
	d.Connect()
	until(t, "two renewals", func() bool {
		return len(slices.DeleteFunc(d.Asked(), func(reason string) bool { return reason != "expiring" })) >= 2
	})
	publish(t, backend(t, node), toUser(d), "same session")
	shows(t, d, "same session")
	if len(d.States()) != 2 || len(d.Errors()) != 0 {
		t.Errorf("%v %v", d.States(), d.Errors())
	}
}

func TestNodeATokenThatExpiresIsReplaced(t *testing.T) {
	t.Parallel()
	needNode(t)
	asked := 0 // one request for a token at a time
	d := device(t, node.URL, "expired", func(o *client.Options) {
		o.Token = func(_ context.Context, request client.TokenRequest) (string, error) {
			asked++
			if request.Reason == "expiring" {
				return "", errors.New("away")
			}
			if asked == 1 {
				return recorder.JWT("expired", 2*time.Second), nil
			}
			return recorder.JWT("expired", 10*time.Minute), nil
		}
	})
	until(t, "the expiry", func() bool { return d.HadReason(client.ReasonExpired) })
	until(t, "the connection", func() bool { return d.Is(client.StatusConnected) })
	publish(t, backend(t, node), toUser(d), "with the new token")
	shows(t, d, "with the new token")
}

func TestNodeAStalledNetworkIsNoticed(t *testing.T) {
	t.Parallel()
	needNode(t)
	b := backend(t, node)
	proxy, err := testnode.NewProxy(node.Port())
	check(t, err)
	defer proxy.Stop()
	d := device(t, proxy.URL, "stalled", func(o *client.Options) { o.PingInterval = time.Second })
	publish(t, b, toUser(d), "0")
	shows(t, d, "0")
	proxy.Freeze()
	publish(t, b, toUser(d), "1")
	until(t, "the loss to be noticed", func() bool { return d.HadReason(client.ReasonConnectionLost) })
	check(t, proxy.Heal())
	publish(t, b, toUser(d), "2")
	shows(t, d, "0", "1", "2")
}

func TestNodeServerSentEvents(t *testing.T) {
	t.Parallel()
	n := own(t)
	b := backend(t, n)
	d, err := recorder.New(n.URL, "streamed", func(o *client.Options) { o.Transports = []client.Transport{client.SSE} })
	check(t, err)
	defer d.End()
	d.Subscribe("stream", client.SubscribeOptions{Recover: true})
	d.Connect()
	until(t, "streamed to be connected", func() bool { return d.Is(client.StatusConnected) })
	for i := range 5 {
		publish(t, b, toUser(d), fmt.Sprint(i))
	}
	shows(t, d, numbers("", 0, 5)...)
	inboxIsEmpty(t, d)
	check(t, n.Kill())
	check(t, n.Spawn())
	for i := 5; i < 10; i++ {
		publish(t, b, toUser(d), fmt.Sprint(i))
	}
	shows(t, d, numbers("", 0, 10)...)
	check(t, d.SetPresence(client.PresenceIdle))
	until(t, "the presence", func() bool {
		users, err := b.Presence(t.Context(), d.User)
		check(t, err)
		return users[d.User].Presence == noroshi.PresenceIdle
	})
}

// noWebSockets is a network that blocks WebSockets.
type noWebSockets struct{ http.RoundTripper }

func (n noWebSockets) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Header.Get("Upgrade") != "" {
		return nil, errors.New("blocked")
	}
	return n.RoundTripper.RoundTrip(request)
}

func TestNodeFallsBackToServerSentEvents(t *testing.T) {
	t.Parallel()
	needNode(t)
	d := device(t, node.URL, "blocked", func(o *client.Options) {
		o.HTTPClient = &http.Client{Transport: noWebSockets{http.DefaultTransport}}
	})
	if d.State().Transport != client.SSE {
		t.Errorf("%v", d.State())
	}
	publish(t, backend(t, node), toUser(d), "through")
	shows(t, d, "through")
}

func TestNodeACloseSendsAcknowledgements(t *testing.T) {
	t.Parallel()
	needNode(t)
	b := backend(t, node)
	for _, transport := range []client.Transport{client.WebSocket, client.SSE} {
		d := device(t, node.URL, "acked-"+string(transport), func(o *client.Options) { o.Transports = []client.Transport{transport} })
		for i := range 30 {
			publish(t, b, toUser(d), fmt.Sprint(i))
		}
		shows(t, d, numbers("", 0, 30)...)
		check(t, d.Close(t.Context()))
		d.Connect()
		until(t, "the connection", func() bool { return d.Is(client.StatusConnected) })
		inboxIsEmpty(t, d)
		shows(t, d, numbers("", 0, 30)...)
	}
}

func TestNodeAHandlerThatFailsGetsTheMessageAgain(t *testing.T) {
	t.Parallel()
	needNode(t)
	d, err := recorder.New(node.URL, "failing", nil)
	check(t, err)
	defer d.End()
	failed := make(chan struct{}, 10)
	d.Connect()
	until(t, "failing to be connected", func() bool { return d.Is(client.StatusConnected) })
	calls := 0
	cause := errors.New("the disk is full")
	d.OnMessage(func(context.Context, *client.Message) error {
		calls++
		failed <- struct{}{}
		if calls == 1 {
			return cause
		}
		return nil
	})
	publish(t, backend(t, node), toUser(d), "x")
	<-failed
	until(t, "the error", func() bool { return len(d.Errors()) == 1 })
	if e := d.Errors()[0]; e.Code != client.CodeListenerFailed || !errors.Is(e, cause) {
		t.Errorf("%v", e)
	}
	check(t, d.Close(t.Context()))
	d.Connect()
	<-failed
	inboxIsEmpty(t, d)
}

func TestNodeItemsPreferencesAndVariants(t *testing.T) {
	t.Parallel()
	needNode(t)
	b := backend(t, node)
	ctx := t.Context()
	_, err := b.App(testnode.App).PutExperiment(ctx, "go-checkout", noroshi.NewExperiment{
		Variants: []noroshi.ExperimentVariant{{Name: "green", Weight: 1, Data: json.RawMessage(`{"colour":"#0a0"}`)}},
	})
	check(t, err)
	d := device(t, node.URL, "centre", nil)
	counts := make(chan client.ItemCounts, 100)
	d.OnUnread(func(c client.ItemCounts) { counts <- c })
	if c := <-counts; c.Unread != 0 {
		t.Errorf("%+v", c)
	}
	var ids []string
	for n := range 3 {
		receipt, err := b.Publish(ctx, noroshi.Notification{To: toUser(d), Notification: &noroshi.Shown{Title: fmt.Sprint(n)}, Data: "item", Item: &noroshi.NewItem{Category: "orders"}})
		check(t, err)
		ids = append(ids, receipt.ID)
	}
	until(t, "three unread", func() bool { c, ok := d.Unread(); return ok && c.Unread == 3 && c.Categories["orders"] == 3 })
	page, err := d.ListItems(ctx, client.ItemsQuery{Limit: 2})
	check(t, err)
	if len(page.Items) != 2 || page.Items[0].ID != ids[2] || page.Next == "" {
		t.Errorf("%+v", page)
	}
	var listed []string
	for item, err := range d.Items(ctx, client.ItemsQuery{Limit: 1}) {
		check(t, err)
		listed = append(listed, item.ID)
	}
	slices.Reverse(listed)
	if !slices.Equal(listed, ids) {
		t.Errorf("%q", listed)
	}
	changed := func(what func(context.Context, client.Which) (*client.ItemsChanged, error), which client.Which, want, unread int64) {
		t.Helper()
		answer, err := what(ctx, which)
		check(t, err)
		if answer.Changed != want || answer.Unread != unread {
			t.Errorf("%+v", answer)
		}
	}
	changed(d.MarkRead, client.IDs(ids[0]), 1, 2)
	changed(d.MarkRead, client.UpToIn("orders", ids[2]), 2, 0)
	changed(d.MarkUnread, client.IDs(ids...), 3, 3)
	changed(d.MarkRead, client.UpTo(ids[1]), 2, 1)
	many := append(slices.Repeat([]string{"01a2190e-8a64-7000-9ea3-000000000001"}, 150), ids[0], ids[1])
	changed(d.Archive, client.IDs(many...), 2, 1)
	changed(d.Unarchive, client.IDs(ids[0]), 1, 1)
	if c, err := d.Counts(ctx); err != nil || c.Unread != 1 {
		t.Errorf("%+v %v", c, err)
	}

	d.Opened(ids[0])
	until(t, "the report", func() bool {
		trace, err := b.Trace(ctx, ids[0], "centre")
		check(t, err)
		return slices.ContainsFunc(trace.Steps, func(s noroshi.TraceStep) bool { return s.Outcome == noroshi.OutcomeOpened })
	})

	stored, err := d.SetPreferences(ctx, client.Preferences{MutedTopics: []string{"x"}})
	check(t, err)
	if !slices.Equal(stored.MutedTopics, []string{"x"}) {
		t.Errorf("%+v", stored)
	}
	check(t, d.ClearPreferences(ctx))
	if p, err := d.Preferences(ctx); err != nil || p.MutedTopics != nil {
		t.Errorf("%+v %v", p, err)
	}
	_, err = d.SetUserPreferences(ctx, client.Preferences{QuietHours: &client.QuietHours{From: "25:00", To: "07:00"}})
	var failed *client.Error
	if !errors.As(err, &failed) || failed.Status != 400 || failed.Code != client.CodeInvalidField || failed.RequestID == "" {
		t.Errorf("%v", err)
	}

	check(t, d.SubscribeDurably(ctx, "durable/a"))
	me, err := d.ChangeMe(ctx, client.DeviceChange{Locale: client.Set("ja-JP"), Tags: client.Set(map[string]*string{"plan": new("gold")})})
	check(t, err)
	if me.Device != "centre" || me.Locale != "ja-JP" || me.Tags["plan"] != "gold" || !slices.Equal(me.Topics, []string{"durable/a"}) {
		t.Errorf("%+v", me)
	}
	check(t, d.UnsubscribeDurably(ctx, "durable/a"))
	me, err = d.ChangeMe(ctx, client.DeviceChange{Locale: client.Null[string](), Tags: client.Set(map[string]*string{"plan": nil})})
	check(t, err)
	if me.Locale != "" || len(me.Tags) != 0 {
		t.Errorf("%+v", me)
	}
	variant, err := d.Variant(ctx, "go-checkout")
	check(t, err)
	if variant == nil || variant.Variant != "green" || string(variant.Data) != `{"colour":"#0a0"}` {
		t.Errorf("%+v", variant)
	}
	if variant, err := d.PeekVariant(ctx, "another"); variant != nil || err != nil {
		t.Errorf("%+v %v", variant, err)
	}
	check(t, d.SetPushToken(ctx, client.PushTokenKindVoip, "", client.NewPushToken{Token: "00fc13ad", Environment: client.PushEnvironmentSandbox}))
	if tokens, err := d.PushTokens(ctx); err != nil || len(tokens.PushTokens) != 1 {
		t.Errorf("%+v %v", tokens, err)
	}
	check(t, d.RemovePushToken(ctx, client.PushTokenKindVoip, ""))
	if len(d.Errors()) != 0 {
		t.Errorf("%v", d.Errors())
	}
}

// Reports of opened messages survive the process.
func TestNodeReportsSurvive(t *testing.T) {
	t.Parallel()
	needNode(t)
	b := backend(t, node)
	path := filepath.Join(t.TempDir(), "opened.json")
	proxy, err := testnode.NewProxy(node.Port())
	check(t, err)
	defer proxy.Stop()
	withFile := func(o *client.Options) { o.Reports = client.FileReports(path) }
	d := device(t, proxy.URL, "reporter", withFile)
	id := publish(t, b, toUser(d), "x")
	shows(t, d, "x")
	proxy.Cut()
	d.Opened(id)
	until(t, "the file", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && string(text) == `["`+id+`"]`
	})
	d.End()
	check(t, proxy.Heal())
	later := device(t, proxy.URL, "reporter", withFile)
	until(t, "the report", func() bool {
		trace, err := b.Trace(t.Context(), id, "reporter")
		check(t, err)
		return slices.ContainsFunc(trace.Steps, func(s noroshi.TraceStep) bool { return s.Outcome == noroshi.OutcomeOpened })
	})
	check(t, later.Close(t.Context()))
	if text, err := os.ReadFile(path); err != nil || string(text) != "[]" {
		t.Errorf("%s %v", text, err)
	}
}

// A long recovery, faster than the handler, does not disconnect.
func TestNodeABurstDoesNotDisconnect(t *testing.T) {
	t.Parallel()
	n := own(t)
	b := backend(t, n)
	d, err := recorder.New(n.URL, "burst", nil)
	check(t, err)
	defer d.End()
	d.Subscribe("burst", client.SubscribeOptions{Recover: true, OnMessage: func(context.Context, *client.Message) error {
		time.Sleep(time.Millisecond)
		return nil
	}})
	d.Connect()
	until(t, "burst to be connected", func() bool { return d.Is(client.StatusConnected) })
	until(t, "the subscription", func() bool {
		publish(t, b, noroshi.To{Topic: "burst"}, "probe")
		return len(d.Shown()) > 0
	})
	check(t, d.Close(t.Context()))
	d.Forget()
	all := func(yield func(noroshi.Notification) bool) {
		for i := range 3000 {
			if !yield(noroshi.Notification{To: noroshi.To{Topic: "burst"}, Data: fmt.Sprint(i)}) {
				return
			}
		}
	}
	for result, err := range b.PublishBatch(t.Context(), all) {
		check(t, err)
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	d.Connect()
	// A probe that arrived last may arrive again.
	withoutProbes := func() []string {
		return slices.DeleteFunc(d.Shown(), func(text string) bool { return text == "probe" })
	}
	until(t, "3,000 messages", func() bool { return len(withoutProbes()) >= 3000 })
	if got := withoutProbes(); !slices.Equal(got, numbers("", 0, 3000)) {
		t.Errorf("%d messages: %q", len(got), got)
	}
	if len(d.Errors()) != 0 {
		t.Errorf("%v", d.Errors())
	}
	if r := d.Recovered(); len(r) == 0 || r[len(r)-1].Completeness != client.Complete {
		t.Errorf("%+v", r)
	}
}
