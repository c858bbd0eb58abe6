//! Topics: positions, logs and retained messages.

use std::sync::Arc;

use noroshi_store::{BacklogPage, Recover, RetainedFilter, RetainedScan, Store, TopicState};
use noroshi_types::{
    AppId, Epoch, Message, NotificationId, Position, Request, Target, Timestamp, Topic, When,
};

use super::fixture::*;

async fn publish(store: &dyn Store, app: AppId, request: Request) -> Arc<Message> {
    send_at(store, app, request, NOW).await.message
}

fn position(message: &Message) -> Position {
    message.topic.as_ref().expect("a topic message").position
}

async fn recover(
    store: &dyn Store,
    app: AppId,
    name: &str,
    since: Option<Position>,
    retained: bool,
    now: Timestamp,
) -> BacklogPage {
    store.recover(Recover { app, topic: topic(name), since, retained, now }).await.expect("read")
}

/// The messages recovered since a position, and whether they are complete.
async fn since(
    store: &dyn Store,
    app: AppId,
    position: Position,
    now: Timestamp,
) -> (Vec<NotificationId>, bool) {
    let page = recover(store, app, "news", Some(position), false, now).await;
    assert_eq!((page.heads.len(), page.retained.len(), page.more), (1, 0, false));
    (ids(&page.messages), page.heads[0].complete)
}

pub(crate) async fn offsets_count_every_message(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let mut epochs = Vec::new();
    for (when, offset) in [(When::Stored, 1), (When::Active, 2), (When::Connected, 3), (When::Stored, 4)] {
        let message = publish(store, app, Request { when, ..stored(to_topic("news")) }).await;
        assert_eq!(message.topic.as_ref().map(|place| &place.topic), Some(&topic("news")));
        assert_eq!(position(&message).offset, offset);
        epochs.push(position(&message).epoch);
    }
    assert!(epochs.iter().all(|epoch| *epoch == epochs[0] && *epoch != Epoch(0)));
    assert_eq!(position(&*publish(store, app, stored(to_topic("sport"))).await).offset, 1);
    assert_eq!(
        position(&*publish(store, other, stored(to_topic("news"))).await).offset,
        1,
        "a topic of another app"
    );
    let state = store.topic(app, &topic("news")).await.expect("read");
    let head = Position { epoch: epochs[0], offset: 4 };
    assert_eq!((state.position, state.log_rows), (Some(head), 2), "only stored messages are in the log");
}

pub(crate) async fn durable_subscribers_catch_up(store: &dyn Store) {
    let app = app(store, "shop").await;
    publish(store, app, stored(to_topic("news"))).await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    let first = publish(store, app, stored(to_topic("news"))).await;
    publish(store, app, Request { when: When::Connected, ..stored(to_topic("news")) }).await;
    publish(store, app, Request { ttl: ttl(0), ..stored(to_topic("news")) }).await;
    let second = publish(store, app, stored(to_topic("news"))).await;
    let page = log_in(store, login(app, "d1")).await.page;
    assert_eq!(
        page.messages,
        [first.clone(), second.clone()],
        "with their positions, since the subscription"
    );
    assert_eq!(ack(store, d1, &[first.id]).await, 1);
    assert_eq!(waiting(store, app, "d1", NOW).await, [second.id]);
    assert_eq!(ack(store, d1, &[second.id, first.id]).await, 1, "the first was already acknowledged");
    assert_eq!(waiting(store, app, "d1", NOW).await, []);
    // An existing subscription keeps its position.
    let third = publish(store, app, stored(to_topic("news"))).await;
    join(store, app, "d1", "u1", &["news"]).await;
    assert_eq!(waiting(store, app, "d1", NOW).await, [third.id]);
}

pub(crate) async fn positions_never_go_back(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    let stranger = join(store, app, "d2", "u2", &[]).await;
    let first = publish(store, app, stored(to_topic("news"))).await.id;
    let second = publish(store, app, stored(to_topic("news"))).await.id;
    let live = publish(store, app, Request { when: When::Active, ..stored(to_topic("news")) }).await.id;
    assert_eq!(ack(store, d1, &[live]).await, 0, "messages that are not stored need no acknowledgement");
    assert_eq!(waiting(store, app, "d1", NOW).await, [first, second]);
    assert_eq!(ack(store, d1, &[second]).await, 1);
    assert_eq!(ack(store, d1, &[first]).await, 0);
    assert_eq!(waiting(store, app, "d1", NOW).await, []);
    assert_eq!(ack(store, stranger, &[first, second]).await, 0, "the device is not subscribed");
    assert_eq!(counts(store, app, first).await, []);
}

