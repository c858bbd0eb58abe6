package noroshi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

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
		os.Setenv("NOROSHI_KEY", testnode.Key)
		return m.Run()
	}()
	os.Exit(code)
}

func connect(t *testing.T) *noroshi.Client {
	t.Helper()
	if node == nil {
		t.Skip("NOROSHI_BIN does not name a node")
	}
	c, err := noroshi.New(noroshi.Options{URL: node.URL, Key: testnode.Key})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestNodePublishes(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	registered := must(c.RegisterDevice(ctx, noroshi.DeviceRegistration{Device: "phone", User: "ann", Platform: noroshi.PlatformIOS, Topics: []string{"a/b"}}))(t)
	if registered.Device != "phone" || registered.Token == "" {
		t.Errorf("%+v", registered)
	}
	notification := noroshi.Notification{
		To: noroshi.To{Users: []string{"ann", "nobody"}}, Notification: &noroshi.Shown{Title: "Hello", Badge: 1}, Data: map[string]any{"n": 1},
		TTL: noroshi.For(time.Hour), Item: &noroshi.NewItem{Category: "orders"},
	}
	receipt := must(c.Publish(ctx, notification, noroshi.IdempotencyKey("k1")))(t)
	if receipt.Targets == nil || *receipt.Targets != 2 {
		t.Errorf("%+v", receipt)
	}
	if again := must(c.Publish(ctx, notification, noroshi.IdempotencyKey("k1")))(t); again.ID != receipt.ID {
		t.Errorf("the key published %s and %s", receipt.ID, again.ID)
	}
	notification.Data = 2
	_, err := c.Publish(ctx, notification, noroshi.IdempotencyKey("k1"))
	var failed *noroshi.Error
	if !errors.As(err, &failed) || failed.Code != noroshi.CodeIdempotencyConflict || failed.Status != http.StatusConflict || failed.RequestID == "" {
		t.Errorf("%v", err)
	}
	_, err = c.Publish(ctx, noroshi.Notification{To: noroshi.To{Users: []string{"ann"}}, TTL: "1000d", Data: 1})
	if !errors.As(err, &failed) || failed.Code != noroshi.CodeInvalidField || failed.Field != "ttl" {
		t.Errorf("%v", err)
	}

	state := must(c.Notification(ctx, receipt.ID))(t)
	if state.Target.Kind != noroshi.TargetKindUsers || time.Since(state.SentAt) > time.Minute {
		t.Errorf("%+v", state)
	}
	trace := must(c.Trace(ctx, receipt.ID, "phone"))(t)
	if !trace.InInbox || trace.TargetedBy != noroshi.TraceTargetedByUser || len(trace.Steps) == 0 {
		t.Errorf("%+v", trace)
	}
	listed := 0
	for one, err := range c.Notifications(ctx, noroshi.NotificationsQuery{User: "ann", Since: time.Now().Add(-time.Hour), Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if one.ID == receipt.ID {
			listed++
		}
	}
	if listed != 1 {
		t.Errorf("the notification was listed %d times", listed)
	}
	if items := must(c.ListUserItems(ctx, "ann", noroshi.ItemsOfUserQuery{}))(t); len(items.Items) != 1 || items.Items[0].Notification.Title != "Hello" {
		t.Errorf("%+v", items)
	}
	if counts := must(c.UserItemCounts(ctx, "ann"))(t); counts.Unread != 1 || counts.Categories["orders"] != 1 {
		t.Errorf("%+v", counts)
	}
	if cancelled := must(c.Cancel(ctx, receipt.ID))(t); cancelled.ID != receipt.ID {
		t.Errorf("%+v", cancelled)
	}
	if deleted := must(c.DeleteUserItems(ctx, "ann"))(t); deleted.Deleted != 1 {
		t.Errorf("%+v", deleted)
	}

	must(c.Publish(ctx, noroshi.Notification{To: noroshi.To{Topic: "a/b"}, Data: "kept", Retain: true}))(t)
	if retained := must(c.Retained(ctx, "a/b"))(t); string(retained.Data) != `"kept"` || retained.Topic != "a/b" {
		t.Errorf("%+v", retained)
	}
	if topic := must(c.Topic(ctx, "a/b"))(t); topic.Topic != "a/b" {
		t.Errorf("%+v", topic)
	}
	if err := c.DeleteRetained(ctx, "a/b"); err != nil {
		t.Error(err)
	}
	if _, err := c.Retained(ctx, "a/b"); !errors.As(err, &failed) || failed.Code != noroshi.CodeNotFound {
		t.Errorf("%v", err)
	}
	if users := must(c.Presence(ctx, "ann", "nobody"))(t); users["ann"].Presence != noroshi.PresenceOffline || len(users) != 2 {
		t.Errorf("%+v", users)
	}
	if permission := must(c.TopicPermission(ctx, "phone", "a/b", ""))(t); permission.Decision != noroshi.TopicDecisionAllowed {
		t.Errorf("%+v", permission)
	}
}

func TestNodeBatches(t *testing.T) {
	c := connect(t)
	devices := make([]noroshi.DeviceRegistration, 25)
	for n := range devices {
		devices[n] = noroshi.DeviceRegistration{Device: fmt.Sprintf("b%02d", n), User: "batch"}
	}
	devices[7].Locale = "not a locale"
	count := 0
	for result, err := range c.ImportDevices(t.Context(), slices.Values(devices)) {
		if err != nil {
			t.Fatal(err)
		}
		if (result.Err != nil) != (result.Line == 7) || result.Err == nil && result.Value.Device != devices[result.Line].Device {
			t.Errorf("%+v", result)
		}
		count++
	}
	if count != 25 {
		t.Errorf("%d results", count)
	}
	seen := 0
	for device, err := range c.Devices(t.Context(), noroshi.DevicesQuery{User: "batch", Limit: 10}) {
		if err != nil {
			t.Fatal(err)
		}
		if device.User == "batch" {
			seen++
		}
	}
	if seen != 24 {
		t.Errorf("%d devices", seen)
	}
	many := func(yield func(noroshi.Notification) bool) {
		for n := range 1200 {
			to := noroshi.To{Devices: []string{"b00"}}
			if n == 1100 {
				to = noroshi.To{}
			}
			if !yield(noroshi.Notification{To: to, Data: n, When: noroshi.WhenActive}) {
				return
			}
		}
	}
	ids := map[string]bool{}
	for range 2 { // the second time returns the same receipts
		for result, err := range c.PublishBatch(t.Context(), many, noroshi.IdempotencyKey("batch-1")) {
			if err != nil {
				t.Fatal(err)
			}
			if (result.Err != nil) != (result.Line == 1100) {
				t.Fatalf("%+v", result)
			}
			if result.Err == nil {
				ids[result.Value.ID] = true
			}
		}
	}
	if len(ids) != 1199 {
		t.Errorf("%d notifications", len(ids))
	}
}

func TestNodeManagesDevicesAndPreferences(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	must(c.RegisterDevice(ctx, noroshi.DeviceRegistration{Device: "m1", User: "mia"}))(t)
	device := must(c.Device(ctx, "m1"))(t)
	if device.User != "mia" || device.Platform != "" || device.PushToken != nil {
		t.Errorf("%+v", device)
	}
	if err := c.SetDevicePushToken(ctx, "m1", noroshi.PushTokenKindFCM, "", noroshi.NewPushToken{Token: "t"}); err != nil {
		t.Error(err)
	}
	if tokens := must(c.DevicePushTokens(ctx, "m1"))(t); len(tokens.PushTokens) != 1 {
		t.Errorf("%+v", tokens)
	}
	if err := c.RemoveDevicePushToken(ctx, "m1", noroshi.PushTokenKindFCM, ""); err != nil {
		t.Error(err)
	}
	preferences := noroshi.Preferences{
		Channels: []noroshi.PreferenceChannel{noroshi.PreferenceChannelLive}, Categories: map[string]noroshi.CategoryPreference{"ads": {Muted: new(true), DailyMax: new(int64(2))}},
		QuietHours: &noroshi.QuietHours{From: "22:00", To: "07:00"},
	}
	for name, set := range map[string]func() (*noroshi.Preferences, error){
		"user":   func() (*noroshi.Preferences, error) { return c.SetUserPreferences(ctx, "mia", preferences) },
		"device": func() (*noroshi.Preferences, error) { return c.SetDevicePreferences(ctx, "m1", preferences) },
	} {
		stored := must(set())(t)
		if !*stored.Categories["ads"].Muted || stored.QuietHours.From != "22:00" {
			t.Errorf("%s: %+v", name, stored)
		}
	}
	must(c.UserPreferences(ctx, "mia"))(t)
	if err := errors.Join(c.ClearUserPreferences(ctx, "mia"), c.ClearDevicePreferences(ctx, "m1")); err != nil {
		t.Error(err)
	}
	must(c.RevokeDevice(ctx, "m1"))(t)
	must(c.RevokeUser(ctx, "mia"))(t)
	if err := c.DeleteDevice(ctx, "m1"); err != nil {
		t.Error(err)
	}
	var failed *noroshi.Error
	if _, err := c.Device(ctx, "m1"); !errors.As(err, &failed) || failed.Status != 404 {
		t.Errorf("%v", err)
	}
}

func TestNodeRunsCampaigns(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	must(c.RegisterDevice(ctx, noroshi.DeviceRegistration{Device: "c1", User: "cam", Topics: []string{"campaign"}}))(t)
	campaign := noroshi.NewCampaign{
		Name: "spring", Audience: noroshi.Audience{Topic: "campaign"}, Message: noroshi.CampaignMessage{Notification: &noroshi.Shown{Title: "Spring"}}, Start: new(false),
	}
	if count := must(c.CountCampaign(ctx, campaign))(t); count.Devices != 1 {
		t.Errorf("%+v", count)
	}
	created := must(c.CreateCampaign(ctx, campaign, noroshi.IdempotencyKey("spring")))(t)
	if again := must(c.CreateCampaign(ctx, campaign, noroshi.IdempotencyKey("spring")))(t); again.ID != created.ID {
		t.Error("the key created two campaigns")
	}
	must(c.StartCampaign(ctx, created.ID, 0))(t)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		state := must(c.Campaign(ctx, created.ID))(t)
		if state.State == noroshi.CampaignStateDone {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", state)
		}
	}
	upload := must(c.CreateCampaign(ctx, noroshi.NewCampaign{Audience: noroshi.Audience{Upload: true}, Message: campaign.Message}))(t)
	for result, err := range c.UploadRecipients(ctx, upload.ID, slices.Values([]noroshi.Recipient{{User: "cam"}, {User: ""}})) {
		if err != nil {
			t.Fatal(err)
		}
		if (result.Err != nil) != (result.Line == 1) {
			t.Errorf("%+v", result)
		}
	}
	must(c.AbortCampaign(ctx, upload.ID))(t)
	names := []string{}
	for one, err := range c.Campaigns(ctx, noroshi.CampaignsQuery{Name: "SPRING"}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, one.Name)
	}
	if !slices.Equal(names, []string{"spring"}) {
		t.Errorf("%q", names)
	}
}

