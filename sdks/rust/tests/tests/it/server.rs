//! The library for backends.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use noroshi_sdk_tests::node::{APP, JWT_SECRET};
use noroshi_server_sdk::types::{
    AppChange, AppSeriesQuery, Audience, CampaignMessage, CampaignState, CampaignsQuery, CategoryPreference,
    Code, DevicesQuery, ExperimentChange, ExperimentVariant, ItemsOfUserQuery, Jwks, NewCampaign,
    NewExperiment, NewItem, NewKey, NewNotice, NewPushToken, NotificationsQuery, Platform, PreferenceChannel,
    Preferences, Presence, QuietHours, Recipient, Scope, TargetKind, TopicDecision, TopicRule,
    TopicRuleAllow, TopicRules, TopicsQuery, TraceTargetedBy, When,
};
use noroshi_server_sdk::{Client, DeviceClaims, DeviceRegistration, Error, Notification, Shown, Signer, To};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use crate::{Context, Outcome, ensure};

fn user(name: &str) -> To {
    To::Users(vec![name.to_owned()])
}

/// The code of a failure.
fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Result<Code, noroshi_sdk_tests::Problem> {
    match result {
        Err(Error::Refused(refused)) => Ok(refused.code),
        other => Err(format!("not refused: {other:?}").into()),
    }
}

pub(crate) async fn publishes(context: Context) -> Outcome {
    let backend = &context.backend;
    let phone = DeviceRegistration::new().device("phone").user("ann").platform(Platform::Ios).topics(["a/b"]);
    let registered = backend.register_device(&phone).await?;
    ensure(registered.device == "phone" && !registered.token.is_empty(), || format!("{registered:?}"))?;
    let notification = Notification::new(To::Users(vec!["ann".to_owned(), "nobody".to_owned()]))
        .notification(Shown::new().title("Hello").badge(1))
        .data(json!({"n": 1}))
        .ttl(Duration::from_secs(3_600))
        .item(NewItem::new().category("orders"));
    let receipt = backend.publish(&notification).idempotency_key("k1").await?;
    ensure(receipt.targets == Some(2), || format!("{receipt:?}"))?;
    let again = backend.publish(&notification).idempotency_key("k1").await?;
    ensure(again.id == receipt.id, || "the key published twice".to_owned())?;
    let other = notification.data(2);
    match backend.publish(&other).idempotency_key("k1").await {
        Err(Error::Refused(refused)) => {
            let is_typed = refused.code == Code::IdempotencyConflict && refused.status == 409;
            ensure(is_typed && refused.request_id.is_some(), || format!("{refused:?}"))?;
        }
        result => return Err(format!("{result:?}").into()),
    }
    let endless = Notification::new(user("ann")).data(1).ttl(Duration::from_secs(1_000 * 86_400));
    match backend.publish(&endless).await {
        Err(Error::Refused(refused)) => {
            let is_typed = refused.code == Code::InvalidField && refused.field.as_deref() == Some("ttl");
            ensure(is_typed, || format!("{refused:?}"))?;
        }
        result => return Err(format!("{result:?}").into()),
    }

    let state = backend.notification(&receipt.id).await?;
    let age = SystemTime::now().duration_since(state.sent_at).unwrap_or_default();
    ensure(state.target.kind == TargetKind::Users && age < Duration::from_secs(60), || format!("{state:?}"))?;
    let trace = backend.trace(&receipt.id, "phone").await?;
    let is_traced = trace.in_inbox && trace.targeted_by == TraceTargetedBy::User && !trace.steps.is_empty();
    ensure(is_traced, || format!("{trace:?}"))?;
    let since = SystemTime::now() - Duration::from_secs(3_600);
    let query = NotificationsQuery::new().user("ann").since(since).limit(1u64);
    let listed = backend.notifications(query).collect().await?;
    ensure(listed.iter().filter(|one| one.id == receipt.id).count() == 1, || format!("{listed:?}"))?;
    let items = backend.list_user_items("ann", &ItemsOfUserQuery::new()).await?;
    let title = items.items.first().and_then(|item| item.notification.as_ref()?.title.clone());
    ensure(items.items.len() == 1 && title.as_deref() == Some("Hello"), || format!("{items:?}"))?;
    let counts = backend.user_item_counts("ann").await?;
    ensure(counts.unread == 1 && counts.categories["orders"] == 1, || format!("{counts:?}"))?;
    let cancelled = backend.cancel(&receipt.id).await?;
    ensure(cancelled.id == receipt.id, || format!("{cancelled:?}"))?;
    let deleted = backend.delete_user_items("ann").await?;
    ensure(deleted.deleted == 1, || format!("{deleted:?}"))?;

    let topic = Notification::new(To::Topic("a/b".to_owned())).data("kept").retain(true);
    backend.publish(&topic).await?;
    let retained = backend.retained("a/b").await?;
    ensure(retained.data == Some("kept".into()) && retained.topic.as_deref() == Some("a/b"), || {
        format!("{retained:?}")
    })?;
    let state = backend.topic("a/b").await?;
    ensure(state.topic == "a/b", || format!("{state:?}"))?;
    let topics = backend.topics(TopicsQuery::new().limit(1u64)).collect().await?;
    ensure(topics.iter().any(|topic| topic.topic == "a/b"), || format!("{topics:?}"))?;
    backend.delete_retained("a/b").await?;
    let missing = code(backend.retained("a/b").await)?;
    ensure(missing == Code::NotFound, || missing.to_string())?;
    let users = backend.presence(["ann", "nobody"]).await?;
    ensure(users.len() == 2 && users["ann"].presence == Presence::Offline, || format!("{users:?}"))?;
    let permission = backend.topic_permission("phone", "a/b", "subscribe").await?;
    ensure(permission.decision == TopicDecision::Allowed, || format!("{permission:?}"))
}

