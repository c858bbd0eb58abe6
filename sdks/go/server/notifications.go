package noroshi

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
)

// Publish publishes a notification, to one user or to millions. It is repeated with the same Idempotency-Key, so it is published once.
func (c *Client) Publish(ctx context.Context, notification Notification, options ...RequestOption) (*Receipt, error) {
	return post[Receipt](ctx, c, notification, slices.Concat(options, []RequestOption{keyed}), "/v1/notifications")
}

// Notification returns the state of a notification, with counts by outcome.
func (c *Client) Notification(ctx context.Context, id string) (*NotificationState, error) {
	return get[NotificationState](ctx, c, nil, "/v1/notifications/%s", id)
}

// ListNotifications returns a page of the notifications that the service still keeps, newest first. A page may be empty although more
// follow, while Next is not "".
func (c *Client) ListNotifications(ctx context.Context, query NotificationsQuery) (*Notifications, error) {
	return get[Notifications](ctx, c, query.values(), "/v1/notifications")
}

// Notifications returns the notifications that the service still keeps, newest first. It requests pages as the loop proceeds.
func (c *Client) Notifications(ctx context.Context, query NotificationsQuery) iter.Seq2[ListedNotification, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Notifications, error) {
		query.After = after
		return c.ListNotifications(ctx, query)
	}, func(page *Notifications) ([]ListedNotification, string) { return page.Notifications, page.Next })
}

// Cancel cancels a notification where it has not been delivered yet.
func (c *Client) Cancel(ctx context.Context, id string) (*Cancelled, error) {
	call, err := c.newCall(http.MethodDelete, nil, "/v1/notifications/%s", []string{id}, nil)
	return do[Cancelled](ctx, c, call, err)
}

// Trace returns what happened to a notification on a device.
func (c *Client) Trace(ctx context.Context, id, device string) (*Trace, error) {
	return get[Trace](ctx, c, nil, "/v1/notifications/%s/devices/%s", id, device)
}

// Presence returns the presence of at most 1,000 users, and their connected devices.
func (c *Client) Presence(ctx context.Context, users ...string) (map[string]PresenceAnswerUser, error) {
	answer, err := post[PresenceAnswer](ctx, c, PresenceQuery{Users: append([]string{}, users...)}, []RequestOption{repeatable}, "/v1/presence")
	if err != nil {
		return nil, err
	}
	return answer.Users, nil
}

// ListTopics returns a page of the topics.
func (c *Client) ListTopics(ctx context.Context, query TopicsQuery) (*Topics, error) {
	return get[Topics](ctx, c, query.values(), "/v1/topics")
}

// Topics returns the topics. It requests pages as the loop proceeds.
func (c *Client) Topics(ctx context.Context, query TopicsQuery) iter.Seq2[Topic, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Topics, error) {
		query.After = after
		return c.ListTopics(ctx, query)
	}, func(page *Topics) ([]Topic, string) { return page.Topics, page.Next })
}

// Topic returns the numbers of subscribers and the position of a topic.
func (c *Client) Topic(ctx context.Context, topic string) (*Topic, error) {
	return get[Topic](ctx, c, nil, "/v1/topics/%s", topic)
}

// Retained returns the retained message of a topic.
func (c *Client) Retained(ctx context.Context, topic string) (*Message, error) {
	return get[Message](ctx, c, nil, "/v1/topics/%s/retained", topic)
}

// DeleteRetained deletes the retained message of a topic.
func (c *Client) DeleteRetained(ctx context.Context, topic string) error {
	return c.act(ctx, http.MethodDelete, nil, nil, "/v1/topics/%s/retained", topic)
}

// TopicPermission returns what the app's topic rules decide for a device, and why.
func (c *Client) TopicPermission(ctx context.Context, device, topic string, action TopicAction) (*TopicPermission, error) {
	query := url.Values{}
	if action != "" {
		query.Set("action", string(action))
	}
	return get[TopicPermission](ctx, c, query, "/v1/devices/%s/topics/%s/permission", device, topic)
}