pub(crate) async fn every_device_subscribes_to_everyone(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    join(store, other, "d1", "u1", &[]).await;
    join(store, app, "d1", "u1", &[]).await;
    let accepted = send_at(store, app, stored(Target::Everyone), NOW).await;
    assert_eq!((accepted.targets, accepted.kept()), (None, 0));
    assert_eq!(accepted.message.topic.as_ref().map(|place| place.topic.clone()), Some(Topic::everyone()));
    let late = join(store, app, "d2", "u2", &[]).await;
    assert_eq!(waiting(store, app, "d1", NOW).await, [accepted.message.id]);
    assert_eq!(waiting(store, app, "d2", NOW).await, [], "a device hears it from its registration on");
    assert_eq!(waiting(store, other, "d1", NOW).await, []);
    let next = publish(store, app, stored(Target::Everyone)).await.id;
    assert_eq!(ack(store, late, &[next]).await, 1);
    assert_eq!(waiting(store, app, "d1", NOW).await, [accepted.message.id, next]);
    assert_eq!(waiting(store, app, "d2", NOW).await, []);
    assert!(!store.unsubscribe(app, &device("d1"), &Topic::everyone()).await.expect("retained"));
    assert_eq!(store.topic(app, &Topic::everyone()).await.expect("read").subscribers, 2);
}

pub(crate) async fn a_log_is_recovered(store: &dyn Store) {
    let app = app(store, "shop").await;
    let first = publish(store, app, stored(to_topic("news"))).await;
    publish(store, app, Request { when: When::Active, ..stored(to_topic("news")) }).await;
    let second = publish(store, app, stored(to_topic("news"))).await;
    let third = publish(store, app, stored(to_topic("news"))).await;
    let start = Position { offset: 0, ..position(&first) };
    assert_eq!(since(store, app, start, NOW).await, (vec![first.id, second.id, third.id], true));
    assert_eq!(since(store, app, position(&first), NOW).await, (vec![second.id, third.id], true));
    assert_eq!(since(store, app, position(&third), NOW).await, (vec![], true));
    let page = recover(store, app, "news", Some(position(&first)), false, NOW).await;
    assert_eq!(page.messages, [second, third.clone()]);
    assert_eq!((page.heads[0].topic.clone(), page.heads[0].position), (topic("news"), position(&third)));
    let present = recover(store, app, "news", None, false, NOW).await;
    assert!(present.messages.is_empty() && present.heads[0].complete);
    assert_eq!(present.heads[0].position, position(&third));
}

pub(crate) async fn a_trimmed_log_is_not_complete(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    let mut sent = Vec::new();
    for _ in 0..TOPIC_LOG_ROWS + 2 {
        sent.push(publish(store, app, stored(to_topic("news"))).await);
    }
    let kept: Vec<_> = sent[2..].iter().map(|message| message.id).collect();
    assert_eq!(since(store, app, position(&sent[0]), NOW).await, (kept.clone(), false));
    assert_eq!(
        since(store, app, position(&sent[1]), NOW).await,
        (kept.clone(), true),
        "the device missed nothing"
    );
    assert_eq!(store.topic(app, &topic("news")).await.expect("read").log_rows, TOPIC_LOG_ROWS);
    let complete = async || {
        let page = log_in(store, login(app, "d1")).await.page;
        page.heads.iter().find(|head| head.topic == topic("news")).expect("a head").complete
    };
    assert!(!complete().await);
    assert_eq!(waiting(store, app, "d1", NOW).await, kept);
    ack(store, d1, &kept[..1]).await;
    assert!(complete().await);
}

