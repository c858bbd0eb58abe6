// Package noroshi is for backends that send notifications with Noroshi, the self-hosted push notification service.
//
//	c, err := noroshi.New(noroshi.Options{URL: "https://push.example.com", Key: os.Getenv("NOROSHI_KEY")})
//	if err != nil {
//		return err
//	}
//	receipt, err := c.Publish(ctx, noroshi.Notification{
//		To:           noroshi.To{Users: []string{"u1"}},
//		Notification: &noroshi.Shown{Title: "Hello"},
//	})
//
// Types are generated from the OpenAPI document of the service. A field that the service needs not to be absent, but that has a
// meaningful zero value, is a pointer: Relevance: new(0.5). A field of a change is an [Optional], because null clears it.
//
// # Retries
//
// A request is repeated after a network error and after the statuses 408, 425, 429, 500, 502, 503 and 504: after a random part of a
// backoff that doubles, or after the Retry-After of the answer, up to [Options.Attempts] and [Options.Deadline]. Requests that create
// something have an Idempotency-Key, the same in each attempt. A request that must not happen twice and has no such key is repeated
// only if the service has certainly not processed it.
//
// # Errors
//
// An answer that is not a success is an [*Error] with the stable code of the problem document. A request without an answer is a
// [*NetworkError].
//
//	var failed *noroshi.Error
//	if errors.As(err, &failed) && failed.Code == noroshi.CodeQuotaExceeded { … }
//
// # Names
//
// The folder is called server because the module also has a client for devices; the package is called noroshi because that is what a
// backend calls: noroshi.New, noroshi.Notification. Import it as
//
//	import noroshi "github.com/noroshi/noroshi/sdks/go/server"
package noroshi
