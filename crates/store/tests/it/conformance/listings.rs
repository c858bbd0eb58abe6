//! Lists of notifications and devices with filters.

use noroshi_store::{
    Accept, DeviceChange, DeviceFilter, DeviceSearch, ListedNotification, ListedRecipient, NewBatch,
    NewCampaign, NewToken, NotificationFilter, NotificationPage, OfCampaign, OutcomePart, Recipient,
    Registration, SeenFilter, State, Store, TokenFilter, TraceStep, Work,
};
use noroshi_types::{
    AppId, CampaignId, Category, Condition, DeviceNum, Label, Lane, NotificationId, Outcome, PushService,
    Request, Target, TokenKey, TokenKind, Topic, Urgency, UtcDay, When,
};

use super::fixture::*;
use super::push_fixture::*;

fn all() -> NotificationFilter {
    NotificationFilter { limit: 50, rows_max: 1_000, ..NotificationFilter::default() }
}

async fn page(store: &dyn Store, app: AppId, filter: NotificationFilter) -> NotificationPage {
    store.list_notifications(app, filter, at(100)).await.expect("read")
}

fn ids_of(page: &NotificationPage) -> Vec<NotificationId> {
    page.notifications.iter().map(|shown| shown.id).collect()
}

async fn listed(store: &dyn Store, app: AppId, filter: NotificationFilter) -> Vec<NotificationId> {
    let page = page(store, app, filter).await;
    assert_eq!((page.next, page.searched_to), (None, None));
    ids_of(&page)
}

async fn of_recipient(store: &dyn Store, app: AppId, recipient: Recipient) -> Vec<NotificationId> {
    listed(store, app, NotificationFilter { recipient: Some(recipient), ..all() }).await
}

fn of_user(name: &str) -> Recipient {
    Recipient::User(user(name))
}

fn of_device(name: &str) -> Recipient {
    Recipient::Device(device(name))
}

fn condition(text: &str) -> Target {
    Target::Condition(Condition::parse(text).expect("valid"))
}

pub(crate) async fn notifications_are_listed_newest_first(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    join(store, app, "d1", "u1", &[]).await;
    let mut sent = Vec::new();
    for seconds in 0..5 {
        sent.insert(0, send_at(store, app, stored(users(&["u1"])), at(seconds)).await.message.id);
        send_at(store, other, stored(users(&["u1"])), at(seconds)).await;
    }
    assert_eq!(listed(store, app, all()).await, sent);
    let found = page(store, app, all()).await.notifications.remove(0);
    let expected = ListedNotification {
        id: sent[0],
        sent_at: at(4),
        expires_at: stored(users(&["u1"])).expires_at(at(4)),
        when: When::Stored,
        urgency: Urgency::High,
        target: "users",
        target_text: None,
        targets: Some(1),
        notification: stored(users(&["u1"])).notification,
        category: None,
        campaign: None,
        progress: Some(noroshi_store::Progress { state: State::Pending, counts: vec![(Outcome::Kept, 1)] }),
        recipients: Vec::new(),
    };
    assert_eq!(found, expected);

    let first = page(store, app, NotificationFilter { limit: 2, ..all() }).await;
    assert_eq!(
        (ids_of(&first), first.next, first.searched_to),
        (sent[..2].to_vec(), Some(sent[1]), Some(at(3)))
    );
    let rest = NotificationFilter { before: first.next, ..all() };
    assert_eq!(listed(store, app, rest).await, sent[2..]);
    let since = NotificationFilter { since: Some(at(3)), ..all() };
    assert_eq!(listed(store, app, since).await, sent[..2]);
    let until = NotificationFilter { until: Some(at(1)), ..all() };
    assert_eq!(listed(store, app, until).await, sent[3..]);
    let between = NotificationFilter { since: Some(at(1)), until: Some(at(2)), ..all() };
    assert_eq!(listed(store, app, between).await, sent[2..4]);
    let never = NotificationFilter { since: Some(at(9)), ..all() };
    assert_eq!(listed(store, app, never).await, []);
    assert_eq!(listed(store, AppId(99), all()).await, []);
}

