package noroshi_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	noroshi "github.com/noroshi/noroshi/sdks/go/server"
)

func newClient() *noroshi.Client {
	c, err := noroshi.New(noroshi.Options{URL: os.Getenv("NOROSHI_URL"), Key: os.Getenv("NOROSHI_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func Example() {
	c, err := noroshi.New(noroshi.Options{URL: os.Getenv("NOROSHI_URL"), Key: os.Getenv("NOROSHI_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := c.Publish(context.Background(), noroshi.Notification{
		To:           noroshi.To{Users: []string{"u1"}},
		Notification: &noroshi.Shown{Title: "Your order has left", URL: "https://shop.example.com/orders/7"},
		TTL:          "24h",
	}, noroshi.IdempotencyKey("order-7-left"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("users:", *receipt.Targets)
	// Output: users: 1
}

func ExampleNew() {
	c, err := noroshi.New(noroshi.Options{
		URL: "https://push.example.com",
		Key: os.Getenv("NOROSHI_KEY"),
		// A record of each attempt, failed ones at the level Warn.
		Logger: slog.Default(),
		// A notification gets ten seconds, whatever happens.
		Deadline: 10 * time.Second,
	})
	fmt.Println(c != nil, err)
	// Output: true <nil>
}

func ExampleError() {
	_, err := newClient().Publish(context.Background(), noroshi.Notification{
		To:   noroshi.To{Topic: "no/+/wildcards"},
		Data: "x",
	})
	var failed *noroshi.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Status, failed.Code, failed.Field)
	}
	// Output: 400 invalid_field to.topic
}

func ExampleClient_PublishBatch() {
	notifications := []noroshi.Notification{
		{To: noroshi.To{Users: []string{"u1"}}, Notification: &noroshi.Shown{Title: "One"}},
		{To: noroshi.To{Users: []string{"u2"}}},
	}
	for result, err := range newClient().PublishBatch(context.Background(), slices.Values(notifications)) {
		if err != nil {
			log.Fatal(err) // the request failed
		}
		if result.Err != nil {
			fmt.Println(result.Line, result.Err.Code)
			continue
		}
		fmt.Println(result.Line, "accepted")
	}
	// Output:
	// 0 accepted
	// 1 invalid_field
}

func ExampleClient_Devices() {
	c := newClient()
	ctx := context.Background()
	for _, name := range []string{"tablet", "watch"} {
		if _, err := c.RegisterDevice(ctx, noroshi.DeviceRegistration{Device: name, User: "u9"}); err != nil {
			log.Fatal(err)
		}
	}
	var names []string
	for device, err := range c.Devices(ctx, noroshi.DevicesQuery{User: "u9"}) {
		if err != nil {
			log.Fatal(err)
		}
		names = append(names, device.Device)
	}
	slices.Sort(names)
	fmt.Println(names)
	// Output: [tablet watch]
}

func ExampleSigner_Sign() {
	signer, err := noroshi.NewSigner([]byte("the secret of the app, at least 32 bytes"))
	if err != nil {
		log.Fatal(err)
	}
	token, err := signer.Sign(noroshi.DeviceClaims{User: "u1", Device: "d1", Lifetime: time.Hour, IssuedAt: time.Unix(1_767_225_600, 0)})
	fmt.Println(token[:20], err)
	// Output: eyJhbGciOiJIUzI1NiIs <nil>
}

func ExampleWebhook_Handler() {
	webhook, err := noroshi.NewWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /events", webhook.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The signature is valid. r.Body has one event a line.
		w.WriteHeader(http.StatusNoContent)
	})))
}

func ExampleWebhook_TopicHandler() {
	webhook, err := noroshi.NewWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/topics", webhook.TopicHandler(func(_ context.Context, q noroshi.TopicQuestion) (noroshi.TopicAnswer, error) {
		return noroshi.TopicAnswer{Allow: q.Topic == "room/"+q.User, ExpiresIn: "5m"}, nil
	}, slog.Default()))
}
