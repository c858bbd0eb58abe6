package noroshi

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// App has the routes of an app. Most of them need a key of this app with the scope admin.
type App struct {
	client *Client
	name   string
}

// App returns the routes of the app with this name. It sends no request.
func (c *Client) App(name string) *App { return &App{c, name} }

// Get returns the app.
func (a *App) Get(ctx context.Context) (*AppState, error) {
	return get[AppState](ctx, a.client, nil, "/v1/apps/%s", a.name)
}

// Change changes the app.
func (a *App) Change(ctx context.Context, change AppChange) (*AppState, error) {
	return patch[AppState](ctx, a.client, change, "/v1/apps/%s", a.name)
}

// Keys lists the API keys of the app, without the keys themselves.
func (a *App) Keys(ctx context.Context) (*Keys, error) {
	return get[Keys](ctx, a.client, nil, "/v1/apps/%s/keys", a.name)
}

// CreateKey creates an API key. The answer is the only one that contains the key.
func (a *App) CreateKey(ctx context.Context, key NewKey) (*Key, error) {
	return post[Key](ctx, a.client, key, nil, "/v1/apps/%s/keys", a.name)
}

// RevokeKey revokes an API key.
func (a *App) RevokeKey(ctx context.Context, key string) error {
	return a.client.act(ctx, http.MethodDelete, nil, nil, "/v1/apps/%s/keys/%s", a.name, key)
}

// Quotas returns the quotas of the app, and how much of them it uses.
func (a *App) Quotas(ctx context.Context) (*Quotas, error) {
	return get[Quotas](ctx, a.client, nil, "/v1/apps/%s/quotas", a.name)
}

// PushCredentials lists the credentials for push services, without their secrets.
func (a *App) PushCredentials(ctx context.Context) (*PushCredentials, error) {
	return get[PushCredentials](ctx, a.client, nil, "/v1/apps/%s/push", a.name)
}

// AddPushCredential adds a credential for a push service.
func (a *App) AddPushCredential(ctx context.Context, credential NewPushCredential) (*PushCredential, error) {
	return post[PushCredential](ctx, a.client, credential, nil, "/v1/apps/%s/push", a.name)
}

// ReplacePushCredential adds a credential, or replaces the existing one without interruption.
func (a *App) ReplacePushCredential(ctx context.Context, credential NewPushCredential) (*PushCredential, error) {
	options := []RequestOption{repeatable, queried(url.Values{"replace": {"true"}})}
	return post[PushCredential](ctx, a.client, credential, options, "/v1/apps/%s/push", a.name)
}

// RemovePushCredential removes a credential.
func (a *App) RemovePushCredential(ctx context.Context, id string) error {
	return a.client.act(ctx, http.MethodDelete, nil, nil, "/v1/apps/%s/push/%s", a.name, id)
}

// TestPushCredential pushes a short visible notification to a device, and returns the answer of the push service.
func (a *App) TestPushCredential(ctx context.Context, id string, test PushTest) (*PushTested, error) {
	return post[PushTested](ctx, a.client, test, nil, "/v1/apps/%s/push/%s/test", a.name, id)
}

// RotatePushCredential replaces the secret of a credential, if the push service accepts it.
func (a *App) RotatePushCredential(ctx context.Context, id string, rotation PushRotation) (*PushCredential, error) {
	return post[PushCredential](ctx, a.client, rotation, nil, "/v1/apps/%s/push/%s/rotate", a.name, id)
}

// RestorePushTokens uses suspended tokens of a credential again.
func (a *App) RestorePushTokens(ctx context.Context, id string, restore RestoreTokens) (*RestoredTokens, error) {
	return post[RestoredTokens](ctx, a.client, restore, []RequestOption{repeatable}, "/v1/apps/%s/push/%s/restore", a.name, id)
}

// ListExperiments returns a page of the experiments.
func (a *App) ListExperiments(ctx context.Context, query ExperimentsQuery) (*Experiments, error) {
	return get[Experiments](ctx, a.client, query.values(), "/v1/apps/%s/experiments", a.name)
}

