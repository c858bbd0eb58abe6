//! What is known about a notification on a device: for whom it was, and what still waits.

use noroshi_store::{
    Accept, CampaignState, DeviceChange, Finished, NewCampaign, NewVariant, OfCampaign, OutcomePart,
    PendingPush, PushPart, PushRecord, PushStage, Registration, Rest, Store, Subscribed, Trace,
    TracedCampaign, TracedTarget, UploadLine,
};
use noroshi_types::{
    AppId, CampaignId, Condition, DeviceNum, JsonText, Lane, NotificationId, Outcome, PushService, Request,
    Target, Timestamp, When,
};

use super::fixture::*;
use super::push_fixture::*;

async fn trace(store: &dyn Store, app: AppId, id: NotificationId, of: &str) -> Trace {
    store.trace(app, id, &device(of)).await.expect("read").expect("found")
}

async fn target(store: &dyn Store, app: AppId, id: NotificationId, of: &str) -> TracedTarget {
    trace(store, app, id, of).await.target
}

/// A request for connected devices only.
fn live(target: Target) -> Request {
    Request { when: When::Connected, ..stored(target) }
}

async fn join_at(store: &dyn Store, app: AppId, id: &str, of: Option<&str>, now: Timestamp) {
    let device = Some(device(id));
    let registration = Registration { device, user: of.map(user), ..Registration::default() };
    store
        .register(app, vec![registration], now)
        .await
        .expect("registered")
        .remove(0)
        .expect("within the limits");
}

pub(crate) async fn a_trace_knows_who_was_named(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    join(store, app, "d2", "u2", &[]).await;
    join_at(store, app, "bare", None, NOW).await;
    let to_users = send(store, app, live(users(&["u1", "u3"]))).await;
    let to_devices = send(store, app, stored(devices(&["d1", "late"]))).await;
    join_at(store, app, "late", Some("u3"), at(5)).await;
    for (of, named) in [("d1", true), ("d2", false), ("bare", false), ("late", true)] {
        let found = target(store, app, to_users, of).await;
        assert_eq!(found, TracedTarget::Users { named: Some(named) }, "{of}");
    }
    for (of, named) in [("d1", true), ("d2", false), ("late", true)] {
        let found = target(store, app, to_devices, of).await;
        assert_eq!(found, TracedTarget::Devices { named: Some(named) }, "{of}");
    }
    let late = trace(store, app, to_devices, "late").await;
    assert_eq!((late.device.created_at, late.notification.sent_at), (at(5), NOW));
    assert!(late.steps.is_empty() && !late.in_inbox && late.push.is_none());

    let change = DeviceChange { user: Some(Some(user("u1"))), ..DeviceChange::default() };
    store.update_device(app, &device("d2"), change, at(7)).await.expect("changed");
    let changed = trace(store, app, to_users, "d2").await;
    assert_eq!(changed.target, TracedTarget::Users { named: Some(true) });
    assert_eq!((changed.device.user, changed.device.user_at), (Some(user("u1")), Some(at(7))));

    let noted = store.note(Accept {
        app,
        request: live(users(&["u1"])).into(),
        now: NOW,
        idempotency: None,
        campaign: None,
        gate: None,
    });
    written_behind(store, app, noted.message.id, None).await;
    let found = trace(store, app, noted.message.id, "d1").await;
    assert_eq!(found.target, TracedTarget::Users { named: Some(true) });
    assert_eq!(found.notification.when, When::Connected);
}

pub(crate) async fn a_trace_knows_since_when_a_device_subscribes(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    join(store, app, "d2", "u2", &[]).await;
    let on_topic = send(store, app, stored(to_topic("news"))).await;
    let condition = Condition::parse("'news' in topics && !('sport' in topics)").expect("a condition");
    let to_condition = send(store, app, live(Target::Condition(condition))).await;
    let to_all = send(store, app, stored(Target::Everyone)).await;
    assert!(store.subscribe(app, &device("d2"), &topic("news"), at(4)).await.expect("subscribed"));
    assert!(!store.subscribe(app, &device("d2"), &topic("news"), at(5)).await.expect("known"));
    let subscription = async |of| match target(store, app, on_topic, of).await {
        TracedTarget::Topic { topic: found, subscription } if found == topic("news") => subscription,
        other => panic!("{other:?}"),
    };
    let since = |seconds, is_past| Some(Subscribed { since: Some(at(seconds)), is_past });
    assert_eq!(subscription("d1").await, since(0, false));
    assert_eq!(subscription("d2").await, since(4, true));
    assert_eq!(ack(store, d1, &[on_topic]).await, 1);
    assert_eq!(subscription("d1").await, since(0, true));

    let holds = async |of| match target(store, app, to_condition, of).await {
        TracedTarget::Condition { matches, matched, .. } => (matches, matched),
        other => panic!("{other:?}"),
    };
    assert_eq!((holds("d1").await, holds("d2").await), ((true, true), (true, false)));
    store.subscribe(app, &device("d1"), &topic("sport"), at(6)).await.expect("subscribed");
    assert_eq!(holds("d1").await, (false, true), "it matched at that time");
    store.unsubscribe(app, &device("d2"), &topic("news")).await.expect("unsubscribed");
    assert_eq!(subscription("d2").await, None);
    let everyone = TracedTarget::Everyone { subscription: Some(Subscribed { since: None, is_past: false }) };
    assert_eq!(target(store, app, to_all, "d2").await, everyone);
    store.cancel(app, on_topic, at(7)).await.expect("cancelled");
    assert!(trace(store, app, on_topic, "d2").await.notification.is_cancelled);
}