func TestNodeManagesTheApp(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	app := c.App(testnode.App)
	if got := must(app.Get(ctx))(t); got.Name != testnode.App {
		t.Errorf("%+v", got)
	}
	experiment := must(app.PutExperiment(ctx, "checkout", noroshi.NewExperiment{Variants: []noroshi.ExperimentVariant{
		{Name: "green", Weight: 1, Data: json.RawMessage(`{"color": "green"}`)}, {Name: "blue", Weight: 1},
	}}))(t)
	if experiment.Name != "checkout" {
		t.Errorf("%+v", experiment)
	}
	must(app.ChangeExperiment(ctx, "checkout", noroshi.ExperimentChange{Killed: true}))(t)
	if err := app.ArchiveExperiment(ctx, "checkout"); err != nil {
		t.Error(err)
	}
	key := must(app.CreateKey(ctx, noroshi.NewKey{Name: "reader", Scopes: []noroshi.Scope{noroshi.ScopeRead}}))(t)
	reader, err := noroshi.New(noroshi.Options{URL: node.URL, Key: key.Key})
	if err != nil {
		t.Fatal(err)
	}
	var failed *noroshi.Error
	if _, err := reader.Publish(ctx, noroshi.Notification{To: noroshi.To{Everyone: true}, Data: 1}); !errors.As(err, &failed) || failed.Code != noroshi.CodeForbidden {
		t.Errorf("%v", err)
	}
	if err := app.RevokeKey(ctx, key.ID); err != nil {
		t.Error(err)
	}
	if _, err := reader.ListTopics(ctx, noroshi.TopicsQuery{}); !errors.As(err, &failed) || failed.Code != noroshi.CodeUnauthorized {
		t.Errorf("%v", err)
	}
	rules := noroshi.TopicRules{Subscribe: []noroshi.TopicRule{{Topic: "#", Allow: noroshi.TopicRuleAllowAnyone}}}
	must(app.SetTopicRules(ctx, rules))(t)
	if got := must(app.TopicRules(ctx))(t); len(got.Subscribe) != 1 {
		t.Errorf("%+v", got)
	}
	if err := app.DeleteTopicRules(ctx); err != nil {
		t.Error(err)
	}
	must(app.PutNotice(ctx, "update", noroshi.NewNotice{StartsAt: time.Now().Add(time.Hour), EndsAt: time.Now().Add(2 * time.Hour), Notification: &noroshi.Shown{Title: "Maintenance"}}))(t)
	if err := app.EndNotice(ctx, "update"); err != nil {
		t.Error(err)
	}
	must(app.Quotas(ctx))(t)
	if series := must(app.Series(ctx, noroshi.AppSeriesQuery{}))(t); series.StepSeconds == 0 {
		t.Errorf("%+v", series)
	}
	must(app.Keys(ctx))(t)
	must(app.PushCredentials(ctx))(t)
}

