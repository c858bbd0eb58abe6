//! The device client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use noroshi_client::types::{DeviceChange, NewPushToken, Patch, Preferences, QuietHours};
use noroshi_client::{
    Acknowledge, Client, Code, Event, FileReports, ItemsQuery, PresenceMode, Reason, ReportStore, State,
    Subscribe, TokenError, TokenReason, TokenRequest, Transport, Which,
};
use noroshi_sdk_tests::node::{APP, KEY, Node};
use noroshi_sdk_tests::proxy::Proxy;
use noroshi_sdk_tests::recorder::{Device, jwt, text, until, user_of};
use noroshi_server_sdk::types::{
    ExperimentVariant, NewExperiment, NewItem, Outcome as Step, Presence, Shown, To, Trace,
};
use noroshi_server_sdk::{Client as Backend, Notification};
use tokio::time::sleep;

use crate::{Context, Outcome, ensure, numbers};

async fn publish(
    backend: &Backend,
    to: To,
    data: impl Into<String>,
) -> Result<String, noroshi_server_sdk::Error> {
    backend.publish(&text(to, data)).await.map(|receipt| receipt.id)
}

fn topic(name: &str) -> To {
    To::Topic(name.to_owned())
}

async fn inbox_is_empty(device: &Device) -> Outcome {
    for _ in 0..300 {
        if device.client.me().await?.inbox == 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err("the inbox is not empty".into())
}

/// Publishes to a topic until the device has the subscription.
async fn subscribed(backend: &Backend, device: &Device, name: &str) -> Outcome {
    let known = device.record().shown.len();
    for _ in 0..300 {
        publish(backend, topic(name), "probe").await?;
        sleep(Duration::from_millis(50)).await;
        if device.record().shown.len() > known {
            sleep(Duration::from_millis(200)).await;
            return Ok(());
        }
    }
    Err("the subscription is not active".into())
}

fn was_opened(trace: &Trace) -> bool {
    trace.steps.iter().any(|step| step.outcome == Step::Opened)
}

pub(crate) async fn messages_arrive_and_are_acknowledged(context: Context) -> Outcome {
    let device = Device::new(&context.url, "live", |builder| builder)?;
    device.client.subscribe("live/news", Subscribe::default());
    device.connect().await?;
    match device.client.state() {
        State::Connected { transport: Transport::WebSocket, device: Some(id), .. } if id == "live" => {}
        other => return Err(format!("{other:?}").into()),
    }
    publish(&context.backend, device.user(), "1").await?;
    device.shows(&["1"]).await?;
    subscribed(&context.backend, &device, "live/news").await?;
    inbox_is_empty(&device).await?;
    device.client.unsubscribe("live/news");
    device.client.close().await;
    let record = device.record();
    ensure(
        record.errors.is_empty() && record.states.last().and_then(State::reason) == Some(&Reason::Closed),
        || format!("{record:?}"),
    )
}

pub(crate) async fn after_a_kill_nothing_is_lost_or_shown_twice(_: Context) -> Outcome {
    let mut node = Node::start().await?;
    let backend = Backend::new(node.url(), KEY)?;
    let device = Device::new(&node.url(), "killed", |builder| builder)?;
    device.client.subscribe("log", Subscribe::with_recovery());
    device.connect().await?;
    subscribed(&backend, &device, "log").await?;
    device.forget();
    let both = async |n: usize| -> Outcome {
        publish(&backend, device.user(), format!("inbox {n}")).await?;
        publish(&backend, topic("log"), format!("topic {n}")).await?;
        Ok(())
    };
    for n in 0..10 {
        both(n).await?;
    }
    until("20 messages", || device.record().shown.len() >= 20).await?;
    node.kill().await?;
    until("the loss to be noticed", || !device.client.state().is_connected()).await?;
    node.spawn().await?;
    for n in 10..20 {
        both(n).await?;
    }
    until("40 messages", || device.record().shown.len() >= 40).await?;
    both(20).await?;
    until("42 messages", || device.record().shown.len() >= 42).await?;
    for prefix in ["inbox ", "topic "] {
        let mut shown = device.shown();
        shown.retain(|text| text.starts_with(prefix));
        ensure(shown == numbers(prefix, 0..21), || format!("{shown:?}"))?;
    }
    let recovered = device.record().recovered.last().cloned();
    ensure(recovered.as_ref().is_some_and(|event| event.complete == Some(true)), || format!("{recovered:?}"))
}

pub(crate) async fn a_drain_moves_the_client(_: Context) -> Outcome {
    let mut node = Node::start().await?;
    let backend = Backend::new(node.url(), KEY)?;
    let device = Device::new(&node.url(), "drained", |builder| builder)?;
    device.connect().await?;
    for n in 0..20 {
        publish(&backend, device.user(), n.to_string()).await?;
    }
    node.drain().await?;
    node.spawn().await?;
    for n in 20..40 {
        publish(&backend, device.user(), n.to_string()).await?;
    }
    device.shows(&numbers("", 0..40)).await?;
    ensure(device.had_reason(&Reason::Drain), || format!("{:?}", device.record().states))
}

pub(crate) async fn a_newer_connection_replaces_the_client(context: Context) -> Outcome {
    let first = context.device("replaced").await?;
    let second = context.device("replaced").await?;
    until("the first one to be closed", || first.client.state().is_closed()).await?;
    ensure(first.had_reason(&Reason::Replaced), || format!("{:?}", first.record().states))?;
    publish(&context.backend, second.user(), "here").await?;
    second.shows(&["here"]).await?;
    first.shows::<&str>(&[]).await
}

pub(crate) async fn a_revoked_device_continues_with_another_token(context: Context) -> Outcome {
    let device = context.device("revoked").await?;
    // A JWT of the second of the revocation stays rejected.
    sleep(Duration::from_millis(1_100)).await;
    context.backend.revoke_device("revoked").await?;
    until("another token", || device.record().asked.contains(&TokenReason::Rejected)).await?;
    device.connected().await?;
    publish(&context.backend, device.user(), "again").await?;
    device.shows(&["again"]).await
}

pub(crate) async fn a_token_is_renewed_on_the_open_connection(context: Context) -> Outcome {
    let device = Device::new(&context.url, "renewed", |builder| builder)?;
    device.set_lifetime(Duration::from_secs(4));
    device.connect().await?;
    let renewals = || device.record().asked.iter().filter(|reason| **reason == TokenReason::Expiring).count();
    until("two renewals", || renewals() >= 2).await?;
    publish(&context.backend, device.user(), "same session").await?;
    device.shows(&["same session"]).await?;
    let record = device.record();
    ensure(record.states.len() == 2 && record.errors.is_empty(), || format!("{record:?}"))
}

pub(crate) async fn a_token_that_expires_is_replaced(context: Context) -> Outcome {
    let asked = AtomicUsize::new(0);
    let tokens = move |request: TokenRequest| {
        let lifetime = match (asked.fetch_add(1, Ordering::Relaxed), request.reason) {
            (_, TokenReason::Expiring) => None,
            (0, _) => Some(Duration::from_secs(2)),
            _ => Some(Duration::from_secs(600)),
        };
        async move { Ok(jwt("expired", lifetime.ok_or_else(|| TokenError::failed("away"))?)) }
    };
    let (client, mut events) = Client::builder(&*context.url, tokens).build()?;
    client.connect();
    let mut was_expired = false;
    loop {
        match events.next().await.ok_or("the events ended")? {
            Event::State(State::Waiting { reason: Reason::Expired, .. }) => was_expired = true,
            Event::State(State::Connected { .. }) if was_expired => break,
            Event::Error(error) => ensure(*error.code() == Code::TokenFailed, || error.to_string())?,
            _ => {}
        }
    }
    publish(&context.backend, To::Users(vec![user_of("expired")]), "new").await?;
    while let Some(event) = events.next().await {
        if let Event::Message(message) = event {
            ensure(message.data::<String>()? == "new", || format!("{message:?}"))?;
            message.handled();
            return Ok(());
        }
    }
    Err("the events ended".into())
}

pub(crate) async fn a_stalled_network_is_noticed(context: Context) -> Outcome {
    let proxy = Proxy::start(context.port).await?;
    let device =
        Device::new(&proxy.url(), "stalled", |builder| builder.ping_interval(Duration::from_secs(1)))?;
    device.connect().await?;
    publish(&context.backend, device.user(), "0").await?;
    device.shows(&["0"]).await?;
    proxy.freeze();
    publish(&context.backend, device.user(), "1").await?;
    until("the loss to be noticed", || device.had_reason(&Reason::ConnectionLost)).await?;
    proxy.heal().await?;
    publish(&context.backend, device.user(), "2").await?;
    device.shows(&["0", "1", "2"]).await
}

pub(crate) async fn server_sent_events(_: Context) -> Outcome {
    let mut node = Node::start().await?;
    let backend = Backend::new(node.url(), KEY)?;
    let device = Device::new(&node.url(), "streamed", |builder| builder.transports([Transport::Sse]))?;
    device.client.subscribe("stream", Subscribe::with_recovery());
    device.connect().await?;
    for n in 0..5 {
        publish(&backend, device.user(), n.to_string()).await?;
    }
    device.shows(&numbers("", 0..5)).await?;
    inbox_is_empty(&device).await?;
    node.kill().await?;
    node.spawn().await?;
    for n in 5..10 {
        publish(&backend, device.user(), n.to_string()).await?;
    }
    device.shows(&numbers("", 0..10)).await?;
    device.client.set_presence(PresenceMode::Idle);
    let user = user_of(&device.name);
    for _ in 0..200 {
        let users = backend.presence([&user]).await?;
        if users.get(&user).is_some_and(|user| user.presence == Presence::Idle) {
            return Ok(());
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err("the device is not idle".into())
}

pub(crate) async fn close_sends_acknowledgements(context: Context) -> Outcome {
    for transport in [Transport::WebSocket, Transport::Sse] {
        let name = format!("acked-{transport}");
        let device = Device::new(&context.url, &name, |builder| builder.transports([transport]))?;
        device.connect().await?;
        for n in 0..30 {
            publish(&context.backend, device.user(), n.to_string()).await?;
        }
        device.shows(&numbers("", 0..30)).await?;
        device.client.close().await;
        device.connect().await?;
        inbox_is_empty(&device).await?;
        device.shows(&numbers("", 0..30)).await?;
    }
    Ok(())
}

pub(crate) async fn a_message_that_failed_arrives_again(context: Context) -> Outcome {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let handle = Box::new(move |_: &_| match counter.fetch_add(1, Ordering::Relaxed) {
        0 => Err("the disk is full".into()),
        _ => Ok(()),
    });
    let device = Device::with(&context.url, "failing", |builder| builder, handle, Duration::ZERO)?;
    device.connect().await?;
    publish(&context.backend, device.user(), "x").await?;
    until("the error", || device.record().errors.len() == 1).await?;
    let error = device.record().errors[0].clone();
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    ensure(*error.code() == Code::ListenerFailed && cause.as_deref() == Some("the disk is full"), || {
        format!("{error:?}")
    })?;
    device.client.close().await;
    device.connect().await?;
    device.shows(&["x"]).await?;
    inbox_is_empty(&device).await?;
    ensure(calls.load(Ordering::Relaxed) == 2, || "it arrived too often".to_owned())
}

pub(crate) async fn a_delivery_that_is_dropped_arrives_again(context: Context) -> Outcome {
    let tokens = |_| async { Ok(jwt("dropping", Duration::from_secs(600))) };
    let (client, mut events) = Client::builder(&*context.url, tokens).build()?;
    client.connect();
    publish(&context.backend, To::Users(vec![user_of("dropping")]), "x").await.map(drop)?;
    // The device exists after its first log-in.
    let mut id = None;
    let mut has_failed = false;
    loop {
        match events.next().await.ok_or("the events ended")? {
            Event::State(State::Connected { .. }) if id.is_none() => {
                let to = To::Users(vec![user_of("dropping")]);
                id = Some(publish(&context.backend, to, "y").await?);
            }
            Event::Message(message) if !has_failed => {
                has_failed = true;
                drop(message);
                client.close().await;
                client.connect();
            }
            Event::Message(message) => {
                ensure(Some(message.id()) == id.as_deref(), || format!("{message:?}"))?;
                message.handled();
                return Ok(());
            }
            _ => {}
        }
    }
}

#[allow(clippy::too_many_lines, reason = "one device in one order")]
pub(crate) async fn items_preferences_and_variants(context: Context) -> Outcome {
    let backend = &context.backend;
    let green = ExperimentVariant::new("green", 1u64).data(serde_json::json!({"colour": "#0a0"}));
    backend.app(APP).put_experiment("rust-checkout", &NewExperiment::new([green])).await?;
    let device = context.device("centre").await?;
    let client = &device.client;
    client.observe_unread(true);
    until("the counts", || client.unread().is_some_and(|counts| counts.unread == 0)).await?;
    let mut ids = Vec::new();
    for n in 0..3 {
        let item = Notification::new(device.user())
            .notification(Shown::new().title(n.to_string()))
            .data("item")
            .item(NewItem::new().category("orders"));
        ids.push(backend.publish(&item).await?.id);
    }
    let has_three =
        || client.unread().is_some_and(|counts| counts.unread == 3 && counts.categories["orders"] == 3);
    until("three unread", has_three).await?;
    let page = client.list_items(&ItemsQuery::new().limit(2)).await?;
    ensure(page.items.len() == 2 && page.items[0].id == ids[2] && page.next.is_some(), || {
        format!("{page:?}")
    })?;
    let listed = client.items(ItemsQuery::new().limit(1)).collect().await?;
    let listed: Vec<String> = listed.into_iter().rev().map(|item| item.id).collect();
    ensure(listed == ids, || format!("{listed:?}"))?;

    let mut changes = Vec::new();
    for changed in [
        client.mark_read(Which::ids(&ids[..1])).await?,
        client.mark_read(Which::UpToIn { id: ids[2].clone(), category: "orders".to_owned() }).await?,
        client.mark_unread(Which::ids(&ids)).await?,
        client.mark_read(Which::up_to(&ids[1])).await?,
        client.archive(Which::ids(many(&ids[..2]))).await?,
        client.unarchive(Which::ids(&ids[..1])).await?,
    ] {
        changes.push((changed.changed, changed.unread));
    }
    ensure(changes == [(1, 2), (2, 0), (3, 3), (2, 1), (2, 1), (1, 1)], || format!("{changes:?}"))?;
    let counts = client.item_counts().await?;
    ensure(counts.unread == 1, || format!("{counts:?}"))?;

    client.opened([&ids[0]]);
    let mut is_opened = false;
    for _ in 0..200 {
        is_opened = was_opened(&backend.trace(&ids[0], "centre").await?);
        if is_opened {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    ensure(is_opened, || "the report did not arrive".to_owned())?;

    let stored = client.set_preferences(&Preferences::new().muted_topics(["x"])).await?;
    ensure(stored.muted_topics.as_deref() == Some(&["x".to_owned()]), || format!("{stored:?}"))?;
    client.clear_preferences().await?;
    let cleared = client.preferences().await?;
    ensure(cleared.muted_topics.is_none(), || format!("{cleared:?}"))?;
    let wrong = Preferences::new().quiet_hours(QuietHours::new("25:00", "07:00"));
    let error = client.set_user_preferences(&wrong).await.err().ok_or("it was accepted")?;
    let is_typed =
        error.status() == Some(400) && *error.code() == Code::InvalidField && error.request_id().is_some();
    ensure(is_typed && error.field().is_some(), || format!("{error:?}"))?;

    client.subscribe_durably("durable/a").await?;
    let change = DeviceChange::new().locale("ja-JP").tags([("plan", Some("gold".to_owned()))]);
    let me = client.change_me(&change).await?;
    let is_changed =
        me.device == "centre" && me.locale.as_deref() == Some("ja-JP") && me.tags["plan"] == "gold";
    ensure(is_changed && me.topics == ["durable/a"], || format!("{me:?}"))?;
    client.unsubscribe_durably("durable/a").await?;
    let change = DeviceChange::new().clear_locale().tags([("plan", None::<String>)]);
    ensure(change.locale == Patch::Clear, || format!("{change:?}"))?;
    let me = client.change_me(&change).await?;
    ensure(me.locale.is_none() && me.tags.is_empty(), || format!("{me:?}"))?;

    let variant = client.variant("rust-checkout").await?.ok_or("no variant")?;
    let colour = variant.data.as_ref().map(|data| data["colour"].clone());
    ensure(variant.variant == "green" && colour == Some("#0a0".into()), || format!("{variant:?}"))?;
    ensure(client.peek_variant("another").await?.is_none(), || "a variant".to_owned())?;

    let token = NewPushToken::new().token("00fc13ad").environment("sandbox");
    client.set_push_token("voip", None, &token).await?;
    let tokens = client.push_tokens().await?;
    ensure(tokens.push_tokens.len() == 1, || format!("{tokens:?}"))?;
    client.remove_push_token("voip", None).await?;
    let record = device.record();
    ensure(record.errors.is_empty(), || format!("{record:?}"))
}

/// More ids than a request has.
fn many(known: &[String]) -> Vec<String> {
    let mut ids = vec!["01a2190e-8a64-7000-9ea3-000000000001".to_owned(); 150];
    ids.extend_from_slice(known);
    ids
}

pub(crate) async fn reports_survive_the_process(context: Context) -> Outcome {
    let path = std::env::temp_dir().join(format!("noroshi-opened-{}.json", std::process::id()));
    let proxy = Proxy::start(context.port).await?;
    let connect = async || -> Result<Device, noroshi_sdk_tests::Problem> {
        let device =
            Device::new(&proxy.url(), "reporter", |builder| builder.reports(FileReports::new(&path)))?;
        device.connect().await?;
        Ok(device)
    };
    let device = connect().await?;
    let id = publish(&context.backend, device.user(), "x").await?;
    device.shows(&["x"]).await?;
    proxy.cut().await;
    device.client.opened([&id]);
    let stored = || FileReports::new(&path).load().unwrap_or_default();
    until("the file", || stored() == [id.clone()]).await?;
    device.client.close().await;
    drop(device);
    proxy.heal().await?;
    let later = connect().await?;
    until("the report", || stored().is_empty()).await?;
    later.client.close().await;
    let trace = context.backend.trace(&id, "reporter").await?;
    std::fs::remove_file(&path)?;
    ensure(was_opened(&trace), || format!("{trace:?}"))
}

pub(crate) async fn a_burst_does_not_disconnect(_: Context) -> Outcome {
    let node = Node::start().await?;
    let backend = Backend::new(node.url(), KEY)?;
    let slowness = Duration::from_millis(1);
    let device = Device::with(&node.url(), "burst", |builder| builder, Box::new(|_| Ok(())), slowness)?;
    device.client.subscribe("burst", Subscribe::with_recovery());
    device.connect().await?;
    subscribed(&backend, &device, "burst").await?;
    device.client.close().await;
    device.forget();
    let mut batch = backend.publish_batch((0..3_000).map(|n| text(topic("burst"), n.to_string())));
    while let Some(line) = batch.next().await {
        line?.result?;
    }
    device.client.connect();
    // A probe that arrived last may arrive again.
    let shown = || {
        let mut shown = device.shown();
        shown.retain(|text| text != "probe");
        shown
    };
    until("3,000 messages", || shown().len() >= 3_000).await?;
    ensure(shown() == numbers("", 0..3_000), || format!("{} messages", shown().len()))?;
    let record = device.record();
    let is_complete = record.recovered.last().is_some_and(|event| event.complete == Some(true));
    ensure(record.errors.is_empty() && is_complete, || format!("{:?} {:?}", record.errors, record.recovered))
}

pub(crate) async fn a_client_without_messages_acknowledges_nothing(context: Context) -> Outcome {
    let device = Device::new(&context.url, "bell", |builder| builder.without_messages())?;
    device.connect().await?;
    publish(&context.backend, device.user(), "x").await?;
    sleep(Duration::from_millis(500)).await;
    let me = device.client.me().await?;
    ensure(me.inbox == 1 && device.shown().is_empty(), || format!("{me:?}"))?;
    device.client.close().await;
    let other = Device::new(&context.url, "bell", |builder| builder.acknowledge(Acknowledge::Received))?;
    other.connect().await?;
    other.shows(&["x"]).await?;
    inbox_is_empty(&other).await
}

pub(crate) async fn dropped_handles_end_everything(context: Context) -> Outcome {
    let tokens = |_| async { Ok(jwt("ended", Duration::from_secs(600))) };
    let (client, mut events) = Client::builder(&*context.url, tokens).build()?;
    let clone = client.clone();
    client.connect();
    drop(client);
    until("the connection", || clone.state().is_connected()).await?;
    drop(clone);
    let mut last = None;
    while let Some(event) = events.next().await {
        if let Event::State(state) = event {
            last = Some(state);
        }
    }
    ensure(last.as_ref().is_some_and(State::is_closed), || format!("{last:?}"))?;

    // Without its events, a client still answers calls, and acknowledges nothing.
    let (client, events) = Client::builder(&*context.url, tokens).build()?;
    client.connect();
    publish(&context.backend, To::Users(vec![user_of("ended")]), "x").await?;
    drop(events);
    sleep(Duration::from_millis(300)).await;
    let me = client.me().await?;
    ensure(me.inbox == 1, || format!("{me:?}"))
}
