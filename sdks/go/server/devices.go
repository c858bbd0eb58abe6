package noroshi

import (
	"context"
	"iter"
	"net/http"
)

// RegisterDevice registers a device and returns its token. A registration that names its device is repeated after a failure; without a
// name, another attempt might register a second device.
func (c *Client) RegisterDevice(ctx context.Context, registration DeviceRegistration) (*Registered, error) {
	var options []RequestOption
	if registration.Device != "" {
		options = append(options, repeatable)
	}
	return post[Registered](ctx, c, registration, options, "/v1/devices")
}

// ListDevices returns a page of the devices. A page may be empty although more follow, while Next is not "".
func (c *Client) ListDevices(ctx context.Context, query DevicesQuery) (*Devices, error) {
	return get[Devices](ctx, c, query.values(), "/v1/devices")
}

// Devices returns the devices. It requests pages as the loop proceeds.
func (c *Client) Devices(ctx context.Context, query DevicesQuery) iter.Seq2[Device, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Devices, error) {
		query.After = after
		return c.ListDevices(ctx, query)
	}, func(page *Devices) ([]Device, string) { return page.Devices, page.Next })
}

// Device returns a device.
func (c *Client) Device(ctx context.Context, device string) (*Device, error) {
	return get[Device](ctx, c, nil, "/v1/devices/%s", device)
}

// DeleteDevice deletes a device and revokes its tokens.
func (c *Client) DeleteDevice(ctx context.Context, device string) error {
	return c.act(ctx, http.MethodDelete, nil, nil, "/v1/devices/%s", device)
}

// RevokeDevice revokes the tokens and JWTs of a device. Its connection ends.
func (c *Client) RevokeDevice(ctx context.Context, device string) (*Revoked, error) {
	return post[Revoked](ctx, c, nil, []RequestOption{repeatable}, "/v1/devices/%s/revoke", device)
}

// DevicePushTokens lists the push tokens of a device, without the tokens themselves.
func (c *Client) DevicePushTokens(ctx context.Context, device string) (*DevicePushTokens, error) {
	return get[DevicePushTokens](ctx, c, nil, "/v1/devices/%s/push-tokens", device)
}

// SetDevicePushToken sets a push token of a device. name is "" for kinds without names.
func (c *Client) SetDevicePushToken(ctx context.Context, device string, kind PushTokenKind, name string, token NewPushToken) error {
	if name == "" {
		return c.act(ctx, http.MethodPut, token, nil, "/v1/devices/%s/push-tokens/%s", device, string(kind))
	}
	return c.act(ctx, http.MethodPut, token, nil, "/v1/devices/%s/push-tokens/%s/%s", device, string(kind), name)
}

// RemoveDevicePushToken removes a push token of a device.
func (c *Client) RemoveDevicePushToken(ctx context.Context, device string, kind PushTokenKind, name string) error {
	if name == "" {
		return c.act(ctx, http.MethodDelete, nil, nil, "/v1/devices/%s/push-tokens/%s", device, string(kind))
	}
	return c.act(ctx, http.MethodDelete, nil, nil, "/v1/devices/%s/push-tokens/%s/%s", device, string(kind), name)
}

// DevicePreferences returns the preferences of a device.
func (c *Client) DevicePreferences(ctx context.Context, device string) (*Preferences, error) {
	return get[Preferences](ctx, c, nil, "/v1/devices/%s/preferences", device)
}

// SetDevicePreferences replaces the preferences of a device, and returns them as stored.
func (c *Client) SetDevicePreferences(ctx context.Context, device string, preferences Preferences) (*Preferences, error) {
	return put[Preferences](ctx, c, preferences, "/v1/devices/%s/preferences", device)
}

// ClearDevicePreferences deletes the preferences of a device.
func (c *Client) ClearDevicePreferences(ctx context.Context, device string) error {
	return c.act(ctx, http.MethodDelete, nil, nil, "/v1/devices/%s/preferences", device)
}

// DeviceEndpoints lists the Web Push addresses of a device.
func (c *Client) DeviceEndpoints(ctx context.Context, device string) (*Endpoints, error) {
	return get[Endpoints](ctx, c, nil, "/v1/devices/%s/endpoints", device)
}

// DeleteDeviceEndpoint deletes a Web Push address of a device.
func (c *Client) DeleteDeviceEndpoint(ctx context.Context, device, id string) error {
	return c.act(ctx, http.MethodDelete, nil, nil, "/v1/devices/%s/endpoints/%s", device, id)
}

// RevokeUser revokes the tokens and JWTs of a user on all devices, also on devices that do not exist yet.
func (c *Client) RevokeUser(ctx context.Context, user string) (*UserRevoked, error) {
	return post[UserRevoked](ctx, c, nil, []RequestOption{repeatable}, "/v1/users/%s/revoke", user)
}

// ListUserItems returns a page of the notification centre of a user, newest first.
func (c *Client) ListUserItems(ctx context.Context, user string, query ItemsOfUserQuery) (*Items, error) {
	return get[Items](ctx, c, query.values(), "/v1/users/%s/items", user)
}

// UserItems returns the items of a user, newest first. It requests pages as the loop proceeds.
func (c *Client) UserItems(ctx context.Context, user string, query ItemsOfUserQuery) iter.Seq2[Item, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Items, error) {
		query.After = after
		return c.ListUserItems(ctx, user, query)
	}, func(page *Items) ([]Item, string) { return page.Items, page.Next })
}

// DeleteUserItems deletes all items of a user.
func (c *Client) DeleteUserItems(ctx context.Context, user string) (*ItemsDeleted, error) {
	call, err := c.newCall(http.MethodDelete, nil, "/v1/users/%s/items", []string{user}, nil)
	return do[ItemsDeleted](ctx, c, call, err)
}

// UserItemCounts returns the numbers of unread items of a user.
func (c *Client) UserItemCounts(ctx context.Context, user string) (*ItemCounts, error) {
	return get[ItemCounts](ctx, c, nil, "/v1/users/%s/items/counts", user)
}

// UserPreferences returns the preferences of a user.
func (c *Client) UserPreferences(ctx context.Context, user string) (*Preferences, error) {
	return get[Preferences](ctx, c, nil, "/v1/users/%s/preferences", user)
}

// SetUserPreferences replaces the preferences of a user, and returns them as stored.
func (c *Client) SetUserPreferences(ctx context.Context, user string, preferences Preferences) (*Preferences, error) {
	return put[Preferences](ctx, c, preferences, "/v1/users/%s/preferences", user)
}

// ClearUserPreferences deletes the preferences of a user.
func (c *Client) ClearUserPreferences(ctx context.Context, user string) error {
	return c.act(ctx, http.MethodDelete, nil, nil, "/v1/users/%s/preferences", user)
}

// ListInvalidations returns a page of the push tokens that push services reported as gone, oldest first.
func (c *Client) ListInvalidations(ctx context.Context, query InvalidationsQuery) (*Invalidations, error) {
	return get[Invalidations](ctx, c, query.values(), "/v1/push/invalidations")
}

// Invalidations returns the push tokens that push services reported as gone, oldest first. It requests pages as the loop proceeds.
func (c *Client) Invalidations(ctx context.Context, query InvalidationsQuery) iter.Seq2[Invalidation, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Invalidations, error) {
		query.After = after
		return c.ListInvalidations(ctx, query)
	}, func(page *Invalidations) ([]Invalidation, string) { return page.Invalidations, page.Next })
}