pub(crate) async fn an_expired_message_is_not_complete(store: &dyn Store) {
    let app = app(store, "shop").await;
    let first = publish(store, app, stored(to_topic("news"))).await;
    let short = publish(store, app, Request { ttl: ttl(10), ..stored(to_topic("news")) }).await;
    let last = publish(store, app, stored(to_topic("news"))).await;
    assert_eq!(since(store, app, position(&first), at(9)).await, (vec![short.id, last.id], true));
    assert_eq!(since(store, app, position(&first), at(10)).await, (vec![last.id], false));
    store.prune(at(10), 100).await.expect("pruned");
    assert_eq!(since(store, app, position(&first), at(10)).await, (vec![last.id], false), "pruned or not");
    assert_eq!(since(store, app, position(&short), at(10)).await, (vec![last.id], true));
    store.cancel(app, last.id, at(10)).await.expect("cancelled");
    assert_eq!(since(store, app, position(&short), at(10)).await, (vec![], false));
}

pub(crate) async fn a_collapsed_log_is_complete(store: &dyn Store) {
    let app = app(store, "shop").await;
    let score = || Request { collapse_key: Some("score".into()), ..stored(to_topic("news")) };
    let first = publish(store, app, stored(to_topic("news"))).await;
    let old = publish(store, app, score()).await;
    let plain = publish(store, app, stored(to_topic("news"))).await;
    let new = publish(store, app, score()).await;
    let elsewhere = publish(store, app, Request { target: to_topic("sport"), ..score() }).await;
    assert_eq!(position(&elsewhere).offset, 1);
    assert_eq!(since(store, app, position(&first), NOW).await, (vec![plain.id, new.id], true));
    assert_eq!(store.topic(app, &topic("news")).await.expect("read").log_rows, 3);
    let state = store.notification(app, old.id, NOW).await.expect("read").expect("found").state;
    assert_eq!(state, noroshi_store::State::Done, "it was removed from the log");
}

pub(crate) async fn a_position_of_another_epoch_recovers_the_whole_log(store: &dyn Store) {
    let app = app(store, "shop").await;
    let first = publish(store, app, stored(to_topic("news"))).await;
    let second = publish(store, app, stored(to_topic("news"))).await;
    let all = vec![first.id, second.id];
    let Position { epoch, offset } = position(&second);
    let other = Position { epoch: Epoch(epoch.0 ^ 1), offset };
    assert_eq!(since(store, app, other, NOW).await, (all.clone(), false));
    let never_given_out = Position { epoch, offset: offset + 1 };
    assert_eq!(since(store, app, never_given_out, NOW).await, (all, false));
}

pub(crate) async fn an_unused_topic_is_empty(store: &dyn Store) {
    let app = app(store, "shop").await;
    let zero = Position { epoch: Epoch(0), offset: 0 };
    for asked in [None, Some(zero)] {
        let head = &recover(store, app, "news", asked, true, NOW).await.heads[0];
        assert_eq!((head.position, head.complete), (zero, true));
    }
    let lost = Position { epoch: Epoch(7), offset: 3 };
    assert!(
        !recover(store, app, "news", Some(lost), true, NOW).await.heads[0].complete,
        "its log is no more"
    );
    let unused =
        TopicState { topic: topic("news"), subscribers: 0, position: None, log_rows: 0, retained: false };
    assert_eq!(store.topic(app, &topic("news")).await.expect("read"), unused);
    // A client that knew the topic as unused gets everything since then.
    let first = publish(store, app, stored(to_topic("news"))).await;
    assert_eq!(since(store, app, zero, NOW).await, (vec![first.id], true));
    // A subscription creates the topic before anything is published.
    join(store, app, "d1", "u1", &["calm"]).await;
    let head = recover(store, app, "calm", None, false, NOW).await.heads.remove(0);
    assert!(head.position.epoch != Epoch(0) && head.position.offset == 0 && head.complete);
    let state = store.topic(app, &topic("calm")).await.expect("read");
    assert_eq!((state.subscribers, state.position), (1, None));
}

async fn retained(store: &dyn Store, app: AppId, now: Timestamp) -> Option<NotificationId> {
    store.retained(app, &topic("news"), now).await.expect("read").map(|message| message.id)
}

