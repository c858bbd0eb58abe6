package noroshi

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

func queried(query url.Values) RequestOption { return func(c *call) { c.query = query } }

// CreateCampaign creates a campaign. It starts at once or at StartAt, unless Start is false or its audience is uploaded.
func (c *Client) CreateCampaign(ctx context.Context, campaign NewCampaign, options ...RequestOption) (*Campaign, error) {
	return post[Campaign](ctx, c, campaign, slices.Concat(options, []RequestOption{keyed}), "/v1/campaigns")
}

// DraftCampaign keeps a campaign as a draft although parts are missing or invalid; Problems of the answer names them.
func (c *Client) DraftCampaign(ctx context.Context, campaign NewCampaign, options ...RequestOption) (*Campaign, error) {
	return post[Campaign](ctx, c, campaign, slices.Concat(options, []RequestOption{keyed, queried(url.Values{"draft": {"true"}})}), "/v1/campaigns")
}

// CountCampaign counts the audience of a campaign, and creates nothing.
func (c *Client) CountCampaign(ctx context.Context, campaign NewCampaign) (*CampaignCount, error) {
	return post[CampaignCount](ctx, c, campaign, []RequestOption{repeatable, queried(url.Values{"dry_run": {"true"}})}, "/v1/campaigns")
}

// ListCampaigns returns a page of the campaigns. A page may be empty although more follow, while Next is not "".
func (c *Client) ListCampaigns(ctx context.Context, query CampaignsQuery) (*Campaigns, error) {
	return get[Campaigns](ctx, c, query.values(), "/v1/campaigns")
}

// Campaigns returns the campaigns. It requests pages as the loop proceeds.
func (c *Client) Campaigns(ctx context.Context, query CampaignsQuery) iter.Seq2[Campaign, error] {
	return pages(ctx, query.After, func(ctx context.Context, after string) (*Campaigns, error) {
		query.After = after
		return c.ListCampaigns(ctx, query)
	}, func(page *Campaigns) ([]Campaign, string) { return page.Campaigns, page.Next })
}

// Campaign returns a campaign with its progress.
func (c *Client) Campaign(ctx context.Context, id string) (*Campaign, error) {
	return get[Campaign](ctx, c, nil, "/v1/campaigns/%s", id)
}

// ChangeCampaign changes a draft. It is not repeated if the service may have processed it: the revision would be another one.
func (c *Client) ChangeCampaign(ctx context.Context, id string, change CampaignChange) (*Campaign, error) {
	call, err := c.newCall(http.MethodPatch, change, "/v1/campaigns/%s", []string{id}, nil)
	return do[Campaign](ctx, c, call, err)
}

// DeleteCampaign deletes a campaign.
func (c *Client) DeleteCampaign(ctx context.Context, id string) error {
	return c.act(ctx, http.MethodDelete, nil, nil, "/v1/campaigns/%s", id)
}

// EstimateCampaign estimates the audience of a campaign, and when its devices would get the message.
func (c *Client) EstimateCampaign(ctx context.Context, id string) (*CampaignEstimate, error) {
	return post[CampaignEstimate](ctx, c, nil, []RequestOption{repeatable}, "/v1/campaigns/%s/estimate", id)
}

// CampaignRecipient returns what a user got, or would get.
func (c *Client) CampaignRecipient(ctx context.Context, id, user string) (*CampaignRecipient, error) {
	return get[CampaignRecipient](ctx, c, nil, "/v1/campaigns/%s/recipients/%s", id, user)
}

// StartCampaign starts a draft now or at its StartAt. A revision other than 0 starts only that revision.
func (c *Client) StartCampaign(ctx context.Context, id string, revision int64) (*Campaign, error) {
	var options []RequestOption
	if revision != 0 {
		options = append(options, queried(url.Values{"revision": {strconv.FormatInt(revision, 10)}}))
	}
	return post[Campaign](ctx, c, nil, options, "/v1/campaigns/%s/start", id)
}

// PauseCampaign pauses a running or scheduled campaign.
func (c *Client) PauseCampaign(ctx context.Context, id string) (*Campaign, error) {
	return post[Campaign](ctx, c, nil, nil, "/v1/campaigns/%s/pause", id)
}

// ResumeCampaign resumes a paused campaign.
func (c *Client) ResumeCampaign(ctx context.Context, id string) (*Campaign, error) {
	return post[Campaign](ctx, c, nil, nil, "/v1/campaigns/%s/resume", id)
}

// AbortCampaign ends a campaign.
func (c *Client) AbortCampaign(ctx context.Context, id string) (*Campaign, error) {
	return post[Campaign](ctx, c, nil, nil, "/v1/campaigns/%s/abort", id)
}
