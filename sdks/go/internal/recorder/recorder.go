// Package recorder connects devices to a test node and records what they show.
package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client"
	"github.com/noroshi/noroshi/sdks/go/internal/testnode"
	noroshi "github.com/noroshi/noroshi/sdks/go/server"
)

// Patience is how long Until waits: a slow machine makes a test slow, but never fail.
const Patience = 30 * time.Second

// Until waits until probe is true.
func Until(what string, probe func() bool) error {
	for deadline := time.Now().Add(Patience); !probe(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for: %s", Patience, what)
		}
	}
	return nil
}

// JWT returns an app JWT of the test node.
func JWT(device string, lifetime time.Duration) string {
	signer, err := noroshi.NewSigner([]byte(testnode.JWTSecret))
	if err != nil {
		panic(err)
	}
	token, err := signer.Sign(noroshi.DeviceClaims{User: User(device), Device: device, Lifetime: lifetime})
	if err != nil {
		panic(err)
	}
	return token
}

// User is the user of a device.
func User(device string) string { return "user-of-" + device }

// Device is a client with a record of what it showed.
type Device struct {
	*client.Client
	Name, User string
	// Lifetime of its tokens.
	Lifetime time.Duration

	mu        sync.Mutex
	shown     []string
	states    []client.State
	errs      []*client.Error
	recovered []client.Recovered
	gaps      []int
	asked     []string
}

// New returns a device that is connected to an address. change may be nil.
func New(url, name string, change func(*client.Options)) (*Device, error) {
	d := &Device{Name: name, User: User(name), Lifetime: time.Hour}
	options := client.Options{URL: url, Token: func(_ context.Context, request client.TokenRequest) (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked = append(d.asked, request.Reason)
		return JWT(name, d.Lifetime), nil
	}}
	if change != nil {
		change(&options)
	}
	c, err := client.New(options)
	if err != nil {
		return nil, err
	}
	d.Client = c
	c.OnMessage(func(_ context.Context, m *client.Message) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		var text string
		if err := m.Decode(&text); err != nil {
			return err
		}
		d.shown = append(d.shown, text)
		return nil
	})
	c.OnState(func(s client.State) { record(d, &d.states, s) })
	c.OnRecovered(func(r client.Recovered) {
		record(d, &d.recovered, r)
		if r.Completeness != client.Complete {
			record(d, &d.gaps, len(d.Shown()))
		}
	})
	c.OnError(func(err error) {
		var known *client.Error
		if !errors.As(err, &known) {
			known = &client.Error{Code: "not_an_error", Message: err.Error()}
		}
		record(d, &d.errs, known)
	})
	return d, nil
}

func record[T any](d *Device, list *[]T, value T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*list = append(*list, value)
}

func copied[T any](d *Device, list *[]T) []T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(*list)
}

// Shown are the texts of the messages that the handler got.
func (d *Device) Shown() []string { return copied(d, &d.shown) }

// Forget empties Shown.
func (d *Device) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shown, d.gaps = nil, nil
}

// States are the states that the client reported.
func (d *Device) States() []client.State { return copied(d, &d.states) }

// Errors are the errors that the client reported.
func (d *Device) Errors() []*client.Error { return copied(d, &d.errs) }

// Recovered are the ends of recoveries that the client reported.
func (d *Device) Recovered() []client.Recovered { return copied(d, &d.recovered) }

// Gaps has the number of messages that were shown before each recovery that was not complete.
func (d *Device) Gaps() []int { return copied(d, &d.gaps) }

// Asked are the reasons for which a token was requested.
func (d *Device) Asked() []string { return copied(d, &d.asked) }

// HadReason reports whether a connection ended for this reason.
func (d *Device) HadReason(reason client.Reason) bool {
	return slices.ContainsFunc(d.States(), func(s client.State) bool { return s.Reason == reason })
}

// Is reports whether the client has this status.
func (d *Device) Is(status client.Status) bool { return d.State().Status == status }

// End closes the client.
func (d *Device) End() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = d.Close(ctx)
}

// Text is a message's data.
func Text(text string) json.RawMessage {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return data
}