pub(crate) async fn a_trace_knows_which_push_waits(store: &dyn Store) {
    let app = app(store, "shop").await;
    let a = pushable(store, app, "a", "u1", &["news"], PushService::Apns).await;
    pushable(store, app, "b", "u2", &[], PushService::Fcm).await;
    let queued = Some(PendingPush { due_at: at(30), stage: PushStage::Queued });
    let id = send(store, app, Request { push: fallback(30), ..stored(users(&["u1", "u2"])) }).await;
    assert_eq!(trace(store, app, id, "a").await.push, queued);
    // The push is not needed any more, although the batch still names the device.
    assert_eq!(ack(store, a, &[id]).await, 1);
    assert_eq!(trace(store, app, id, "a").await.push, None);
    let taken = take(store, 31).await.batches;
    assert_eq!(taken.len(), 1);
    let with_sender = Some(PendingPush { due_at: at(30), stage: PushStage::Taken { since: Some(at(31)) } });
    assert_eq!(trace(store, app, id, "b").await.push, with_sender);
    end_all(store, taken, Outcome::Pushed).await;
    assert_eq!(trace(store, app, id, "b").await.push, None);

    let walk = send(store, app, Request { push: fallback(60), ..live(to_topic("news")) }).await;
    let collected = Some(PendingPush { due_at: at(60), stage: PushStage::Collected });
    assert_eq!(trace(store, app, walk, "a").await.push, collected);
    let due = store.walks(at(60), 9).await.expect("read").due.remove(0);
    let batches = vec![batch(Lane::Direct, 61, &[a])];
    store.walked(&due, batches, Some(a.0), Vec::new(), at(60)).await.expect("walked");
    let queued = Some(PendingPush { due_at: at(61), stage: PushStage::Queued });
    assert_eq!(trace(store, app, walk, "a").await.push, queued);
    assert_eq!(trace(store, app, walk, "b").await.push, collected, "the walk comes to it later");
}

