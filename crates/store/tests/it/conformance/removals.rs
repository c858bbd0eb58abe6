//! Removed messages name their app: one call removes messages of several apps.

use noroshi_store::{CampaignState, Finished, RemovedMessages, Store, Work};
use noroshi_types::{AppId, Lane, Outcome, PushService, Request};

use super::fixture::*;
use super::push_fixture::*;

/// Two apps with a device of the same name and user.
async fn apps(store: &dyn Store) -> [AppId; 2] {
    let apps = [app(store, "shop").await, app(store, "game").await];
    for app in apps {
        pushable(store, app, "d1", "u1", &[], PushService::Apns).await;
    }
    apps
}

fn named(removed: &RemovedMessages) -> Vec<(AppId, Work, Outcome)> {
    let mut named: Vec<_> = removed.parts.iter().map(|part| (part.app, part.of, part.outcome)).collect();
    named.sort_unstable_by_key(|(app, ..)| *app);
    named
}

pub(crate) async fn expired_messages_name_their_app(store: &dyn Store) {
    let apps = apps(store).await;
    let mut in_inboxes = Vec::new();
    for app in apps {
        let id = send(store, app, Request { ttl: ttl(10), ..stored(users(&["u1"])) }).await;
        in_inboxes.push((app, Work::Notification(id), Outcome::Expired));
    }
    assert_eq!(named(&store.prune(at(10), 1_000).await.expect("pruned").departed), in_inboxes);
    let mut queued = Vec::new();
    for app in apps {
        let id = send(store, app, Request { ttl: ttl(10), push: always(), ..stored(users(&["u1"])) }).await;
        queued.push((app, Work::Notification(id), Outcome::PushExpired));
    }
    assert_eq!(named(&take(store, 20).await.departed), queued);
}

pub(crate) async fn messages_that_make_room_name_their_app(store: &dyn Store) {
    for app in apps(store).await {
        let keyed = || Request { collapse_key: Some("score".into()), ..stored(users(&["u1"])) };
        let replaced = send(store, app, keyed()).await;
        let accepted = send_at(store, app, keyed(), NOW).await;
        let of = Work::Notification(replaced);
        assert_eq!(named(&accepted.departed), [(app, of, Outcome::Collapsed)]);
        let oldest = accepted.message.id;
        for _ in 1..super::INBOX_ROWS {
            send(store, app, stored(users(&["u1"]))).await;
        }
        let accepted = send_at(store, app, stored(users(&["u1"])), NOW).await;
        let of = Work::Notification(oldest);
        assert_eq!(named(&accepted.departed), [(app, of, Outcome::Evicted)]);
        assert!(accepted.parts.iter().all(|part| part.app == app));
    }
}

pub(crate) async fn cancelled_messages_name_their_app(store: &dyn Store) {
    for (app, seconds) in apps(store).await.into_iter().zip([0, 10]) {
        let id = send(store, app, Request { push: always(), ..stored(users(&["u1"])) }).await;
        let batch = take(store, seconds).await.batches.remove(0);
        let cancelled = store.cancel(app, id, at(seconds + 1)).await.expect("cancelled");
        let expected = [(app, Work::Notification(id), Outcome::Cancelled)];
        assert_eq!(named(&cancelled.departed), expected, "in its inbox");
        let again = vec![again(seconds + 2, 1, &batch.recipients)];
        let ended = Finished { again, ..ended(batch.id) };
        let counts = store.finish(vec![ended], at(seconds + 2)).await.expect("finished");
        assert_eq!(named(&counts.cancelled), expected, "its retry");
        let campaign = running(store, app).await;
        enqueue(store, campaign, Lane::Campaign, seconds, &batch.recipients).await;
        let (from, to) = ([CampaignState::Running], CampaignState::Aborted);
        let (_, departed) =
            store.set_campaign_state(app, campaign, &from, to, at(seconds + 3)).await.expect("aborted");
        assert_eq!(named(&departed), [(app, Work::Campaign(campaign), Outcome::Cancelled)]);
    }
}