pub(crate) async fn publishes_batches(context: Context) -> Outcome {
    let backend = &context.backend;
    let device = |n: usize| {
        let device = DeviceRegistration::new().device(format!("b{n:02}")).user("batch");
        if n == 7 { device.locale("not a locale") } else { device }
    };
    let mut batch = backend.import_devices((0..25).map(device));
    let mut count = 0;
    while let Some(line) = batch.next().await {
        let line = line?;
        let is_right = match &line.result {
            Ok(registered) => registered.device == format!("b{:02}", line.number),
            Err(_) => line.number == 7,
        };
        ensure(is_right, || format!("{line:?}"))?;
        count += 1;
    }
    ensure(count == 25, || format!("{count} results"))?;
    let devices = backend.devices(DevicesQuery::new().user("batch").limit(10u64)).collect().await?;
    ensure(devices.len() == 24, || format!("{} devices", devices.len()))?;
    let notification = |n: usize| {
        let to = if n == 1_100 { vec![] } else { vec!["b00".to_owned()] };
        Notification::new(To::Devices(to)).data(n).when(When::Active)
    };
    let mut ids = BTreeSet::new();
    // The second time returns the same receipts.
    for _ in 0..2 {
        let mut batch = backend.publish_batch((0..1_200).map(notification)).idempotency_key("batch-1");
        while let Some(line) = batch.next().await {
            let line = line?;
            ensure(line.result.is_err() == (line.number == 1_100), || format!("{line:?}"))?;
            ids.extend(line.result.map(|receipt| receipt.id));
        }
    }
    ensure(ids.len() == 1_199, || format!("{} notifications", ids.len()))
}

pub(crate) async fn manages_devices_and_preferences(context: Context) -> Outcome {
    let backend = &context.backend;
    backend.register_device(&DeviceRegistration::new().device("m1").user("mia")).await?;
    let device = backend.device("m1").await?;
    let is_registered = device.user.as_deref() == Some("mia") && device.platform.is_none();
    ensure(is_registered && device.push_token.is_none(), || format!("{device:?}"))?;
    backend.set_device_push_token("m1", "fcm", None, &NewPushToken::new().token("t")).await?;
    let tokens = backend.device_push_tokens("m1").await?;
    ensure(tokens.push_tokens.len() == 1, || format!("{tokens:?}"))?;
    backend.remove_device_push_token("m1", "fcm", None).await?;
    let preferences = Preferences::new()
        .channels([PreferenceChannel::Live])
        .categories([("ads", CategoryPreference::new().muted(true).daily_max(2))])
        .quiet_hours(QuietHours::new("22:00", "07:00"));
    for stored in [
        backend.set_user_preferences("mia", &preferences).await?,
        backend.set_device_preferences("m1", &preferences).await?,
    ] {
        ensure(stored == preferences, || format!("{stored:?}"))?;
    }
    let stored = backend.user_preferences("mia").await?;
    ensure(stored == preferences, || format!("{stored:?}"))?;
    backend.clear_user_preferences("mia").await?;
    backend.clear_device_preferences("m1").await?;
    backend.revoke_device("m1").await?;
    backend.revoke_user("mia").await?;
    backend.delete_device("m1").await?;
    let missing = code(backend.device("m1").await)?;
    ensure(missing == Code::NotFound, || missing.to_string())
}

