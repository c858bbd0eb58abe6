package noroshi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func testClient(t *testing.T, handler http.Handler, change ...func(*Options)) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	options := Options{URL: server.URL, Key: "key"}
	for _, one := range change {
		one(&options)
	}
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func drain[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// Every operation of the document that takes an API key has a method, and every method is an operation of the document.
func TestEveryRouteHasAMethod(t *testing.T) {
	text, err := os.ReadFile("../../../crates/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]struct {
			ID       string                           `json:"operationId"`
			Security []map[string]any                 `json:"security"`
			Request  struct{ Content map[string]any } `json:"requestBody"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]string{}
	for path, operations := range document.Paths {
		for method, operation := range operations {
			takesKey := slices.ContainsFunc(operation.Security, func(one map[string]any) bool { _, ok := one["apiKey"]; return ok })
			// relay is for fronts of cells.
			if takesKey && operation.ID != "relay" {
				wanted[strings.ToUpper(method)+" "+path] = operation.ID
			}
		}
	}

	requested := map[string]bool{}
	c := testClient(t, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		requested[request.Method+" "+request.URL.EscapedPath()] = true
		if strings.HasSuffix(request.URL.Path, "/batch") || request.Method == "POST" && strings.HasSuffix(request.URL.Path, "/recipients") {
			body, _ := io.ReadAll(request.Body)
			fmt.Fprint(response, strings.Repeat("{}\n", strings.Count(string(body), "\n")))
			return
		}
		fmt.Fprint(response, "{}")
	}))
	ctx := t.Context()
	app := c.App("app")
	one := func(_ any, err error) error { return err }
	calls := []error{
		one(c.Publish(ctx, Notification{})), drain(c.PublishBatch(ctx, slices.Values([]Notification{{}}))), one(c.ListNotifications(ctx, NotificationsQuery{})),
		one(c.Notification(ctx, "id")), one(c.Cancel(ctx, "id")), one(c.Trace(ctx, "id", "device")), one(c.Presence(ctx, "u")),
		one(c.ListTopics(ctx, TopicsQuery{})), one(c.Topic(ctx, "topic")), one(c.Retained(ctx, "topic")), c.DeleteRetained(ctx, "topic"),
		one(c.TopicPermission(ctx, "device", "topic", TopicActionPublish)),
		one(c.RegisterDevice(ctx, DeviceRegistration{})), drain(c.ImportDevices(ctx, slices.Values([]DeviceRegistration{{}}))), one(c.ListDevices(ctx, DevicesQuery{})),
		one(c.Device(ctx, "device")), c.DeleteDevice(ctx, "device"), one(c.RevokeDevice(ctx, "device")), one(c.DevicePushTokens(ctx, "device")),
		c.SetDevicePushToken(ctx, "device", "kind", "", NewPushToken{}), c.RemoveDevicePushToken(ctx, "device", "kind", ""),
		c.SetDevicePushToken(ctx, "device", "kind", "name", NewPushToken{}), c.RemoveDevicePushToken(ctx, "device", "kind", "name"),
		one(c.DevicePreferences(ctx, "device")), one(c.SetDevicePreferences(ctx, "device", Preferences{})), c.ClearDevicePreferences(ctx, "device"),
		one(c.DeviceEndpoints(ctx, "device")), c.DeleteDeviceEndpoint(ctx, "device", "id"),
		one(c.RevokeUser(ctx, "user")), one(c.ListUserItems(ctx, "user", ItemsOfUserQuery{})), one(c.DeleteUserItems(ctx, "user")), one(c.UserItemCounts(ctx, "user")),
		one(c.UserPreferences(ctx, "user")), one(c.SetUserPreferences(ctx, "user", Preferences{})), c.ClearUserPreferences(ctx, "user"),
		one(c.ListInvalidations(ctx, InvalidationsQuery{})),
		one(c.CreateCampaign(ctx, NewCampaign{})), one(c.ListCampaigns(ctx, CampaignsQuery{})), one(c.Campaign(ctx, "id")), one(c.ChangeCampaign(ctx, "id", CampaignChange{})),
		c.DeleteCampaign(ctx, "id"), one(c.EstimateCampaign(ctx, "id")), one(c.CampaignRecipient(ctx, "id", "user")),
		drain(c.UploadRecipients(ctx, "id", slices.Values([]Recipient{{User: "u"}}))), one(c.StartCampaign(ctx, "id", 1)), one(c.PauseCampaign(ctx, "id")),
		one(c.ResumeCampaign(ctx, "id")), one(c.AbortCampaign(ctx, "id")),
		one(c.StartActivity(ctx, NewActivity{})), one(c.ListActivities(ctx, ActivitiesQuery{})), one(c.Activity(ctx, "id")), one(c.UpdateActivity(ctx, "id", ActivityUpdate{})),
		one(c.EndActivity(ctx, "id", ActivityEnd{})), one(c.ActivityDevice(ctx, "id", "device")),
		one(c.ListChannels(ctx, ChannelsQuery{})), one(c.CreateChannel(ctx, NewChannel{})), one(c.Channel(ctx, "name")), one(c.ChangeChannel(ctx, "name", ChannelChange{})),
		c.DeleteChannel(ctx, "name"), one(c.Broadcast(ctx, "name", NewBroadcast{})), one(c.BroadcastState(ctx, "id")), one(c.AppleChannels(ctx, "")), c.DeleteAppleChannel(ctx, "id", "sandbox"),
		one(app.Get(ctx)), one(app.Change(ctx, AppChange{})), one(app.Keys(ctx)), one(app.CreateKey(ctx, NewKey{})), app.RevokeKey(ctx, "key"), one(app.Quotas(ctx)),
		one(app.PushCredentials(ctx)), one(app.AddPushCredential(ctx, NewPushCredential{})), app.RemovePushCredential(ctx, "id"), one(app.TestPushCredential(ctx, "id", PushTest{})),
		one(app.RotatePushCredential(ctx, "id", PushRotation{})), one(app.RestorePushTokens(ctx, "id", RestoreTokens{})),
		one(app.ListExperiments(ctx, ExperimentsQuery{})), one(app.Experiment(ctx, "name")), one(app.PutExperiment(ctx, "name", NewExperiment{})),
		one(app.ChangeExperiment(ctx, "name", ExperimentChange{})), app.ArchiveExperiment(ctx, "name"), one(app.ExperimentAssigned(ctx, "name", "device")),
		one(app.ListNotices(ctx, NoticesQuery{})), one(app.Notice(ctx, "name")), one(app.PutNotice(ctx, "name", NewNotice{})), app.EndNotice(ctx, "name"),
		one(app.TopicRules(ctx)), one(app.SetTopicRules(ctx, TopicRules{})), app.DeleteTopicRules(ctx), one(app.Series(ctx, AppSeriesQuery{})),
	}
	for n, err := range calls {
		if err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	}
	// In these calls each part of a path has the name of its parameter.
	parameter := regexp.MustCompile(`\{(\w+)\}`)
	for route, id := range wanted {
		if !requested[parameter.ReplaceAllString(route, "$1")] {
			t.Errorf("no method requests %s (%s)", route, id)
		}
	}
	if len(requested) != len(wanted) {
		routes := map[string]bool{}
		for route := range wanted {
			routes[parameter.ReplaceAllString(route, "$1")] = true
		}
		for route := range maps.Keys(requested) {
			if !routes[route] {
				t.Errorf("%s is not in the document", route)
			}
		}
	}
}

func TestPathsAreEscaped(t *testing.T) {
	var seen []string
	c := testClient(t, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		seen = append(seen, request.URL.EscapedPath())
		fmt.Fprint(response, "{}")
	}), func(o *Options) { o.URL += "/base/" })
	for _, topic := range []string{"a/b", "ü ?#%", "..."} {
		if _, err := c.Topic(t.Context(), topic); err != nil {
			t.Error(err)
		}
	}
	want := []string{"/base/v1/topics/a%2Fb", "/base/v1/topics/%C3%BC%20%3F%23%25", "/base/v1/topics/..."}
	if !slices.Equal(seen, want) {
		t.Errorf("requested %q", seen)
	}
	// A path without the segment, or with a segment that proxies resolve, would be another route.
	for _, topic := range []string{"", ".", ".."} {
		if _, err := c.Topic(t.Context(), topic); err == nil {
			t.Errorf("%q was accepted", topic)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("requested %q", seen)
	}
}

func TestPages(t *testing.T) {
	var seen []string
	c := testClient(t, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		after := request.URL.Query().Get("after")
		seen = append(seen, after)
		fmt.Fprint(response, map[string]string{
			"":  `{"devices": [{"device": "d1"}, {"device": "d2"}], "next": "2"}`,
			"2": `{"devices": [], "next": "3"}`,
			"3": `{"devices": [{"device": "d3"}], "next": null}`,
		}[after])
	}))
	var names []string
	for device, err := range c.Devices(t.Context(), DevicesQuery{User: "u1"}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, device.Device)
	}
	if !slices.Equal(names, []string{"d1", "d2", "d3"}) || !slices.Equal(seen, []string{"", "2", "3"}) {
		t.Errorf("devices %q of the pages %q", names, seen)
	}
	seen = nil
	for range c.Devices(t.Context(), DevicesQuery{}) {
		break
	}
	if len(seen) != 1 {
		t.Errorf("a loop that ended read the pages %q", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := drain(c.Devices(ctx, DevicesQuery{})); err == nil {
		t.Error("a cancelled context is no error")
	}
}
