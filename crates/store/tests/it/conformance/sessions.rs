//! Log-ins and backlogs.

use noroshi_store::{
    Ack, Backlog, Counted, DayCount, DeviceChange, ENDED_STATE_PREFIX, Followed, Login, LoginRefused,
    Outstanding, Place, Preferring, Recheck, Rechecked, Store,
};
use noroshi_types::{
    AppId, CategoryPreference, DeviceNum, Epoch, Label, Position, Preferences, Request, Target, Topic, When,
    limits,
};

use super::fixture::*;

pub(crate) async fn a_log_in_reads_everything_at_once(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = join(store, app, "d1", "u1", &["news"]).await;
    let retained =
        send(store, app, Request { retain: true, when: When::Active, ..stored(to_topic("live")) }).await;
    let direct = send(store, app, stored(users(&["u1"]))).await;
    let news = send(store, app, stored(to_topic("news"))).await;
    let all = send(store, app, stored(Target::Everyone)).await;
    let second = send(store, app, stored(users(&["u1"]))).await;
    let session_topics = topics(&["live", "quiet", "news"]);
    let logged = log_in(store, Login { session_topics, ..login(app, "d1") }).await;
    assert_eq!((logged.num, logged.user), (num, Some(user("u1"))));
    let mut names = logged.topics.clone();
    names.sort();
    let everyone = Topic::everyone();
    assert_eq!(names, [everyone.clone(), topic("live"), topic("news"), topic("quiet")], "each once");
    assert_eq!(ids(&logged.page.messages), [direct, news, all, second], "merged by id");
    assert_eq!(ids(&logged.page.retained), [retained]);
    assert!(!logged.page.more);
    let heads = &logged.page.heads;
    assert_eq!(heads.len(), 4);
    assert!(heads.iter().all(|head| head.complete));
    let head = |name: &Topic| heads.iter().find(|head| head.topic == *name).expect("a head").position;
    let message = &logged.page.messages[1];
    assert_eq!(Some(head(&topic("news"))), message.topic.as_ref().map(|place| place.position));
    assert_eq!((head(&topic("live")).offset, head(&everyone).offset), (1, 1));
    assert_eq!(head(&topic("quiet")), Position { epoch: Epoch(0), offset: 0 });
    let again = log_in(store, login(app, "d1")).await;
    assert_eq!(ids(&again.page.messages), [direct, news, all, second], "nothing was acknowledged");
}

pub(crate) async fn a_log_in_reads_what_the_device_follows(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = join(store, app, "d1", "u1", &[]).await;
    let other = join(store, app, "d2", "u2", &[]).await;
    let followed = async || {
        let logged = store.log_in(vec![login(app, "d2"), login(app, "d1")]).await.expect("read");
        let logged: Vec<Followed> = logged.into_iter().map(|one| one.expect("accepted").followed).collect();
        let read = store.followed_preferences(app, vec![device("d2"), device("d1"), device("nobody")]).await;
        assert_eq!(read.expect("read"), [&logged[..], &[Followed::default()]].concat());
        logged
    };
    assert_eq!(followed().await, [Followed::default(), Followed::default()]);
    let ads = Label::parse("ads").expect("a label");
    let capped = |daily_max| {
        let own = CategoryPreference { daily_max, muted: Some(false), channels: None };
        Preferences { categories: [(ads.clone(), own)].into(), ..Preferences::default() }
    };
    let set = async |of: Preferring, preferences: Option<Preferences>| {
        store.set_preferences(app, &of, preferences).await.expect("set");
    };
    let counted = |device, id| Counted { device, category: ads.clone(), day: 7, id: [id; 16], max: 3 };
    let counts = vec![counted(num, 1), counted(num, 2), counted(other, 3)];
    assert_eq!(store.count_for_caps(counts).await.expect("counted"), [true; 3]);
    // Counts are read only where something is capped.
    set(Preferring::User(user("u1")), Some(capped(None))).await;
    let plain = |preferences| Followed { preferences: Some(preferences), ..Followed::default() };
    assert_eq!(followed().await, [Followed::default(), plain(capped(None))]);
    set(Preferring::Device(device("d1")), Some(capped(Some(3)))).await;
    let count = DayCount { category: ads.clone(), day: 7, ids: vec![[1; 16], [2; 16]] };
    let counts = vec![count];
    assert_eq!(followed().await, [Followed::default(), Followed { counts, ..plain(capped(Some(3))) }]);
    set(Preferring::User(user("u2")), Some(capped(Some(9)))).await;
    assert_eq!(followed().await[0].counts[0].ids, [[3; 16]]);
    set(Preferring::Device(device("d1")), None).await;
    assert_eq!(followed().await[1], plain(capped(None)));
}

