package noroshi

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
)

// StartActivity starts a Live Activity.
func (c *Client) StartActivity(ctx context.Context, activity NewActivity, options ...RequestOption) (*Activity, error) {
	return post[Activity](ctx, c, activity, slices.Concat(options, []RequestOption{keyed}), "/v1/activities")
}

// ListActivities returns a page of the Live Activities.
func (c *Client) ListActivities(ctx context.Context, query ActivitiesQuery) (*Activities, error) {
	return get[Activities](ctx, c, query.values(), "/v1/activities")
}

// Activities returns the Live Activities. It requests pages as the loop proceeds.
func (c *Client) Activities(ctx context.Context, query ActivitiesQuery) iter.Seq2[Activity, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Activities, error) {
		query.After = after
		return c.ListActivities(ctx, query)
	}, func(page *Activities) ([]Activity, string) { return page.Activities, page.Next })
}

// Activity returns a Live Activity.
func (c *Client) Activity(ctx context.Context, id string) (*Activity, error) {
	return get[Activity](ctx, c, nil, "/v1/activities/%s", id)
}

// UpdateActivity sets a new state. It is not repeated if the service may have processed it, because each update counts.
func (c *Client) UpdateActivity(ctx context.Context, id string, update ActivityUpdate) (*Activity, error) {
	call, err := c.newCall(http.MethodPatch, update, "/v1/activities/%s", []string{id}, nil)
	return do[Activity](ctx, c, call, err)
}

// EndActivity ends a Live Activity on all devices with its last state.
func (c *Client) EndActivity(ctx context.Context, id string, end ActivityEnd) (*Activity, error) {
	call, err := c.newCall(http.MethodDelete, end, "/v1/activities/%s", []string{id}, nil)
	return do[Activity](ctx, c, call, err)
}

// ActivityDevice returns the state of a Live Activity on a device.
func (c *Client) ActivityDevice(ctx context.Context, id, device string) (*ActivityDevice, error) {
	return get[ActivityDevice](ctx, c, nil, "/v1/activities/%s/devices/%s", id, device)
}

// ListChannels returns a page of the broadcast channels of APNs.
func (c *Client) ListChannels(ctx context.Context, query ChannelsQuery) (*Channels, error) {
	return get[Channels](ctx, c, query.values(), "/v1/push/channels")
}

// Channels returns the broadcast channels of APNs. It requests pages as the loop proceeds.
func (c *Client) Channels(ctx context.Context, query ChannelsQuery) iter.Seq2[Channel, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Channels, error) {
		query.After = after
		return c.ListChannels(ctx, query)
	}, func(page *Channels) ([]Channel, string) { return page.Channels, page.Next })
}

// CreateChannel creates a broadcast channel at Apple. An existing channel with the same name and settings is returned.
func (c *Client) CreateChannel(ctx context.Context, channel NewChannel) (*Channel, error) {
	return post[Channel](ctx, c, channel, []RequestOption{repeatable}, "/v1/push/channels")
}

// Channel returns a broadcast channel.
func (c *Client) Channel(ctx context.Context, name string) (*Channel, error) {
	return get[Channel](ctx, c, nil, "/v1/push/channels/%s", name)
}

// ChangeChannel changes the topic of a broadcast channel.
func (c *Client) ChangeChannel(ctx context.Context, name string, change ChannelChange) (*Channel, error) {
	return patch[Channel](ctx, c, change, "/v1/push/channels/%s", name)
}

// DeleteChannel deletes a broadcast channel at Apple and here.
func (c *Client) DeleteChannel(ctx context.Context, name string) error {
	return c.act(ctx, http.MethodDelete, nil, nil, "/v1/push/channels/%s", name)
}

// ForgetChannel deletes a broadcast channel here; it stays at Apple.
func (c *Client) ForgetChannel(ctx context.Context, name string) error {
	return c.act(ctx, http.MethodDelete, nil, url.Values{"forget": {"true"}}, "/v1/push/channels/%s", name)
}

// Broadcast sends an update to all devices that subscribe to a channel.
func (c *Client) Broadcast(ctx context.Context, channel string, broadcast NewBroadcast, options ...RequestOption) (*BroadcastState, error) {
	return post[BroadcastState](ctx, c, broadcast, slices.Concat(options, []RequestOption{keyed}), "/v1/push/channels/%s/broadcasts", channel)
}

// BroadcastState returns the state of a broadcast.
func (c *Client) BroadcastState(ctx context.Context, id string) (*BroadcastState, error) {
	return get[BroadcastState](ctx, c, nil, "/v1/push/broadcasts/%s", id)
}

func environment(environment PushEnvironment) url.Values {
	if environment == "" {
		return nil
	}
	return url.Values{"environment": {string(environment)}}
}

// AppleChannels lists the channels at Apple. The default environment is production.
func (c *Client) AppleChannels(ctx context.Context, env PushEnvironment) (*AppleChannels, error) {
	return get[AppleChannels](ctx, c, environment(env), "/v1/push/apns-channels")
}

// DeleteAppleChannel deletes a channel at Apple that no channel of the app names.
func (c *Client) DeleteAppleChannel(ctx context.Context, id string, env PushEnvironment) error {
	return c.act(ctx, http.MethodDelete, nil, environment(env), "/v1/push/apns-channels/%s", id)
}