pub(crate) async fn a_trace_of_a_campaign_covers_all_that_it_sends(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let mut nums = Vec::new();
    for i in 0..5 {
        nums.push(pushable(store, app, &format!("d{i}"), &format!("u{i}"), &[], PushService::Apns).await);
    }
    join(store, other, "d0", "u0", &[]).await;
    let content = || NewVariant { notification: None, data: Some(JsonText::from_valid("1")) };
    let new = NewCampaign {
        when: Some(When::Stored),
        variants: vec![content()],
        ..new_campaign(app, CampaignState::Running)
    };
    let made = store.create_campaign(new, NOW).await.expect("created").campaign;
    let own = NotificationId::from_bytes(*made.id.as_bytes());
    // A batch for later, two of the second and third device under their own notification, and one under a variant's.
    let batches = vec![batch(Lane::Campaign, 50, &nums[..1])];
    store.enqueue(made.id, 0, batches, nums[3].0, false, Vec::new(), NOW).await.expect("enqueued");
    let published = accept(
        store,
        Accept {
            app,
            request: stored(devices(&["d1", "d2"])).into(),
            now: at(1),
            idempotency: None,
            campaign: Some(OfCampaign { id: made.id, lane: Lane::Campaign, variant: None }),
            gate: None,
        },
    );
    let published = published.await.expect("accepted").message.id;
    let pushed = |id, outcome, of: usize| OutcomePart {
        app,
        id,
        outcome,
        at: at(2),
        devices: vec![nums[of]],
        count: 1,
    };
    store.record(vec![pushed(made.variants[0].notification, Outcome::Pushed, 3)]);
    written_behind(store, app, made.variants[0].notification, Some(Outcome::Pushed)).await;

    let of_campaign = async |id, of| {
        let found = trace(store, app, id, of).await;
        let TracedTarget::Campaign(campaign) = &found.target else { panic!("{found:?}") };
        (found.clone(), TracedCampaign::clone(campaign))
    };
    for id in [own, made.notification] {
        let (waits, campaign) = of_campaign(id, "d0").await;
        assert_eq!((campaign.id, campaign.state, &campaign.spec), (made.id, made.state, &made.spec));
        assert_eq!((campaign.is_past, campaign.is_published, campaign.uploaded), (true, false, Some(false)));
        assert_eq!(waits.push, Some(PendingPush { due_at: at(50), stage: PushStage::Queued }));
        let (kept, campaign) = of_campaign(id, "d1").await;
        assert_eq!(kept.steps, [step(at(1), Outcome::Kept)]);
        assert!(kept.in_inbox && campaign.is_published);
        let (of_variant, campaign) = of_campaign(id, "d3").await;
        assert_eq!(of_variant.steps, [step(at(2), Outcome::Pushed)]);
        assert!(campaign.is_past && !campaign.is_published);
        let (later, campaign) = of_campaign(id, "d4").await;
        assert!(later.steps.is_empty() && later.push.is_none() && !campaign.is_past);
    }
    let (alone, _) = of_campaign(made.variants[0].notification, "d1").await;
    assert!(alone.steps.is_empty(), "a variant's notification covers the variant only");
    assert_eq!(target(store, app, published, "d1").await, TracedTarget::Devices { named: Some(true) });
    for (tenant, id) in [(other, own), (other, made.notification), (app, NotificationId::from_bytes([7; 16]))]
    {
        assert!(store.trace(tenant, id, &device("d0")).await.expect("read").is_none());
    }

    let draft = store.create_campaign(new_campaign(app, CampaignState::Draft), NOW).await.expect("created");
    let id: CampaignId = draft.campaign.id;
    let line = UploadLine { user: user("u1"), line: JsonText::from_valid("{}") };
    store.upload(app, id, vec![line], Default::default(), NOW).await.expect("uploaded");
    let own = NotificationId::from_bytes(*id.as_bytes());
    let uploaded = async |of| of_campaign(own, of).await.1.uploaded;
    assert_eq!((uploaded("d1").await, uploaded("d2").await), (Some(true), Some(false)));
}

pub(crate) async fn a_trace_has_the_attempts_at_a_device(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let a = pushable(store, app, "a", "u1", &[], PushService::Apns).await;
    let b = pushable(store, app, "b", "u2", &[], PushService::Apns).await;
    join(store, other, "a", "u1", &[]).await;
    let id = send(store, app, Request { push: always(), ..stored(users(&["u1", "u2"])) }).await;
    let batch = take(store, 1).await.batches.remove(0);
    let content = store.push_content(app, id).await.expect("read").expect("content");
    assert!(content.names_recipients);
    let attempts = |text: &str, devices: &[DeviceNum], until| {
        Some(Box::new(PushRecord { keep_until: at(until), devices: devices.to_vec(), attempts: text.into() }))
    };
    let parts = |devices: &[DeviceNum]| {
        vec![PushPart { outcome: Outcome::Pushed, reason: None, variant: None, devices: devices.to_vec() }]
    };
    let rest = Some(Rest { leased_until: batch.leased_until, recipients: vec![b] });
    let part =
        Finished { rest, parts: parts(&[a]), record: attempts("first", &[a, b], 100), ..ended(batch.id) };
    store.finish(vec![part.clone()], at(2)).await.expect("a part is written");
    store.finish(vec![part], at(2)).await.expect("a part is written once");
    let end = Finished { parts: parts(&[b]), record: attempts("second", &[b], 200), ..ended(batch.id) };
    store.finish(vec![end.clone()], at(3)).await.expect("written");
    store.finish(vec![end], at(3)).await.expect("an ended batch writes nothing");

    let of = async |device: &str| trace(store, app, id, device).await.attempts;
    assert_eq!(of("a").await, [b"first".to_vec()]);
    assert_eq!(of("b").await, [b"first".to_vec(), b"second".to_vec()], "the oldest first");
    assert_eq!(trace(store, app, id, "a").await.device.num, a);
    assert!(store.trace(other, id, &device("a")).await.expect("read").is_none());

    store.prune(at(150), 100).await.expect("pruned");
    assert!(of("a").await.is_empty());
    assert_eq!(of("b").await, [b"second".to_vec()]);
    let pruned = store.prune(at(200), 100).await.expect("pruned");
    assert_eq!((pruned.push_records, of("b").await.len()), (1, 0));
    store.delete_app(app).await.expect("deleted");
}