// Experiments returns the experiments. It requests pages as the loop proceeds.
func (a *App) Experiments(ctx context.Context, query ExperimentsQuery) iter.Seq2[Experiment, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Experiments, error) {
		query.After = after
		return a.ListExperiments(ctx, query)
	}, func(page *Experiments) ([]Experiment, string) { return page.Experiments, page.Next })
}

// Experiment returns an experiment.
func (a *App) Experiment(ctx context.Context, name string) (*Experiment, error) {
	return get[Experiment](ctx, a.client, nil, "/v1/apps/%s/experiments/%s", a.name, name)
}

// PutExperiment creates or replaces an experiment.
func (a *App) PutExperiment(ctx context.Context, name string, experiment NewExperiment) (*Experiment, error) {
	return put[Experiment](ctx, a.client, experiment, "/v1/apps/%s/experiments/%s", a.name, name)
}

// ChangeExperiment stops an experiment, or lets it continue.
func (a *App) ChangeExperiment(ctx context.Context, name string, change ExperimentChange) (*Experiment, error) {
	return patch[Experiment](ctx, a.client, change, "/v1/apps/%s/experiments/%s", a.name, name)
}

// ArchiveExperiment archives an experiment.
func (a *App) ArchiveExperiment(ctx context.Context, name string) error {
	return a.client.act(ctx, http.MethodDelete, nil, nil, "/v1/apps/%s/experiments/%s", a.name, name)
}

// ExperimentAssigned returns the variant of a device, and why.
func (a *App) ExperimentAssigned(ctx context.Context, name, device string) (*ExperimentAssigned, error) {
	return get[ExperimentAssigned](ctx, a.client, nil, "/v1/apps/%s/experiments/%s/devices/%s", a.name, name, device)
}

// ListNotices returns a page of the maintenance notices.
func (a *App) ListNotices(ctx context.Context, query NoticesQuery) (*Notices, error) {
	return get[Notices](ctx, a.client, query.values(), "/v1/apps/%s/notices", a.name)
}

// Notices returns the maintenance notices. It requests pages as the loop proceeds.
func (a *App) Notices(ctx context.Context, query NoticesQuery) iter.Seq2[Notice, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Notices, error) {
		query.After = after
		return a.ListNotices(ctx, query)
	}, func(page *Notices) ([]Notice, string) { return page.Notices, page.Next })
}

// Notice returns a maintenance notice.
func (a *App) Notice(ctx context.Context, name string) (*Notice, error) {
	return get[Notice](ctx, a.client, nil, "/v1/apps/%s/notices/%s", a.name, name)
}

// PutNotice creates or replaces a maintenance notice.
func (a *App) PutNotice(ctx context.Context, name string, notice NewNotice) (*Notice, error) {
	return put[Notice](ctx, a.client, notice, "/v1/apps/%s/notices/%s", a.name, name)
}

// EndNotice ends a maintenance notice.
func (a *App) EndNotice(ctx context.Context, name string) error {
	return a.client.act(ctx, http.MethodDelete, nil, nil, "/v1/apps/%s/notices/%s", a.name, name)
}

// TopicRules returns the topic rules.
func (a *App) TopicRules(ctx context.Context) (*TopicRules, error) {
	return get[TopicRules](ctx, a.client, nil, "/v1/apps/%s/topic-rules", a.name)
}

// SetTopicRules replaces all topic rules, and returns them as stored.
func (a *App) SetTopicRules(ctx context.Context, rules TopicRules) (*TopicRules, error) {
	return put[TopicRules](ctx, a.client, rules, "/v1/apps/%s/topic-rules", a.name)
}

// DeleteTopicRules deletes all topic rules.
func (a *App) DeleteTopicRules(ctx context.Context) error {
	return a.client.act(ctx, http.MethodDelete, nil, nil, "/v1/apps/%s/topic-rules", a.name)
}

// Series returns figures of the app over time.
func (a *App) Series(ctx context.Context, query AppSeriesQuery) (*Series, error) {
	return get[Series](ctx, a.client, query.values(), "/v1/apps/%s/series", a.name)
}