pub(crate) async fn runs_campaigns(context: Context) -> Outcome {
    let backend = &context.backend;
    backend.register_device(&DeviceRegistration::new().device("c1").user("cam").topics(["campaign"])).await?;
    let message = CampaignMessage::new().notification(Shown::new().title("Spring"));
    let spring =
        NewCampaign::new(Audience::new().topic("campaign"), message.clone()).name("spring").start(false);
    let count = backend.count_campaign(&spring).await?;
    ensure(count.devices == 1, || format!("{count:?}"))?;
    let created = backend.create_campaign(&spring).idempotency_key("spring").await?;
    let again = backend.create_campaign(&spring).idempotency_key("spring").await?;
    ensure(again.id == created.id, || "the key created two campaigns".to_owned())?;
    backend.start_campaign(&created.id).await?;
    let mut state = backend.campaign(&created.id).await?;
    for _ in 0..600 {
        if state.state == CampaignState::Done {
            break;
        }
        sleep(Duration::from_millis(50)).await;
        state = backend.campaign(&created.id).await?;
    }
    ensure(state.state == CampaignState::Done, || format!("{state:?}"))?;
    let upload = backend.create_campaign(&NewCampaign::new(Audience::new().upload(true), message)).await?;
    let mut batch = backend.upload_recipients(&upload.id, [Recipient::new("cam"), Recipient::new("")]);
    while let Some(line) = batch.next().await {
        let line = line?;
        ensure(line.result.is_err() == (line.number == 1), || format!("{line:?}"))?;
    }
    backend.abort_campaign(&upload.id).await?;
    let campaigns = backend.campaigns(CampaignsQuery::new().name("SPRING")).collect().await?;
    let names: Vec<_> = campaigns.iter().map(|campaign| campaign.name.as_deref()).collect();
    ensure(names == [Some("spring")], || format!("{names:?}"))
}

pub(crate) async fn manages_the_app(context: Context) -> Outcome {
    let app = context.backend.app(APP);
    let state = app.read().await?;
    ensure(state.name == APP, || format!("{state:?}"))?;
    let variants = [
        ExperimentVariant::new("green", 1u64).data(json!({"color": "green"})),
        ExperimentVariant::new("blue", 1u64),
    ];
    let experiment = app.put_experiment("checkout", &NewExperiment::new(variants)).await?;
    ensure(experiment.name == "checkout", || format!("{experiment:?}"))?;
    app.change_experiment("checkout", &ExperimentChange::new(true)).await?;
    app.archive_experiment("checkout").await?;
    let key = app.create_key(&NewKey::new("reader", [Scope::Read])).await?;
    let secret = key.key.as_deref().ok_or("the answer has no key")?;
    let reader = Client::new(&*context.url, secret)?;
    let everyone = Notification::new(To::Everyone(true)).data(1);
    let refused = code(reader.publish(&everyone).await)?;
    ensure(refused == Code::Forbidden, || refused.to_string())?;
    app.revoke_key(&key.id).await?;
    let refused = code(reader.list_topics(&TopicsQuery::new()).await)?;
    ensure(refused == Code::Unauthorized, || refused.to_string())?;
    // Of another prefix, so that other tests may subscribe.
    let rules = TopicRules::new().subscribe([TopicRule::new("#", TopicRuleAllow::Anyone)]);
    app.set_topic_rules(&rules).await?;
    let stored = app.topic_rules().await?;
    ensure(stored.subscribe.as_ref().map(Vec::len) == Some(1), || format!("{stored:?}"))?;
    app.delete_topic_rules().await?;
    let (begin, end) =
        (SystemTime::now() + Duration::from_secs(3_600), SystemTime::now() + Duration::from_secs(7_200));
    let notice = NewNotice::new(begin, end).notification(Shown::new().title("Maintenance"));
    app.put_notice("update", &notice).await?;
    app.end_notice("update").await?;
    app.quotas().await?;
    app.keys().await?;
    app.push_credentials().await?;
    let series = app.series(&AppSeriesQuery::new()).await?;
    ensure(series.step_s > 0, || format!("{series:?}"))
}

/// The device that a token belongs to.
async fn me(context: &Context, token: &str) -> Result<String, noroshi_client::Error> {
    let token = token.to_owned();
    let tokens = move |_| {
        let token = token.clone();
        async move { Ok(token) }
    };
    let (client, _events) = noroshi_client::Client::builder(&*context.url, tokens).build().expect("a client");
    client.me().await.map(|me| me.device)
}

pub(crate) async fn jwts_are_accepted(context: Context) -> Outcome {
    let claims = |device: &str| DeviceClaims::new("jay", device, Duration::from_secs(60));
    let token = Signer::hs256(JWT_SECRET)?.sign(&claims("jwt-1").topics(["news"]))?;
    let device = me(&context, &token).await?;
    ensure(device == "jwt-1", || device)?;
    let wrong = Signer::hs256("another-secret-of-thirty-two-bytes")?.sign(&claims("jwt-1"))?;
    let refused = me(&context, &wrong).await;
    // The client asks for another token once, and gets the same.
    ensure(refused.is_err(), || format!("{refused:?}"))?;

    // ES256, with the public key in the app.
    let random = SystemRandom::new();
    let der =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(|_| "no key")?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random)
        .map_err(|error| error.to_string())?;
    let point = pair.public_key().as_ref();
    let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
    let jwk = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k1", "x": x, "y": y});
    let Value::Object(jwk) = jwk else { return Err("not an object".into()) };
    let keys: [Map<String, Value>; 1] = [jwk];
    context.backend.app(APP).change(&AppChange::new().jwks(Jwks::new(keys))).await?;
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(der.as_ref())
    );
    let token = Signer::es256(&pem)?.key_id("k1").sign(&claims("jwt-2"))?;
    let device = me(&context, &token).await?;
    ensure(device == "jwt-2", || device)
}