pub(crate) async fn a_refusal_does_not_affect_others(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    join(store, app, "d2", "u2", &[]).await;
    store.revoke_tokens(app, &device("d2"), NOW).await.expect("revoked");
    let batch = vec![
        login(app, "d1"),
        login(app, "d9"),
        login(app, "d2"),
        Login { token_version: Some(2), ..login(app, "d2") },
        Login { create: true, ..login(app, "d2") },
    ];
    let answers = store.log_in(batch).await.expect("read");
    let refused: Vec<_> = answers.into_iter().map(Result::err).collect();
    let revoked = Some(LoginRefused::Revoked);
    assert_eq!(refused, [None, revoked, revoked, None, revoked]);
    assert_eq!(
        store.device(app, &device("d9")).await.expect("read"),
        None,
        "a device token creates no device"
    );
}

/// A log-in with an app JWT.
fn jwt(app: AppId, id: &str, of: &str, names: &[&str]) -> Login {
    Login { user: Some(user(of)), create: true, token_version: None, topics: topics(names), ..login(app, id) }
}

pub(crate) async fn an_app_jwt_creates_its_device(store: &dyn Store) {
    let app = app(store, "shop").await;
    send(store, app, stored(to_topic("news"))).await;
    let first = log_in(store, jwt(app, "d1", "u1", &["news"])).await;
    assert_eq!(first.user, Some(user("u1")));
    assert!(first.page.messages.is_empty(), "a subscription starts at the present");
    let made = store.device(app, &device("d1")).await.expect("read").expect("created");
    assert_eq!((made.num, made.user, made.topics), (first.num, Some(user("u1")), topics(&["news"])));

    let kept = send(store, app, stored(users(&["u1"]))).await;
    let missed = send(store, app, stored(to_topic("news"))).await;
    let same = log_in(store, jwt(app, "d1", "u1", &["news", "more"])).await;
    assert_eq!(same.num, first.num);
    assert_eq!(ids(&same.page.messages), [kept, missed]);
    assert_eq!(
        store.device(app, &device("d1")).await.expect("read").expect("found").topics,
        topics(&["more", "news"])
    );

    // The device gets another user, who does not see the first one's messages.
    let other = log_in(store, jwt(app, "d1", "u2", &[])).await;
    assert_eq!((other.num, other.user), (first.num, Some(user("u2"))));
    assert_eq!(ids(&other.page.messages), [missed]);
}

pub(crate) async fn answers_keep_the_order_of_the_batch(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &[]).await;
    let d2 = join(store, app, "d2", "u2", &[]).await;
    let batch =
        vec![jwt(app, "new1", "u8", &[]), login(app, "d1"), jwt(app, "new2", "u9", &[]), login(app, "d2")];
    let answers = store.log_in(batch).await.expect("read");
    let logged: Vec<_> = answers.into_iter().map(|answer| answer.expect("logged in")).collect();
    assert_eq!((logged[1].num, logged[3].num), (d1, d2));
    let users: Vec<_> = logged.iter().map(|logged| logged.user.clone().expect("a user")).collect();
    assert_eq!(users, ["u8", "u1", "u9", "u2"].map(user));
    assert_eq!(store.log_in(Vec::new()).await.expect("read").len(), 0);
}

