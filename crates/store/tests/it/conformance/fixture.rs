//! Helpers for the tests: short ways to create apps, devices and requests, with a fixed clock.

use std::sync::Arc;
use std::time::Duration;

use noroshi_store::{
    Accept, Accepted, Ack, AppSettings, Error, FirstRead, Idempotency, LoggedIn, Login, LoginRefused,
    Registration, RemovedPart, Store, Work,
};
use noroshi_types::{
    AppId, AppName, DeviceId, DeviceNum, JsonText, Message, NotificationId, Outcome, Push, PushEnvironment,
    PushService, PushToken, Request, Target, Timestamp, Topic, Ttl, Urgency, UserId, When,
};
use tokio::sync::oneshot;

/// Limits of the stores under test: small, so that tests can exceed them.
pub(crate) const INBOX_ROWS: u32 = 5;
/// Items of a user.
pub(crate) const ITEM_ROWS: u32 = 8;
pub(crate) const TOPIC_LOG_ROWS: u64 = 4;

/// The time at which every test starts.
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 + seconds * 1_000)
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).expect(name)
}

pub(crate) fn device(name: &str) -> DeviceId {
    DeviceId::parse(name).expect(name)
}

pub(crate) fn topic(name: &str) -> Topic {
    Topic::parse(name).expect(name)
}

pub(crate) fn topics(names: &[&str]) -> Vec<Topic> {
    names.iter().map(|name| topic(name)).collect()
}

pub(crate) fn users(names: &[&str]) -> Target {
    Target::Users(names.iter().map(|name| user(name)).collect())
}

pub(crate) fn devices(names: &[&str]) -> Target {
    Target::Devices(names.iter().map(|name| device(name)).collect())
}

pub(crate) fn to_topic(name: &str) -> Target {
    Target::Topic(topic(name))
}