pub(crate) async fn retained_is_replaced_and_deleted(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    let keep = |when| Request { retain: true, when, ..stored(to_topic("news")) };
    assert_eq!(retained(store, app, NOW).await, None);
    let first = publish(store, app, keep(When::Active)).await;
    assert_eq!(retained(store, app, NOW).await, Some(first.id), "for every value of `when`");
    publish(store, app, stored(to_topic("news"))).await;
    assert_eq!(retained(store, app, NOW).await, Some(first.id));
    let page = recover(store, app, "news", None, true, NOW).await;
    assert_eq!((page.retained, page.messages), (vec![first], vec![]));

    let second = publish(store, app, keep(When::Stored)).await;
    assert_eq!(
        store.retained(app, &topic("news"), NOW).await.expect("read"),
        Some(second.clone()),
        "replaced"
    );
    let page = log_in(store, login(app, "d1")).await.page;
    assert!(ids(&page.messages).contains(&second.id) && page.retained.is_empty(), "reported once");
    ack(store, d1, &[second.id]).await;
    for _ in 0..2 {
        let page = log_in(store, login(app, "d1")).await.page;
        assert_eq!((ids(&page.retained), page.messages.len()), (vec![second.id], 0), "at each log-in");
    }
    assert!(store.topic(app, &topic("news")).await.expect("read").retained);
    assert!(store.delete_retained(app, &topic("news")).await.expect("deleted"));
    assert!(!store.delete_retained(app, &topic("news")).await.expect("repeated"));
    assert!(!store.delete_retained(app, &topic("never")).await.expect("nothing there"));
    assert_eq!(retained(store, app, NOW).await, None);
    assert_eq!(log_in(store, login(app, "d1")).await.page.retained.len(), 0);
}

pub(crate) async fn retained_ends_with_its_ttl(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &["news"]).await;
    let message = publish(
        store,
        app,
        Request { retain: true, when: When::Active, ttl: ttl(10), ..stored(to_topic("news")) },
    )
    .await;
    assert_eq!(retained(store, app, at(9)).await, Some(message.id));
    assert_eq!(retained(store, app, at(10)).await, None);
    let page = log_in(store, noroshi_store::Login { now: at(10), ..login(app, "d1") }).await.page;
    assert!(page.retained.is_empty());
    store.prune(at(10), 100).await.expect("pruned");
    assert!(!store.topic(app, &topic("news")).await.expect("read").retained);
}

pub(crate) async fn topics_are_listed(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    join(store, app, "d1", "u1", &["b", "c"]).await;
    join(store, app, "d2", "u2", &["b"]).await;
    join(store, other, "d1", "u1", &["foreign"]).await;
    let message = publish(store, app, Request { retain: true, ..stored(to_topic("a")) }).await;
    send(store, app, stored(Target::Everyone)).await;
    let list = async |after: Option<&str>, limit| {
        let after = after.map(topic);
        let states = store.topics(app, after.as_ref(), limit).await.expect("read");
        states.into_iter().map(|state| (state.topic.to_string(), state.subscribers)).collect::<Vec<_>>()
    };
    let of = |name: &str, subscribers| (name.to_owned(), subscribers);
    assert_eq!(list(None, 10).await, [of("a", 0), of("b", 2), of("c", 1)], "sorted, without $everyone");
    assert_eq!(list(None, 2).await, [of("a", 0), of("b", 2)]);
    assert_eq!(list(Some("b"), 2).await, [of("c", 1)]);
    let first = store.topics(app, None, 1).await.expect("read").remove(0);
    let position = Some(position(&message));
    assert_eq!(
        first,
        TopicState { topic: topic("a"), subscribers: 0, position, log_rows: 1, retained: true }
    );
}

pub(crate) async fn topics_with_new_messages_are_listed(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    let since = async |place, rows_max| {
        let (mut told, mut from, mut pages) = (Vec::new(), Some(place), 0);
        while let Some(place) = from {
            let page = store.topics_since(place, rows_max).await.expect("read");
            assert!(page.topics.len() <= rows_max);
            told.extend(page.topics);
            from = page.next;
            pages += 1;
        }
        told.sort();
        told.dedup();
        (told, pages)
    };
    send(store, mine, stored(to_topic("old"))).await;
    let place = store.place().await.expect("read");
    assert_eq!(since(place, 9).await, (vec![], 1));
    assert_eq!(since(noroshi_store::Place(0), 9).await, (vec![(mine, topic("old"))], 1));
    send(store, mine, stored(to_topic("news"))).await;
    send(store, mine, stored(to_topic("news"))).await;
    send(store, mine, Request { when: When::Active, ..stored(to_topic("live")) }).await;
    send(store, theirs, stored(Target::Everyone)).await;
    let all = vec![(mine, topic("news")), (theirs, Topic::everyone())];
    assert_eq!(since(place, 9).await, (all.clone(), 1));
    // Three log rows: the last page is empty.
    assert_eq!(since(place, 1).await, (all.clone(), 4));
    assert_eq!(since(place, 2).await, (all, 2));
}

