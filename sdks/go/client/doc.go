// Package client connects a device to Noroshi, the self-hosted push notification service: it receives messages, subscribes to topics
// with recovery, and reads the notification centre of the user.
//
//	c, err := client.New(client.Options{
//		URL:   "https://push.example.com",
//		Token: func(ctx context.Context, _ client.TokenRequest) (string, error) { return fetchToken(ctx) },
//	})
//	if err != nil {
//		return err
//	}
//	c.OnMessage(func(ctx context.Context, m *client.Message) error {
//		return show(m)
//	})
//	return c.Run(ctx)
//
// The client reconnects, renews tokens, and acknowledges a message after its handler has returned nil. It shows each message once,
// whatever happens in between: a killed server, a lost network, an expired token.
//
// A read that the service answers with 429 or 503 and a time to wait is repeated after that time, at most twice and at most 30 seconds
// after the call, unless its context ends. A change is not repeated.
//
// # Handlers
//
// A handler is a function. Messages are passed to [Client.OnMessage] and to the handler of their topic one by one, in the order of
// arrival, each in a goroutine that is not the one of the connection. A handler may take its time: at most 1,000 messages wait, and
// then the client disconnects until the application has caught up. Handlers of other events run one after the other in another
// goroutine; they should return soon. At most 1,000 events wait, then the oldest are dropped and reported as [CodeQueueFull]. Every
// handler may call every method.
//
// All methods are safe for concurrent use.
package client
