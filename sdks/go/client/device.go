package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
)

// Me reads the state of the device: GET /v1/me. An answer that has not changed since the last call has no body on the network.
func (c *Client) Me(ctx context.Context) (*Me, error) {
	raw, err := await(ctx, c, func(m *protocol.Machine, now time.Time, done func(json.RawMessage, *protocol.Error)) int {
		return m.Me(now, done)
	})
	if err != nil {
		return nil, err
	}
	var me Me
	if err := json.Unmarshal(raw, &me); err != nil {
		return nil, &Error{Code: CodeNetwork, Message: fmt.Sprintf("GET /v1/me: the answer is not what was expected: %v", err), cause: err}
	}
	return &me, nil
}

// ChangeMe changes the registration of the device, and returns its new state.
func (c *Client) ChangeMe(ctx context.Context, change DeviceChange) (*Me, error) {
	var me Me
	if err := c.do(ctx, http.MethodPatch, "/v1/me", nil, change, &me); err != nil {
		return nil, err
	}
	return &me, nil
}

// DeleteMe deletes the device and revokes its tokens.
func (c *Client) DeleteMe(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/v1/me", nil, nil, nil)
}

// Variant returns the device's variant of an experiment, or nil if the device does not participate. It reports the exposure, once per
// device, user and variant. The variant is at most a minute old, and that of the present token; otherwise the state of the device is
// read again, as Me does.
func (c *Client) Variant(ctx context.Context, experiment string) (*Variant, error) {
	return c.variant(ctx, experiment, true)
}

// PeekVariant is Variant without the report of an exposure.
func (c *Client) PeekVariant(ctx context.Context, experiment string) (*Variant, error) {
	return c.variant(ctx, experiment, false)
}

func (c *Client) variant(ctx context.Context, experiment string, expose bool) (*Variant, error) {
	raw, err := await(ctx, c, func(m *protocol.Machine, now time.Time, done func(json.RawMessage, *protocol.Error)) int {
		return m.Variant(now, experiment, expose, done)
	})
	if err != nil || raw == nil {
		return nil, err
	}
	var variant Variant
	if err := json.Unmarshal(raw, &variant); err != nil {
		return nil, &Error{Code: CodeNetwork, Message: fmt.Sprintf("experiment %s: %v", experiment, err), cause: err}
	}
	return &variant, nil
}

// SubscribeDurably subscribes the device to a topic until UnsubscribeDurably: messages wait while it is not connected.
func (c *Client) SubscribeDurably(ctx context.Context, topic string) error {
	return c.do(ctx, http.MethodPut, "/v1/me/topics/"+segment(topic), nil, nil, nil)
}

// UnsubscribeDurably ends a durable subscription.
func (c *Client) UnsubscribeDurably(ctx context.Context, topic string) error {
	return c.do(ctx, http.MethodDelete, "/v1/me/topics/"+segment(topic), nil, nil, nil)
}

// SetMainPushToken sets the token of the device's push service.
func (c *Client) SetMainPushToken(ctx context.Context, token PushToken) error {
	return c.do(ctx, http.MethodPut, "/v1/me/push-token", nil, token, nil)
}

// PushTokens lists the push tokens of the device.
func (c *Client) PushTokens(ctx context.Context) (*DevicePushTokens, error) {
	return get[DevicePushTokens](ctx, c, "/v1/me/push-tokens", nil)
}

// SetPushToken sets a push token. name is "" for kinds without names.
func (c *Client) SetPushToken(ctx context.Context, kind PushTokenKind, name string, token NewPushToken) error {
	return c.do(ctx, http.MethodPut, pushTokenPath(kind, name), nil, token, nil)
}

// RemovePushToken removes a push token.
func (c *Client) RemovePushToken(ctx context.Context, kind PushTokenKind, name string) error {
	return c.do(ctx, http.MethodDelete, pushTokenPath(kind, name), nil, nil, nil)
}

func pushTokenPath(kind PushTokenKind, name string) string {
	path := "/v1/me/push-tokens/" + segment(string(kind))
	if name != "" {
		path += "/" + segment(name)
	}
	return path
}

// Preferences reads the preferences of this device.
func (c *Client) Preferences(ctx context.Context) (*Preferences, error) {
	return get[Preferences](ctx, c, "/v1/me/preferences", nil)
}

// SetPreferences replaces the preferences of this device, and returns them as stored.
func (c *Client) SetPreferences(ctx context.Context, preferences Preferences) (*Preferences, error) {
	return c.setPreferences(ctx, "/v1/me/preferences", preferences)
}

// ClearPreferences deletes the preferences of this device.
func (c *Client) ClearPreferences(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/v1/me/preferences", nil, nil, nil)
}

// UserPreferences reads the preferences of the user, which apply to all devices of the user.
func (c *Client) UserPreferences(ctx context.Context) (*Preferences, error) {
	return get[Preferences](ctx, c, "/v1/me/user/preferences", nil)
}

// SetUserPreferences replaces the preferences of the user, and returns them as stored.
func (c *Client) SetUserPreferences(ctx context.Context, preferences Preferences) (*Preferences, error) {
	return c.setPreferences(ctx, "/v1/me/user/preferences", preferences)
}

// ClearUserPreferences deletes the preferences of the user.
func (c *Client) ClearUserPreferences(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/v1/me/user/preferences", nil, nil, nil)
}

func (c *Client) setPreferences(ctx context.Context, path string, preferences Preferences) (*Preferences, error) {
	var stored Preferences
	if err := c.do(ctx, http.MethodPut, path, nil, preferences, &stored); err != nil {
		return nil, err
	}
	return &stored, nil
}

// CreateEndpoint creates an address to which application servers post Web Push messages for this device.
func (c *Client) CreateEndpoint(ctx context.Context, endpoint NewEndpoint) (*Endpoint, error) {
	var created Endpoint
	if err := c.do(ctx, http.MethodPost, "/v1/me/endpoints", nil, endpoint, &created); err != nil {
		return nil, err
	}
	return &created, nil
}

// Endpoints lists the addresses of this device.
func (c *Client) Endpoints(ctx context.Context) (*Endpoints, error) {
	return get[Endpoints](ctx, c, "/v1/me/endpoints", nil)
}

// DeleteEndpoint deletes an address of this device.
func (c *Client) DeleteEndpoint(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/me/endpoints/"+segment(id), nil, nil, nil)
}