pub(crate) async fn notifications_are_filtered(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &["news"]).await;
    let category = |name| Some(Category { name: Label::parse(name).expect("a label"), is_essential: false });
    let low = Request { urgency: Urgency::Low, ..stored(users(&["u1"])) };
    let to_user = send(store, app, low).await;
    let to_device =
        send(store, app, Request { category: category("orders"), ..stored(devices(&["d1"])) }).await;
    let on_topic = send(store, app, Request { category: category("sale"), ..stored(to_topic("news")) }).await;
    let on_other = send(store, app, stored(to_topic("sport"))).await;
    let to_some = send(store, app, stored(condition("'news' in topics"))).await;
    let to_all = send(store, app, stored(Target::Everyone)).await;
    let of_target = async |kind| listed(store, app, NotificationFilter { target: Some(kind), ..all() }).await;
    assert_eq!(of_target("users").await, [to_user]);
    assert_eq!(of_target("devices").await, [to_device]);
    assert_eq!(of_target("topic").await, [on_other, on_topic]);
    assert_eq!(of_target("condition").await, [to_some]);
    assert_eq!(of_target("everyone").await, [to_all]);
    assert_eq!(of_target("campaign").await, []);
    let of_topic = async |topic| listed(store, app, NotificationFilter { topic: Some(topic), ..all() }).await;
    assert_eq!(of_topic(topic("news")).await, [on_topic]);
    assert_eq!(of_topic(Topic::everyone()).await, [to_all]);
    assert_eq!(of_topic(topic("unknown")).await, []);
    let orders = NotificationFilter { category: Label::parse("orders").ok(), ..all() };
    let found = page(store, app, orders.clone()).await.notifications.remove(0);
    assert_eq!((found.id, found.category), (to_device, orders.category.clone()));
    let urgent = NotificationFilter { urgency: Some(Urgency::Low), ..all() };
    assert_eq!(listed(store, app, urgent).await, [to_user]);
    let both = NotificationFilter { target: Some("topic"), ..orders };
    assert_eq!(listed(store, app, both).await, []);
}

pub(crate) async fn a_page_of_notifications_is_bounded(store: &dyn Store) {
    let app = app(store, "shop").await;
    let mut sent = Vec::new();
    for seconds in 0..10 {
        let target = if seconds == 0 { to_topic("rare") } else { to_topic("news") };
        sent.insert(0, send_at(store, app, stored(target), at(seconds)).await.message.id);
    }
    let rare = |before| NotificationFilter { topic: Some(topic("rare")), rows_max: 4, before, ..all() };
    let first = page(store, app, rare(None)).await;
    assert_eq!((ids_of(&first), first.next, first.searched_to), (vec![], Some(sent[3]), Some(at(6))));
    let second = page(store, app, rare(first.next)).await;
    assert_eq!((ids_of(&second), second.next), (vec![], Some(sent[7])));
    let last = page(store, app, rare(second.next)).await;
    assert_eq!((ids_of(&last), last.next), (vec![sent[9]], None));
}

