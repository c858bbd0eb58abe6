package client

import (
	"encoding/json"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
)

// Message is a message from a provider.
type Message struct {
	ID string `json:"id"`
	// Topic is "" for a message to the device, its user or everyone.
	Topic string `json:"topic"`
	// Epoch and Offset are the place of the message in the log of its topic.
	Epoch  string `json:"epoch"`
	Offset int64  `json:"offset"`
	// Stored: the service keeps the message until the device acknowledges it.
	Stored bool `json:"ack"`
	// SentAt is a time of the service's clock.
	SentAt time.Time `json:"sent_at"`
	// Notification is the visible part, or nil.
	Notification *Shown `json:"notification"`
	// Data is any JSON, as published, or nil.
	Data json.RawMessage `json:"data"`
}

// Decode reads Data.
func (m *Message) Decode(value any) error { return json.Unmarshal(m.Data, value) }

// messageOf also returns what it could not read, which is empty.
func messageOf(m protocol.Message) (*Message, error) {
	message := &Message{ID: m.ID, Topic: m.Topic, Epoch: m.Epoch, Stored: m.Ack, Data: m.Data}
	if m.Offset != nil {
		message.Offset = *m.Offset
	}
	var timeError, shownError error
	if m.SentAt != "" {
		message.SentAt, timeError = time.Parse(time.RFC3339, m.SentAt)
	}
	if len(m.Notification) > 0 {
		if shownError = json.Unmarshal(m.Notification, &message.Notification); shownError != nil {
			message.Notification = nil
			return message, shownError
		}
	}
	return message, timeError
}
