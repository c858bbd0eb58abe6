//! Helpers for tests of push work: devices with tokens, requests with a push section, batches.

use std::time::Duration;

use noroshi_store::{
    Again, Batch, CampaignState, Fallback, Finished, Lease, NewBatch, NewCampaign, PushPart, PushRecipient,
    Registration, Store, Take, Taken, TraceStep,
};
use noroshi_types::{
    AppId, BatchId, CampaignId, DeviceNum, JsonText, Lane, Outcome, OwnFields, Push, PushEnvironment,
    PushMode, PushService, PushToken, Timestamp, Urgency,
};

use super::fixture::*;

/// The lease of [`take`].
pub(crate) const LEASE_SECONDS: u64 = 600;
pub(crate) const LEASE: Duration = Duration::from_secs(LEASE_SECONDS);

/// The span within which a batch of crashed senders is due, per crash.
pub(crate) const SPREAD_SECONDS: u64 = 10;

/// The lease of a taken batch.
pub(crate) fn lease(batch: &Batch) -> Lease {
    Lease { batch: batch.id, until: batch.leased_until }
}

/// Batches without their leases.
pub(crate) fn without_leases(batches: Vec<Batch>) -> Vec<Batch> {
    batches.into_iter().map(|batch| Batch { leased_until: Timestamp(0), ..batch }).collect()
}

pub(crate) fn always() -> Push {
    Push {
        mode: PushMode::Always,
        own: OwnFields::from_iter([(
            PushService::Apns,
            JsonText::from_valid(r#"{"headers":{"apns-priority":"5"}}"#),
        )]),
        ..Push::default()
    }
}

pub(crate) fn fallback(after_seconds: u64) -> Push {
    Push { mode: PushMode::Fallback, after: Duration::from_secs(after_seconds), ..Push::default() }
}

pub(crate) fn token_of(service: PushService, text: &str) -> PushToken {
    let json = format!(r#"{{"service":"{}","token":"{text}"}}"#, service.as_str());
    PushToken { service, environment: PushEnvironment::Production, json: JsonText::from_valid(json) }
}

/// A device of a user with durable subscriptions and a token named after the device.
pub(crate) async fn pushable(
    store: &dyn Store,
    app: AppId,
    id: &str,
    of: &str,
    names: &[&str],
    service: PushService,
) -> DeviceNum {
    let registration = Registration {
        device: Some(device(id)),
        user: Some(user(of)),
        topics: topics(names),
        push_token: Some(token_of(service, id)),
        ..Registration::default()
    };
    let answers = store.register(app, vec![registration], NOW).await.expect("registered");
    answers.into_iter().next().expect("an answer").expect("within the limits").num
}

/// Everything that is due at that time.
pub(crate) fn asked(seconds: u64) -> Take {
    Take {
        now: at(seconds),
        lease: Duration::from_secs(LEASE_SECONDS),
        batches_max: 100,
        busy: Vec::new(),
        held: Vec::new(),
        lanes: Lane::ALL.to_vec(),
        sends: true,
    }
}

pub(crate) async fn take(store: &dyn Store, seconds: u64) -> Taken {
    take_with(store, asked(seconds)).await
}

pub(crate) async fn take_with(store: &dyn Store, take: Take) -> Taken {
    store.take(take).await.expect("taken")
}

/// Devices that had acknowledged before the take.
pub(crate) fn not_needed(taken: &Taken) -> u64 {
    taken.departed.count(Outcome::PushNotNeeded)
}

/// A finished batch without results.
pub(crate) fn ended(batch: BatchId) -> Finished {
    Finished {
        batch,
        rest: None,
        parts: Vec::new(),
        again: Vec::new(),
        gone: Vec::new(),
        suspects: Vec::new(),
        latencies: Vec::new(),
        record: None,
    }
}

/// Devices to retry.
pub(crate) fn again(due_seconds: u64, attempt: u32, recipients: &[DeviceNum]) -> Again {
    Again {
        due_at: at(due_seconds),
        attempt,
        variant: None,
        fallback: Fallback::Settled,
        recipients: recipients.to_vec(),
    }
}

/// Finishes batches with the same outcome for all of their devices.
pub(crate) async fn end_all(store: &dyn Store, batches: Vec<Batch>, outcome: Outcome) {
    let finished = batches.into_iter().map(|batch| Finished {
        parts: vec![PushPart { outcome, reason: None, variant: None, devices: batch.recipients }],
        ..ended(batch.id)
    });
    let counts = store.finish(finished.collect(), at(1)).await.expect("finished");
    assert_eq!(counts.unknown, 0);
}

pub(crate) async fn recipients_of(store: &dyn Store, batch: &Batch) -> Vec<PushRecipient> {
    let devices = batch.recipients.clone();
    store
        .push_recipients(batch.app, batch.work, batch.campaign, batch.token.clone(), devices)
        .await
        .expect("read")
}

pub(crate) fn step(at: Timestamp, outcome: Outcome) -> TraceStep {
    TraceStep { at, outcome, reason: None }
}

pub(crate) fn new_campaign(app: AppId, state: CampaignState) -> NewCampaign {
    NewCampaign {
        app,
        spec: JsonText::from_valid(r#"{"name":"sale"}"#),
        state,
        notification: Some(JsonText::from_valid(r#"{"title":"狼煙"}"#)),
        data: None,
        urgency: Urgency::Normal,
        when: None,
        push: always(),
        expires_at: at(86_400),
        variants: Vec::new(),
        idempotency: None,
        draft: noroshi_store::NewDraft::default(),
    }
}

pub(crate) async fn running(store: &dyn Store, app: AppId) -> CampaignId {
    let campaign = new_campaign(app, CampaignState::Running);
    store.create_campaign(campaign, NOW).await.expect("created").campaign.id
}

pub(crate) fn batch(lane: Lane, due_seconds: u64, recipients: &[DeviceNum]) -> NewBatch {
    NewBatch {
        service: Some(PushService::Apns),
        due_at: at(due_seconds),
        lane,
        token: None,
        recipients: recipients.to_vec(),
    }
}

/// One batch for APNs; the walk continues.
pub(crate) async fn enqueue(
    store: &dyn Store,
    campaign: CampaignId,
    lane: Lane,
    due_seconds: u64,
    recipients: &[DeviceNum],
) {
    let batches = vec![batch(lane, due_seconds, recipients)];
    let state = store.enqueue(campaign, 0, batches, 1, false, Vec::new(), NOW).await.expect("enqueued");
    assert_eq!(state, CampaignState::Running);
}

pub(crate) trait Batches {
    /// The recipients of all batches, in order.
    fn concat_recipients(&self) -> Vec<DeviceNum>;
}

impl Batches for [Batch] {
    fn concat_recipients(&self) -> Vec<DeviceNum> {
        self.iter().flat_map(|batch| batch.recipients.iter().copied()).collect()
    }
}