pub(crate) async fn notifications_of_a_user_have_their_outcomes(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    let d2 = join(store, app, "d2", "u1", &[]).await;
    join(store, app, "d3", "u2", &[]).await;
    let named = send(store, app, stored(users(&["u1", "u2"]))).await;
    send(store, app, stored(users(&["u2"]))).await;
    let to_device = send(store, app, stored(devices(&["d2"]))).await;
    let on_topic = send(store, app, stored(to_topic("news"))).await;
    send(store, app, stored(to_topic("sport"))).await;
    let to_some = send(store, app, stored(condition("'news' in topics"))).await;
    let live = Request { when: When::Active, ..stored(users(&["u1"])) };
    let live = store.note(Accept {
        app,
        request: live.into(),
        now: at(1),
        idempotency: None,
        campaign: None,
        gate: None,
    });
    let live = live.message.id;
    written_behind(store, app, live, None).await;
    let expected = [live, to_some, on_topic, to_device, named];
    assert_eq!(of_recipient(store, app, of_user("u1")).await, expected);

    ack(store, d1, &[named]).await;
    store.open(d1, vec![to_some], at(5)).await.expect("written");
    let failed =
        OutcomePart { app, id: named, outcome: Outcome::Slow, at: at(9), devices: vec![d2], count: 1 };
    store.record(vec![failed]);
    written_behind(store, app, named, Some(Outcome::Slow)).await;
    let found = page(store, app, NotificationFilter { recipient: Some(of_user("u1")), ..all() }).await;
    let recipients = |id| {
        let shown = found.notifications.iter().find(|shown| shown.id == id).expect("listed");
        shown.recipients.clone()
    };
    let of = |name: &str, seconds, outcome, in_inbox| ListedRecipient {
        device: device(name),
        step: Some(TraceStep { at: at(seconds), outcome, reason: None }),
        in_inbox,
    };
    let [second, first] = <[_; 2]>::try_from(recipients(named)).expect("two devices");
    assert_eq!(second, of("d2", 9, Outcome::Slow, true), "the newest device first");
    assert_eq!(first.step.map(|step| step.outcome), Some(Outcome::Acked));
    assert!(!first.in_inbox);
    assert_eq!(recipients(to_device), [of("d2", 0, Outcome::Kept, true)]);
    assert_eq!(recipients(to_some), [of("d1", 5, Outcome::Opened, true)]);
    assert_eq!(recipients(on_topic), [], "no step is recorded");
    assert_eq!(of_recipient(store, app, of_user("u9")).await, []);
    // A user without a device may be named.
    let to_nobody = send(store, app, stored(users(&["u9"]))).await;
    assert_eq!(of_recipient(store, app, of_user("u9")).await, [to_nobody]);
}

pub(crate) async fn notifications_of_a_device_are_those_it_could_get(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    join(store, app, "d2", "u1", &[]).await;
    let of_first = send(store, app, stored(users(&["u1"]))).await;
    let to_other = send(store, app, stored(devices(&["d2"]))).await;
    let before = send_at(store, app, stored(to_topic("news")), at(1)).await.message.id;
    store.subscribe(app, &device("d1"), &topic("news"), at(2)).await.expect("subscribed");
    let after = send_at(store, app, stored(to_topic("news")), at(3)).await.message.id;
    assert_eq!(of_recipient(store, app, of_device("d1")).await, [after, of_first]);
    assert_eq!(of_recipient(store, app, of_device("d2")).await, [to_other, of_first]);
    assert!(!of_recipient(store, app, of_device("d1")).await.contains(&before));
    // Another user's messages are not the device's.
    let change = noroshi_store::DeviceChange { user: Some(Some(user("u2"))), ..Default::default() };
    store.update_device(app, &device("d1"), change, at(4)).await.expect("updated");
    let former = send_at(store, app, stored(users(&["u1"])), at(5)).await.message.id;
    let later = send_at(store, app, stored(users(&["u2"])), at(5)).await.message.id;
    let found = of_recipient(store, app, of_device("d1")).await;
    assert!(found.contains(&later) && !found.contains(&former) && !found.contains(&of_first), "{found:?}");
    assert_eq!(of_recipient(store, app, of_device("unknown")).await, []);
}