// me asks the node who a token belongs to.
func me(t *testing.T, token string) (status int, device string) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, node.URL+"/v1/me", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var body struct{ Device string }
	_ = json.NewDecoder(response.Body).Decode(&body)
	return response.StatusCode, body.Device
}

func TestNodeAcceptsJWTs(t *testing.T) {
	c := connect(t)
	signer, err := noroshi.NewSigner([]byte(testnode.JWTSecret))
	if err != nil {
		t.Fatal(err)
	}
	token := must(signer.Sign(noroshi.DeviceClaims{User: "jay", Device: "jwt-1", Lifetime: time.Minute, Topics: []string{"news"}}))(t)
	if status, device := me(t, token); status != 200 || device != "jwt-1" {
		t.Errorf("%d %s", status, device)
	}
	wrong, err := noroshi.NewSigner([]byte("another-secret-of-thirty-two-bytes"))
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := me(t, must(wrong.Sign(noroshi.DeviceClaims{User: "jay", Device: "jwt-1", Lifetime: time.Minute}))(t)); status != 401 {
		t.Errorf("a wrong signature: %d", status)
	}
	// ES256, with the public key in the app.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	jwk := map[string]any{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k1",
		"x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:]),
	}
	must(c.App(testnode.App).Change(t.Context(), noroshi.AppChange{JWKS: noroshi.Set(noroshi.AppChangeJWKS{Keys: []map[string]any{jwk}})}))(t)
	byKey, err := noroshi.NewKeySigner(key, "k1")
	if err != nil {
		t.Fatal(err)
	}
	if status, device := me(t, must(byKey.Sign(noroshi.DeviceClaims{User: "jay", Device: "jwt-2", Lifetime: time.Minute}))(t)); status != 200 || device != "jwt-2" {
		t.Errorf("%d %s", status, device)
	}
}