/// A `stored` request with the default ttl.
pub(crate) fn stored(target: Target) -> Request {
    Request {
        target,
        when: When::Stored,
        ttl: Ttl::default(),
        urgency: Urgency::High,
        waits_for_use: false,
        category: None,
        collapse_key: None,
        retain: false,
        notification: Some(JsonText::from_valid(r#"{"title":"狼煙"}"#)),
        data: Some(JsonText::from_valid("[1,2]")),
        push: Push::default(),
        item: None,
        trace: None,
    }
}

/// A token for APNs' sandbox.
pub(crate) fn apns_token(token: &str) -> PushToken {
    let json = format!(r#"{{"service":"apns","token":"{token}","environment":"sandbox"}}"#);
    PushToken {
        service: PushService::Apns,
        environment: PushEnvironment::Sandbox,
        json: JsonText::from_valid(json),
    }
}

pub(crate) fn ttl(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).expect("a short ttl")
}

/// Devices whose row or push of one notification was removed as a side effect of a call.
pub(crate) fn removed_part(
    app: AppId,
    of: Work,
    outcome: Outcome,
    at: Timestamp,
    devices: &[DeviceNum],
) -> RemovedPart {
    RemovedPart { app, of, outcome, at, devices: devices.to_vec(), count: devices.len() as u64 }
}

/// The outcomes recorded with the acceptance: their devices and counts.
pub(crate) fn outcomes_of(accepted: &Accepted) -> Vec<(Outcome, Vec<DeviceNum>, u64)> {
    let each = accepted.parts.iter().inspect(|part| assert_eq!(part.id, accepted.message.id));
    each.map(|part| (part.outcome, part.devices.clone(), part.count)).collect()
}

pub(crate) async fn app(store: &dyn Store, name: &str) -> AppId {
    let name = AppName::parse(name).expect(name);
    store.create_app(name, AppSettings::default(), NOW).await.expect("a fresh app").id
}

/// A device of a user, with durable subscriptions.
pub(crate) async fn join(store: &dyn Store, app: AppId, id: &str, of: &str, names: &[&str]) -> DeviceNum {
    let registration = Registration {
        device: Some(device(id)),
        user: Some(user(of)),
        topics: topics(names),
        ..Registration::default()
    };
    let answers = store.register(app, vec![registration], NOW).await.expect("registered");
    answers.into_iter().next().expect("an answer").expect("within the limits").num
}

/// A device for each of the users, under the user's name.
pub(crate) async fn join_many(store: &dyn Store, app: AppId, names: &[&str]) -> Vec<DeviceNum> {
    let registration = |name: &&str| Registration {
        device: Some(device(name)),
        user: Some(user(name)),
        ..Registration::default()
    };
    let answers = store.register(app, names.iter().map(registration).collect(), NOW).await;
    answers.expect("registered").into_iter().map(|answer| answer.expect("within the limits").num).collect()
}

pub(crate) async fn accept(store: &dyn Store, accept: Accept) -> Result<Accepted, Error> {
    let (answer, answered) = oneshot::channel();
    store.accept(accept, Box::new(move |result| drop(answer.send(result))));
    answered.await.expect("every accept is answered")
}

pub(crate) async fn send_at(store: &dyn Store, app: AppId, request: Request, now: Timestamp) -> Accepted {
    accept(store, Accept { app, request: request.into(), now, idempotency: None, campaign: None, gate: None })
        .await
        .expect("accepted")
}

/// Sends and returns the id.
pub(crate) async fn send(store: &dyn Store, app: AppId, request: Request) -> NotificationId {
    send_at(store, app, request, NOW).await.message.id
}

pub(crate) async fn send_once(
    store: &dyn Store,
    app: AppId,
    request: Request,
    key: &str,
    body: u8,
    now: Timestamp,
) -> Result<Accepted, Error> {
    let idempotency = Some(Idempotency { key: key.into(), body_hash: [body; 32] });
    accept(store, Accept { app, request: request.into(), now, idempotency, campaign: None, gate: None }).await
}

/// A log-in with a device token.
pub(crate) fn login(app: AppId, id: &str) -> Login {
    Login {
        app,
        device: device(id),
        user: None,
        create: false,
        token_version: Some(1),
        issued: noroshi_store::Issued::Elsewhere,
        topics: Vec::new(),
        session_topics: Vec::new(),
        resume: None,
        now: NOW,
    }
}

pub(crate) async fn try_log_in(store: &dyn Store, login: Login) -> Result<LoggedIn, LoginRefused> {
    let first = read_log_ins(store, vec![login.clone()]).await;
    let answers = store.log_in(vec![login]).await.expect("a log-in is read");
    assert_eq!(answers.len(), 1);
    match first {
        FirstRead::Answered(first) => assert_eq!(sorted(first), sorted(answers.clone())),
        FirstRead::Unread(unread) => assert_eq!(unread.len(), 1),
        FirstRead::Failed(error) => panic!("{error}"),
    }
    answers.into_iter().next().expect("an answer")
}

/// Answers as text, without the order of their topics, which is arbitrary.
fn sorted(mut answers: Vec<Result<LoggedIn, LoginRefused>>) -> String {
    for logged_in in answers.iter_mut().flatten() {
        logged_in.topics.sort();
        logged_in.page.heads.sort_by(|a, b| a.topic.cmp(&b.topic));
    }
    format!("{answers:?}")
}

/// What a log-in reads before anything is changed.
pub(crate) async fn read_log_ins(store: &dyn Store, logins: Vec<Login>) -> FirstRead {
    let (answer, answered) = oneshot::channel();
    store.read_log_ins(logins, Box::new(move |read| drop(answer.send(read))));
    answered.await.expect("an answer")
}

pub(crate) async fn log_in(store: &dyn Store, login: Login) -> LoggedIn {
    try_log_in(store, login).await.expect("logged in")
}

/// The messages that a device gets at a log-in now, oldest first.
pub(crate) async fn waiting(store: &dyn Store, app: AppId, id: &str, now: Timestamp) -> Vec<NotificationId> {
    ids(&log_in(store, Login { now, ..login(app, id) }).await.page.messages)
}

pub(crate) fn ids(messages: &[Arc<Message>]) -> Vec<NotificationId> {
    messages.iter().map(|message| message.id).collect()
}

pub(crate) async fn ack(store: &dyn Store, device: DeviceNum, ids: &[NotificationId]) -> u64 {
    let acked = store.ack(vec![Ack { device, ids: ids.to_vec() }], at(1)).await.expect("acknowledged");
    acked.iter().map(|acked| acked.count).sum()
}

/// The counts of a notification.
pub(crate) async fn counts(store: &dyn Store, app: AppId, id: NotificationId) -> Vec<(Outcome, u64)> {
    store.notification(app, id, NOW).await.expect("read").expect("found").counts
}

/// Waits for a background write: the notification with this outcome.
pub(crate) async fn written_behind(
    store: &dyn Store,
    app: AppId,
    id: NotificationId,
    outcome: Option<Outcome>,
) {
    for _ in 0..2_000 {
        let state = store.notification(app, id, NOW).await.expect("read");
        let counted = |wanted| state.iter().flat_map(|state| &state.counts).any(|(of, _)| *of == wanted);
        if outcome.map_or(state.is_some(), counted) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{outcome:?} of {id:?} was not written");
}