pub(crate) async fn notifications_of_a_campaign_are_listed(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = pushable(store, app, "d0", "u0", &[], PushService::Apns).await;
    let draft = new_campaign(app, noroshi_store::CampaignState::Draft);
    let draft = store.create_campaign(draft, NOW).await.expect("created").campaign;
    let new =
        NewCampaign { when: Some(When::Stored), ..new_campaign(app, noroshi_store::CampaignState::Running) };
    let campaign = store.create_campaign(new, NOW).await.expect("created").campaign;
    let published = NewBatch { service: None, ..batch(Lane::Extra, 0, &[num]) };
    store.enqueue(campaign.id, 0, vec![published], 1, true, Vec::new(), NOW).await.expect("enqueued");
    let request = Accept {
        app,
        request: stored(devices(&["d0"])).into(),
        now: at(1),
        idempotency: None,
        campaign: Some(OfCampaign { id: campaign.id, lane: Lane::Extra, variant: None }),
        gate: None,
    };
    let sent = accept(store, request).await.expect("accepted").message.id;
    let other = send_at(store, app, stored(devices(&["d0"])), at(2)).await.message.id;
    let of = |id| NotificationFilter { campaign: Some(id), ..all() };
    let found = page(store, app, of(campaign.id)).await;
    assert_eq!(ids_of(&found), [sent, campaign.notification]);
    assert!(found.notifications.iter().all(|shown| shown.campaign == Some(campaign.id)));
    assert_eq!(found.notifications[1].target, "campaign");
    assert_eq!(listed(store, app, all()).await, [other, sent, campaign.notification]);
    let first = page(store, app, NotificationFilter { limit: 1, ..of(campaign.id) }).await;
    assert_eq!((ids_of(&first), first.next), (vec![sent], Some(sent)));
    let rest = NotificationFilter { before: first.next, ..of(campaign.id) };
    assert_eq!(listed(store, app, rest).await, [campaign.notification]);
    assert_eq!(listed(store, app, of(CampaignId::from_bytes([9; 16]))).await, []);
    assert_eq!(listed(store, app, of(draft.id)).await, [], "it was not sent");

    // A push of the campaign itself is found by its outcomes.
    let pushed = OutcomePart {
        app,
        id: campaign.notification,
        outcome: Outcome::Pushed,
        at: at(3),
        devices: vec![num],
        count: 1,
    };
    store.record(vec![pushed]);
    written_behind(store, app, campaign.notification, Some(Outcome::Pushed)).await;
    let found = page(store, app, NotificationFilter { recipient: Some(of_device("d0")), ..all() }).await;
    assert_eq!(ids_of(&found), [other, sent, campaign.notification]);
    let step = found.notifications[2].recipients[0].step.clone();
    assert_eq!(step.map(|step| (step.outcome, step.at)), Some((Outcome::Pushed, at(3))));
}

async fn device_with(
    store: &dyn Store,
    app: AppId,
    id: &str,
    platform: &str,
    tokens: &[(&str, u64)],
) -> DeviceNum {
    let token = |(key, until): &(&str, u64)| {
        let key = TokenKey::parse(key).expect("a key");
        let expires_at = (*until > 0).then(|| at(*until));
        NewToken { token: token_of(key.kind().service(), id), key, expires_at, only_if_missing: false }
    };
    let registration = Registration {
        device: Some(device(id)),
        user: Some(user("u1")),
        attributes: noroshi_store::Attributes { platform: Some(platform.to_owned()), ..Default::default() },
        topics: topics(&["news", "a"]),
        push_tokens: tokens.iter().map(token).collect(),
        ..Registration::default()
    };
    store.register(app, vec![registration], NOW).await.expect("registered").remove(0).expect("a device").num
}

pub(crate) async fn devices_are_found_by_their_tokens(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    device_with(store, app, "bare", "web", &[]).await;
    let fcm = device_with(store, app, "fcm", "android", &[("fcm", 0)]).await;
    device_with(store, app, "both", "ios", &[("fcm", 0), ("alert", 0)]).await;
    device_with(store, app, "voip", "ios", &[("voip", 0)]).await;
    device_with(store, app, "expired", "ios", &[("live-activity/a", 50)]).await;
    device_with(store, other, "theirs", "ios", &[("fcm", 0)]).await;
    let suspect = noroshi_store::SuspectToken { device: fcm, token_at: NOW, reason: "UNREGISTERED" };
    suspend(store, app, suspect).await;
    let search = async |search: DeviceSearch| -> Vec<String> {
        let search = DeviceSearch { limit: 50, rows_max: 1_000, ..search };
        let page = store.search_devices(app, search, at(100)).await.expect("read");
        assert_eq!(page.next, None);
        for found in &page.devices {
            assert_eq!(store.device(app, &found.id).await.expect("read").as_ref(), Some(found));
        }
        page.devices.iter().map(|device| device.id.to_string()).collect()
    };
    let everything = DeviceSearch::default();
    assert_eq!(search(everything.clone()).await, ["bare", "fcm", "both", "voip", "expired"]);
    let tokens = async |service, kind, suspended| {
        let token = Some(TokenFilter::Some { service, kind, suspended });
        search(DeviceSearch { token, ..DeviceSearch::default() }).await
    };
    assert_eq!(tokens(None, None, None).await, ["fcm", "both", "voip"]);
    assert_eq!(tokens(Some(PushService::Fcm), None, None).await, ["fcm", "both"]);
    assert_eq!(tokens(Some(PushService::Apns), None, None).await, ["both", "voip"]);
    assert_eq!(tokens(None, Some(TokenKind::Alert), None).await, ["both"]);
    assert_eq!(tokens(None, Some(TokenKind::Voip), None).await, ["voip"]);
    assert_eq!(tokens(None, Some(TokenKind::LiveActivity), None).await, Vec::<String>::new());
    assert_eq!(tokens(None, None, Some(true)).await, ["fcm"]);
    assert_eq!(tokens(None, None, Some(false)).await, ["both", "voip"]);
    assert_eq!(tokens(Some(PushService::Apns), None, Some(true)).await, Vec::<String>::new());
    let none = DeviceSearch { token: Some(TokenFilter::None), ..everything.clone() };
    assert_eq!(search(none.clone()).await, ["bare", "expired"]);
    assert_eq!(search(DeviceSearch { platform: Some("ios".to_owned()), ..none }).await, ["expired"]);
    let of_user =
        DeviceSearch { user: Some(user("u1")), platform: Some("ios".to_owned()), ..everything.clone() };
    assert_eq!(search(of_user).await, ["both", "voip", "expired"]);
    assert_eq!(search(DeviceSearch { user: Some(user("u9")), ..everything }).await, Vec::<String>::new());
}

