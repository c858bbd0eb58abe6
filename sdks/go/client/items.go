package client

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/noroshi/noroshi/sdks/go/client/internal/protocol"
)

// itemsMax is how many ids a request may have.
const itemsMax = 100

// ItemsQuery selects items. The zero value selects all that are not archived.
type ItemsQuery struct {
	// State is unread, read, archived or all.
	State    string
	Category string
	// Limit is the size of a page, 1 to 1,000. Default: 100.
	Limit int
	// After is Next of the previous page.
	After string
}

func (q ItemsQuery) values() map[string]string {
	values := map[string]string{"state": q.State, "category": q.Category, "after": q.After}
	if q.Limit != 0 {
		values["limit"] = strconv.Itoa(q.Limit)
	}
	return values
}

// ListItems returns a page of the user's items, newest first.
func (c *Client) ListItems(ctx context.Context, query ItemsQuery) (*Items, error) {
	return get[Items](ctx, c, "/v1/me/items", query.values())
}

// Items returns the user's items, newest first. It requests pages as the loop proceeds, and ends after an error.
func (c *Client) Items(ctx context.Context, query ItemsQuery) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for {
			page, err := c.ListItems(ctx, query)
			if err != nil {
				yield(Item{}, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.After = page.Next
		}
	}
}

// Counts reads the numbers of unread items.
func (c *Client) Counts(ctx context.Context) (ItemCounts, error) {
	counts, err := await(ctx, c, func(m *protocol.Machine, now time.Time, done func(protocol.Counts, *protocol.Error)) int {
		return m.ReadCounts(now, done)
	})
	return countsOf(counts), err
}

// Unread returns the numbers of unread items that the service reported last. It reports false until there are any: after Counts, or
// with a handler for OnUnread.
func (c *Client) Unread() (ItemCounts, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts, ok := c.machine.Unread()
	return countsOf(counts), ok
}

// Which selects items for a change: [IDs], [UpTo] or [UpToIn].
type Which struct {
	ids            []string
	upTo, category string
}

// IDs selects items by their ids.
func IDs(ids ...string) Which { return Which{ids: ids} }

// UpTo selects an item and all older ones: the newest that the user has seen, so that later ones stay unread.
func UpTo(id string) Which { return Which{upTo: id} }

// UpToIn selects an item and all older ones, of one category.
func UpToIn(category, id string) Which { return Which{upTo: id, category: category} }

// MarkRead marks unread items as read.
func (c *Client) MarkRead(ctx context.Context, which Which) (*ItemsChanged, error) {
	return c.changeItems(ctx, "read", which)
}

// MarkUnread marks read items as unread.
func (c *Client) MarkUnread(ctx context.Context, which Which) (*ItemsChanged, error) {
	return c.changeItems(ctx, "unread", which)
}

// Archive archives items.
func (c *Client) Archive(ctx context.Context, which Which) (*ItemsChanged, error) {
	return c.changeItems(ctx, "archive", which)
}

// Unarchive makes archived items read.
func (c *Client) Unarchive(ctx context.Context, which Which) (*ItemsChanged, error) {
	return c.changeItems(ctx, "unarchive", which)
}

// changeItems takes several requests for more than 100 ids.
func (c *Client) changeItems(ctx context.Context, action string, which Which) (*ItemsChanged, error) {
	change := map[string]any{"action": action}
	if which.upTo != "" {
		change["up_to"] = which.upTo
		if which.category != "" {
			change["category"] = which.category
		}
	}
	var total int64
	for rest := which.ids; ; {
		if which.upTo == "" {
			size := min(len(rest), itemsMax)
			change["ids"], rest = append([]string{}, rest[:size]...), rest[size:]
		}
		changed, err := await(ctx, c, func(m *protocol.Machine, now time.Time, done func(protocol.Changed, *protocol.Error)) int {
			return m.ChangeItems(now, change, done)
		})
		if err != nil {
			return nil, err
		}
		total += changed.Changed
		if len(rest) == 0 {
			return &ItemsChanged{Changed: total, Unread: changed.Unread, Categories: changed.Categories}, nil
		}
	}
}