async fn next(store: &dyn Store, asked: Backlog) -> noroshi_store::BacklogPage {
    store.backlog(asked).await.expect("read")
}

pub(crate) async fn a_backlog_comes_in_pages(store: &dyn Store) {
    let app = app(store, "shop").await;
    // Inboxes and logs are short here, so many topics are needed for several pages.
    let names: Vec<String> = (0..30).map(|i| format!("t{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let device = join(store, app, "d1", "u1", &names).await;
    let mut sent = Vec::new();
    for _ in 0..TOPIC_LOG_ROWS {
        for name in &names {
            sent.push(send(store, app, stored(to_topic(name))).await);
        }
    }
    for _ in 0..INBOX_ROWS {
        sent.push(send(store, app, stored(users(&["u1"]))).await);
    }
    let first = log_in(store, login(app, "d1")).await.page;
    assert_eq!(ids(&first.messages), sent[..limits::BACKLOG_PAGE]);
    assert!(first.more);
    let asked = Backlog {
        app,
        device,
        after: first.messages.last().map(|message| message.id),
        session_topics: Vec::new(),
        session_since: None,
        now: NOW,
    };
    let second = next(store, asked.clone()).await;
    assert_eq!(ids(&second.messages), sent[limits::BACKLOG_PAGE..]);
    assert!(!second.more && second.retained.is_empty());
    assert_eq!(second.heads.len(), names.len() + 1);
    let from_the_start = next(store, Backlog { after: None, ..asked.clone() }).await;
    assert_eq!(ids(&from_the_start.messages), sent[..limits::BACKLOG_PAGE]);
    let nobody = next(store, Backlog { device: DeviceNum(999), after: None, ..asked }).await;
    assert!(nobody.messages.is_empty() && !nobody.more);
}

pub(crate) async fn a_backlog_resumes(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &["news"]).await;
    let seen_retained = send(store, app, Request { retain: true, ..stored(to_topic("old")) }).await;
    let seen = send(store, app, stored(users(&["u1"]))).await;
    send(store, app, stored(to_topic("news"))).await;
    let resume = send(store, app, stored(to_topic("live"))).await;
    let live = send(store, app, stored(to_topic("live"))).await;
    let news = send(store, app, stored(to_topic("news"))).await;
    let direct = send(store, app, stored(users(&["u1"]))).await;
    let asked = Login { session_topics: topics(&["live", "old"]), resume: Some(resume), ..login(app, "d1") };
    let page = log_in(store, asked.clone()).await.page;
    assert_eq!(ids(&page.messages), [live, news, direct], "also retained messages of session topics");
    assert!(page.retained.is_empty(), "{seen_retained} was already seen");
    assert!(page.heads.iter().all(|head| head.complete));
    let before = Login { resume: Some(seen), ..asked.clone() };
    assert_eq!(log_in(store, before).await.page.messages.len(), 5);

    let device = log_in(store, login(app, "d1")).await.num;
    let session_topics = topics(&["live", "news"]);
    let asked_on = Backlog { app, device, after: Some(live), session_topics, session_since: None, now: NOW };
    assert_eq!(ids(&next(store, asked_on.clone()).await.messages), [news, direct]);

    // From the beginning, except what this session received already.
    let anew = Backlog { after: None, session_since: Some(resume), ..asked_on };
    let page = next(store, anew.clone()).await;
    let received = ids(&page.messages);
    assert!(received.contains(&seen) && received.contains(&live) && !received.contains(&resume));
    assert_eq!(received.len(), 5, "a durable subscription is read from its position");
    let later = next(store, Backlog { after: Some(live), ..anew }).await;
    assert_eq!(ids(&later.messages), [news, direct], "the later position counts");

    // The log of the session topic no longer reaches back to the place.
    for _ in 0..TOPIC_LOG_ROWS + 1 {
        send(store, app, stored(to_topic("live"))).await;
    }
    let page = log_in(store, asked).await.page;
    let complete =
        |name: &str| page.heads.iter().find(|head| head.topic == topic(name)).expect("a head").complete;
    assert!(!complete("live") && complete("news") && complete("old"));
}

pub(crate) async fn session_topics_start_at_the_present(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    send(store, app, stored(to_topic("live"))).await;
    let asked = Login { session_topics: topics(&["live"]), ..login(app, "d1") };
    let logged = log_in(store, asked.clone()).await;
    assert!(logged.page.messages.is_empty());
    let head = logged.page.heads.iter().find(|head| head.topic == topic("live")).expect("a head");
    assert!(head.position.offset == 1 && head.complete);
    assert_eq!(
        store.device(app, &device("d1")).await.expect("read").expect("found").topics,
        [],
        "not durable"
    );
    send(store, app, stored(to_topic("live"))).await;
    assert!(log_in(store, asked).await.page.messages.is_empty());
}

pub(crate) async fn too_many_topics_are_refused(store: &dyn Store) {
    let app = app(store, "shop").await;
    let many: Vec<Topic> = (0..limits::TOPICS_PER_DEVICE_MAX).map(|i| topic(&format!("t{i}"))).collect();
    join(store, app, "d1", "u1", &["t0"]).await;
    let fits = Login { session_topics: many.clone(), ..login(app, "d1") };
    log_in(store, fits.clone()).await;
    join(store, app, "d1", "u1", &["x"]).await;
    assert_eq!(try_log_in(store, fits).await.err(), Some(LoginRefused::TooManyTopics));
    let refused = [
        Login { topics: many.clone(), session_topics: topics(&["y"]), ..jwt(app, "new", "u1", &[]) },
        Login { topics: many.clone(), ..jwt(app, "d1", "u1", &[]) },
    ];
    for login in refused {
        assert_eq!(try_log_in(store, login).await.err(), Some(LoginRefused::TooManyTopics));
    }
    assert_eq!(store.device(app, &device("new")).await.expect("read"), None, "nothing was created");
    log_in(store, Login { topics: many, ..jwt(app, "new", "u1", &[]) }).await;
}

pub(crate) async fn a_recheck_detects_new_inbox_rows(store: &dyn Store) {
    let app = app(store, "shop").await;
    let (one, two) = (join(store, app, "d1", "u1", &["news"]).await, join(store, app, "d2", "u2", &[]).await);
    let first = send(store, app, stored(users(&["u1", "u2"]))).await;
    let logged = log_in(store, login(app, "d1")).await;
    assert_eq!(ids(&logged.page.messages), [first]);
    let check = |device, since| Recheck { device, revision: None, since };
    let recheck = async |checks: &[Recheck]| store.recheck(checks.to_vec()).await.expect("read");
    assert_eq!(recheck(&[]).await, []);
    assert_eq!(
        recheck(&[check(one, logged.as_of)]).await,
        [Rechecked::Same],
        "it returned the current state"
    );
    let elsewhere = send(store, app, stored(users(&["u2"]))).await;
    send(store, app, stored(to_topic("news"))).await;
    let (same, newer) = (Rechecked::Same, Rechecked::Newer);
    let asked =
        [check(two, logged.as_of), check(one, logged.as_of), check(two, Place(0)), check(one, Place(0))];
    assert_eq!(recheck(&asked).await, [newer, same, newer, newer], "in order, without a topic's messages");
    assert_eq!(ack(store, two, &[elsewhere]).await, 1);
    assert_eq!(recheck(&asked).await, [same, same, newer, newer], "acknowledged messages are gone");
    let later = log_in(store, login(app, "d1")).await;
    assert!(later.as_of > logged.as_of);
    assert_eq!(recheck(&[check(two, later.as_of)]).await, [same]);
}

pub(crate) async fn a_recheck_detects_changes(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = join(store, app, "d1", "u1", &["news"]).await;
    let d1 = device("d1");
    let known = async || log_in(store, Login { token_version: None, ..login(app, "d1") }).await;
    let recheck = async |logged: &noroshi_store::LoggedIn| {
        let check = Recheck { device: num, revision: Some(logged.revision), since: logged.as_of };
        store.recheck(vec![check]).await.expect("read")[0]
    };
    let mut logged = known().await;
    // None of these changes what a session depends on.
    let change = DeviceChange { locale: Some(Some("ja".to_owned())), ..DeviceChange::default() };
    store.update_device(app, &d1, change, NOW).await.expect("updated");
    store.subscribe(app, &d1, &topic("news"), NOW).await.expect("found");
    store.unsubscribe(app, &d1, &topic("other")).await.expect("none");
    join(store, app, "d1", "u1", &["news"]).await;
    assert_eq!(recheck(&logged).await, Rechecked::Same);

    store.subscribe(app, &d1, &topic("sale"), NOW).await.expect("new");
    assert_eq!(recheck(&logged).await, Rechecked::Changed);
    logged = known().await;
    assert_eq!(recheck(&logged).await, Rechecked::Same);
    store.unsubscribe(app, &d1, &topic("sale")).await.expect("was there");
    assert_eq!(recheck(&logged).await, Rechecked::Changed);
    logged = known().await;
    join(store, app, "d1", "u1", &["more"]).await;
    assert_eq!(recheck(&logged).await, Rechecked::Changed, "the device registered with another topic");
    logged = known().await;
    join(store, app, "d1", "u2", &[]).await;
    assert_eq!(recheck(&logged).await, Rechecked::Changed, "the device registered for another user");
    logged = known().await;
    let change = DeviceChange { user: Some(None), ..DeviceChange::default() };
    store.update_device(app, &d1, change, NOW).await.expect("updated");
    assert_eq!(recheck(&logged).await, Rechecked::Changed);
    logged = known().await;
    store.revoke_tokens(app, &d1, NOW).await.expect("revoked");
    assert_eq!(recheck(&logged).await, Rechecked::Changed);
    logged = known().await;
    let moved = log_in(store, jwt(app, "d1", "u3", &["night"])).await;
    assert_eq!(recheck(&logged).await, Rechecked::Changed, "a log-in moved the device");
    assert_eq!(recheck(&moved).await, Rechecked::Same);
    send(store, app, stored(users(&["u3"]))).await;
    assert_eq!(recheck(&moved).await, Rechecked::Newer);
    assert_eq!(recheck(&logged).await, Rechecked::Changed, "retained messages come before newer ones");
    store.delete_device(app, &d1, NOW).await.expect("deleted");
    assert_eq!(recheck(&moved).await, Rechecked::Changed);
    join(store, app, "d1", "u3", &[]).await;
    assert_eq!(recheck(&moved).await, Rechecked::Changed, "another device of the same id");
}

pub(crate) async fn a_kept_session_is_returned_at_the_next_log_in(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let logged = log_in(store, login(app, "d1")).await;
    assert_eq!(logged.kept, None);
    store.keep_session(logged.num, Some(vec![0, 255, 7])).await.expect("kept");
    assert_eq!(log_in(store, login(app, "d1")).await.kept, Some(vec![0, 255, 7]));
    store.keep_session(logged.num, None).await.expect("forgotten");
    assert_eq!(log_in(store, login(app, "d1")).await.kept, None);
    store
        .keep_session(noroshi_types::DeviceNum(999_999), Some(vec![1]))
        .await
        .expect("no empty session state");
}

pub(crate) async fn a_kept_session_ends_with_its_user(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = device("d1");
    join(store, app, "d1", "u1", &[]).await;
    let logged = log_in(store, login(app, "d1")).await;
    let keep = async |kept: Option<&[u8]>| {
        store.keep_session(logged.num, kept.map(<[u8]>::to_vec)).await.expect("kept");
    };
    let kept =
        async || store.log_in(vec![login(app, "d1")]).await.expect("read").remove(0).expect("inserted").kept;
    let ended = Some(vec![ENDED_STATE_PREFIX, 2, 0, 200, 7]);
    keep(Some(&[2, 0, 200, 7])).await;
    join(store, app, "d1", "u1", &[]).await;
    assert_eq!(kept().await, Some(vec![2, 0, 200, 7]), "the same user");
    join(store, app, "d1", "u2", &[]).await;
    assert_eq!(kept().await, ended, "another user");
    join(store, app, "d1", "u3", &[]).await;
    keep(Some(&[2, 1])).await;
    assert_eq!(kept().await, ended, "marked once, and a later write of the ended session is ignored");
    keep(None).await;
    assert_eq!(kept().await, None);
    // A change by a provider, and by an app JWT.
    let change = DeviceChange { user: Some(Some(user("u4"))), ..DeviceChange::default() };
    keep(Some(&[2])).await;
    store.update_device(app, &d1, change, NOW).await.expect("changed");
    assert_eq!(kept().await, Some(vec![ENDED_STATE_PREFIX, 2]));
    keep(None).await;
    assert_eq!(log_in(store, jwt(app, "d1", "u5", &[])).await.kept, Some(vec![ENDED_STATE_PREFIX]));
    keep(None).await;
    // Also if nothing was kept: the state that the session is about to keep has ended too.
    store.revoke_tokens(app, &d1, NOW).await.expect("revoked");
    store.revoke_tokens(app, &d1, NOW).await.expect("revoked");
    keep(Some(&[2])).await;
    let again = Login { token_version: None, ..login(app, "d1") };
    assert_eq!(log_in(store, again).await.kept, Some(vec![ENDED_STATE_PREFIX]));
}

pub(crate) async fn outstanding_messages_of_a_session_are_found(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let num = join(store, app, "d1", "u1", &[]).await;
    let second = join(store, app, "d2", "u1", &[]).await;
    let short = Request { ttl: ttl(60), ..stored(to_topic("news")) };
    let expiring = send(store, app, short).await;
    let news = send(store, app, stored(to_topic("news"))).await;
    let cancelled = send(store, app, stored(to_topic("news"))).await;
    store.cancel(app, cancelled, NOW).await.expect("cancelled");
    let retain =
        |text| Request { retain: true, when: When::Connected, data: Some(text), ..stored(to_topic("live")) };
    let replaced = send(store, app, retain(noroshi_types::JsonText::from_valid("1"))).await;
    let retained = send(store, app, retain(noroshi_types::JsonText::from_valid("2"))).await;
    let passed = send(store, app, Request { when: When::Connected, ..stored(to_topic("news")) }).await;
    let direct = send(store, app, stored(users(&["u1"]))).await;
    let acknowledged = send(store, app, stored(users(&["u1"]))).await;
    store.ack(vec![Ack { device: num, ids: vec![acknowledged, news] }], NOW).await.expect("acknowledged");
    let foreign = send(store, other, stored(to_topic("news"))).await;
    let unknown = noroshi_types::NotificationId::from_bytes([7; 16]);
    let all = [direct, foreign, retained, replaced, unknown, acknowledged, expiring, passed, cancelled, news];
    let found = async |device, now| {
        let asked = Outstanding { app, device, ids: all.to_vec(), now };
        ids(&store.outstanding(asked).await.expect("read"))
    };
    assert_eq!(found(num, NOW).await, [direct, retained, expiring, news], "in the requested order");
    assert_eq!(found(second, NOW).await, [direct, retained, acknowledged, expiring, news]);
    let later = NOW.saturating_add(std::time::Duration::from_secs(60));
    assert_eq!(found(num, later).await, [direct, retained, news]);
}