/// A push service reports the token as suspect.
async fn suspend(store: &dyn Store, app: AppId, suspect: noroshi_store::SuspectToken) {
    let id = send(store, app, Request { push: always(), ..stored(devices(&["fcm"])) }).await;
    let taken = take(store, 0).await.batches.remove(0);
    assert_eq!(taken.work, Work::Notification(id));
    let finished = noroshi_store::Finished { suspects: vec![suspect], ..ended(taken.id) };
    store.finish(vec![finished], at(1)).await.expect("finished");
}

pub(crate) async fn a_search_for_devices_is_bounded(store: &dyn Store) {
    let app = app(store, "shop").await;
    let mut nums = Vec::new();
    for i in 0..10 {
        let platform = if i == 8 { "web" } else { "ios" };
        nums.push(device_with(store, app, &format!("d{i}"), platform, &[]).await);
    }
    let search = async |after, limit| {
        let search = DeviceSearch {
            platform: Some("web".to_owned()),
            after,
            limit,
            rows_max: 4,
            ..Default::default()
        };
        let page = store.search_devices(app, search, NOW).await.expect("read");
        (page.devices.iter().map(|device| device.num).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(search(None, 5).await, (vec![], Some(nums[3])));
    assert_eq!(search(Some(nums[3]), 5).await, (vec![], Some(nums[7])));
    assert_eq!(search(Some(nums[7]), 5).await, (vec![nums[8]], None));
    assert_eq!(search(Some(nums[7]), 1).await, (vec![nums[8]], Some(nums[8])));
    assert_eq!(search(Some(nums[8]), 1).await, (vec![], None));
}

pub(crate) async fn devices_are_found_by_the_day_they_were_seen(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let mut nums = Vec::new();
    for (id, platform) in
        [("never", "ios"), ("old", "ios"), ("today", "web"), ("both", "ios"), ("gone", "web")]
    {
        nums.push(device_with(store, app, id, platform, &[]).await);
    }
    let theirs = device_with(store, other, "theirs", "ios", &[]).await;
    let [_, old, today, both, gone] = nums[..] else { panic!("five devices") };
    let day = UtcDay;
    store.record_seen(vec![gone, both, old, both, theirs], day(100)).await.expect("recorded");
    store.record_seen(vec![today, both], day(200)).await.expect("recorded");
    // A day never goes back.
    store.record_seen(vec![both], day(150)).await.expect("recorded");
    store.record_seen(Vec::new(), day(300)).await.expect("nothing");
    store.delete_device(app, &device("gone"), NOW).await.expect("deleted");
    store.record_seen(vec![gone], day(300)).await.expect("ignored");

    let search = async |app, search: DeviceSearch| -> Vec<String> {
        let page = store
            .search_devices(app, DeviceSearch { limit: 50, rows_max: 1_000, ..search }, NOW)
            .await
            .expect("read");
        assert_eq!(page.next, None);
        for found in &page.devices {
            assert_eq!(store.device(app, &found.id).await.expect("read").as_ref(), Some(found));
        }
        page.devices.iter().map(|device| device.id.to_string()).collect()
    };
    let seen = |from, before| Some(SeenFilter::Days { from: day(from), before: day(before) });
    let by = |seen| DeviceSearch { seen, ..DeviceSearch::default() };
    let everything = seen(0, u32::MAX);
    assert_eq!(search(app, by(everything)).await, ["old", "today", "both"]);
    assert_eq!(search(app, by(Some(SeenFilter::Never))).await, ["never"]);
    assert_eq!(search(app, by(seen(200, u32::MAX))).await, ["today", "both"]);
    assert_eq!(search(app, by(seen(201, u32::MAX))).await, Vec::<String>::new());
    assert_eq!(search(app, by(seen(0, 200))).await, ["old"]);
    assert_eq!(search(app, by(seen(0, 0))).await, Vec::<String>::new());
    assert_eq!(search(other, by(everything)).await, ["theirs"]);
    let of_user = |id, seen| DeviceSearch { user: Some(user(id)), ..by(seen) };
    assert_eq!(search(app, of_user("u1", seen(150, 300))).await, ["today", "both"]);
    assert_eq!(search(app, of_user("u1", Some(SeenFilter::Never))).await, ["never"]);
    assert_eq!(search(app, of_user("u2", everything)).await, Vec::<String>::new());
    let ios = |seen| DeviceSearch { platform: Some("ios".to_owned()), ..by(seen) };
    assert_eq!(search(app, ios(seen(200, 201))).await, ["both"]);
    assert_eq!(search(app, ios(Some(SeenFilter::Never))).await, ["never"]);
    let without = DeviceSearch { token: Some(TokenFilter::None), ..ios(everything) };
    assert_eq!(search(app, without).await, ["old", "both"]);
    let usable = Some(TokenFilter::Some { service: None, kind: None, suspended: Some(false) });
    assert_eq!(search(app, DeviceSearch { token: usable, ..by(everything) }).await, Vec::<String>::new());

    let found = store.device(app, &device("both")).await.expect("read").expect("a device");
    assert_eq!(found.last_seen, Some(day(200)));
    let changed = store.update_device(app, &device("both"), DeviceChange::default(), NOW).await;
    assert_eq!(changed.expect("changed").last_seen, Some(day(200)));
    let listed = store.devices(app, DeviceFilter { limit: 1, ..Default::default() }).await.expect("read");
    assert_eq!(listed[0].last_seen, None);
}

pub(crate) async fn a_search_by_day_is_bounded(store: &dyn Store) {
    let app = app(store, "shop").await;
    let mut nums = Vec::new();
    for i in 0..30 {
        nums.push(device_with(store, app, &format!("d{i}"), if i == 25 { "web" } else { "ios" }, &[]).await);
    }
    store.record_seen(nums.clone(), UtcDay(7)).await.expect("recorded");
    store.record_seen(vec![nums[25], nums[27]], UtcDay(8)).await.expect("recorded");
    let search = async |platform: Option<&str>, from, after, limit| {
        let seen = Some(SeenFilter::Days { from: UtcDay(from), before: UtcDay(9) });
        let platform = platform.map(str::to_owned);
        let search = DeviceSearch { platform, seen, after, limit, rows_max: 2, ..Default::default() };
        let page = store.search_devices(app, search, NOW).await.expect("read");
        (page.devices.iter().map(|device| device.num).collect::<Vec<_>>(), page.next)
    };
    // Entries of days are narrow.
    assert_eq!(search(None, 8, None, 5).await, (vec![], Some(nums[19])));
    assert_eq!(search(None, 8, Some(nums[19]), 1).await, (vec![nums[25]], Some(nums[25])));
    // A device that is seen meanwhile keeps its place.
    store.record_seen(vec![nums[3], nums[29]], UtcDay(8)).await.expect("recorded");
    assert_eq!(search(None, 8, Some(nums[25]), 5).await, (vec![nums[27], nums[29]], None));
    // Devices are not.
    assert_eq!(search(Some("web"), 8, None, 5).await, (vec![], Some(nums[1])));
    assert_eq!(search(Some("web"), 8, Some(nums[24]), 1).await, (vec![nums[25]], Some(nums[25])));
}