pub(crate) async fn retained_messages_are_found_by_range(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let retain = |name: &str| Request { retain: true, ..stored(to_topic(name)) };
    let mut kept = Vec::new();
    for name in ["a/1", "a/2", "a/2/x", "ab", "b"] {
        kept.push(publish(store, app, retain(name)).await.id);
    }
    publish(store, app, stored(to_topic("a/3"))).await;
    publish(store, other, retain("a/1")).await;
    let page = async |from: &str, until: Option<&str>, messages_max, topics_max, now| {
        let (from, until) = (from.to_owned(), until.map(str::to_owned));
        let scan = RetainedScan { app, from, until, topics_max, messages_max, now };
        let page = store.retained_page(scan, Arc::new(|_: &str| true)).await.expect("read");
        (ids(&page.messages), page.topics, page.next)
    };
    assert_eq!(page("a/", Some("a0"), 9, 9, NOW).await, (kept[..3].to_vec(), 4, None));
    assert_eq!(page("a", Some("b"), 9, 9, NOW).await, (kept[..4].to_vec(), 5, None));
    assert_eq!(page("a/2", Some("a/2\u{1}"), 9, 9, NOW).await, (kept[1..2].to_vec(), 1, None));
    assert_eq!(page("", None, 9, 9, NOW).await.0, kept);
    assert_eq!(page("c", None, 9, 9, NOW).await, (vec![], 0, None));
    // A page ends with its messages or its topics, whichever limit comes first, and the next page continues after it.
    let (first, topics, next) = page("a/", None, 2, 9, NOW).await;
    assert_eq!((first, topics), (kept[..2].to_vec(), 2));
    let (second, topics, next) = page(&next.expect("more"), None, 9, 2, NOW).await;
    assert_eq!((second, topics), (kept[2..3].to_vec(), 2), "a/2/x, and a/3, which retains nothing");
    let next = next.expect("more");
    assert_eq!(page(&next, None, 9, 100_000, NOW).await, (kept[3..].to_vec(), 2, None));
    // Unwanted messages are skipped without being read.
    let wanted: RetainedFilter = Arc::new(|name: &str| name.ends_with("/x"));
    let scan =
        RetainedScan { app, from: String::new(), until: None, topics_max: 100, messages_max: 100, now: NOW };
    let found = store.retained_page(scan, wanted).await.expect("read");
    assert_eq!(ids(&found.messages), kept[2..3]);
    let later = NOW.saturating_add(std::time::Duration::from_secs(29 * 86_400));
    assert_eq!(page("", None, 9, 9, later).await.0, [], "they have expired");
    // `$everyone` is not listed.
    publish(store, app, Request { retain: true, ..stored(Target::Everyone) }).await;
    assert_eq!(page("$", Some("%"), 9, 9, NOW).await.0, []);
}

pub(crate) async fn log_pages_cover_all_topics(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let before = store.place().await.expect("read");
    let first = publish(store, app, stored(to_topic("a"))).await.id;
    publish(store, other, stored(to_topic("a"))).await;
    publish(store, app, Request { when: When::Connected, ..stored(to_topic("a")) }).await;
    publish(store, app, stored(Target::Everyone)).await;
    let second = publish(store, app, stored(to_topic("b"))).await.id;
    let all = store.log_page(app, before, 100, NOW).await.expect("read");
    assert_eq!((ids(&all.messages), all.next), (vec![first, second], None));
    let behind = store.log_page(app, noroshi_store::Place::of(first), 100, NOW).await.expect("read");
    assert_eq!(ids(&behind.messages), [second]);
    let (mut place, mut found, mut pages) = (Some(before), Vec::new(), 0);
    while let Some(since) = place {
        let page = store.log_page(app, since, 1, NOW).await.expect("read");
        found.extend(ids(&page.messages));
        (place, pages) = (page.next, pages + 1);
    }
    assert_eq!((found, pages), (vec![first, second], 5), "four rows and the end");
}
