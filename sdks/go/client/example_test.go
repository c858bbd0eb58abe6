package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client"
	"github.com/noroshi/noroshi/sdks/go/internal/testnode"
	noroshi "github.com/noroshi/noroshi/sdks/go/server"
)

// send is the backend.
func send(to noroshi.To, title string) {
	c, err := noroshi.New(noroshi.Options{URL: os.Getenv("NOROSHI_URL"), Key: testnode.Key})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Publish(context.Background(), noroshi.Notification{
		To: to, Notification: &noroshi.Shown{Title: title}, Data: map[string]string{"headline": title}, Item: &noroshi.NewItem{},
	})
	if err != nil {
		log.Fatal(err)
	}
}

func fetchToken(context.Context, client.TokenRequest) (string, error) {
	return os.Getenv("NOROSHI_TOKEN"), nil
}

func Example() {
	c, err := client.New(client.Options{URL: os.Getenv("NOROSHI_URL"), Token: fetchToken})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c.OnMessage(func(_ context.Context, m *client.Message) error {
		if m.Notification.Title == "Hello" {
			fmt.Println(m.Notification.Title)
			cancel()
		}
		return nil // the message is acknowledged
	})
	send(noroshi.To{Users: []string{"user-of-example"}}, "Hello")
	if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
	// Output: Hello
}

func ExampleClient_Run() {
	c, err := client.New(client.Options{
		URL:   os.Getenv("NOROSHI_URL"),
		Token: func(context.Context, client.TokenRequest) (string, error) { return "", client.ErrSignedOut },
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(context.Background()); err != nil {
		log.Fatal(err) // such as the code replaced
	}
	fmt.Println(c.State())
	// Output: closed (signed_out)
}

func ExampleClient_Subscribe() {
	c, err := client.New(client.Options{URL: os.Getenv("NOROSHI_URL"), Token: fetchToken})
	if err != nil {
		log.Fatal(err)
	}
	c.Subscribe("news", client.SubscribeOptions{
		Recover: true,
		OnMessage: func(_ context.Context, m *client.Message) error {
			var article struct{ Headline string }
			if err := m.Decode(&article); err != nil {
				return err
			}
			fmt.Println(article.Headline)
			return nil
		},
		OnRecovered: func(r client.Recovered) {
			if r.Completeness != client.Complete {
				fmt.Println("read the current state from your own backend")
			}
		},
	})
}

func ExampleClient_Items() {
	c, err := client.New(client.Options{URL: os.Getenv("NOROSHI_URL"), Token: fetchToken})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	send(noroshi.To{Users: []string{"user-of-example"}}, "An item")
	for item, err := range c.Items(ctx, client.ItemsQuery{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(item.Notification.Title, item.State)
		if _, err := c.MarkRead(ctx, client.UpTo(item.ID)); err != nil {
			log.Fatal(err)
		}
		break // the newest one
	}
	// Output: An item unread
}
