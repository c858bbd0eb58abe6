//! Sends the newest state to one slice, and interprets the answers.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use noroshi_events::Subject;
use noroshi_push::{Answer, Attempt, Content, Push, Reply};
use noroshi_store::{
    Activity, InvalidToken, PushPart, SENDER_ENDED, SettledSlice, Slice, SuspectToken, TAKES_MAX, TokenReport,
};
use noroshi_types::{DeviceNum, Lane, Outcome, PushService, PushToken, Timestamp, TokenKey, limits};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::recipient::{Plan, Ways, ios_over_fcm, plan};
use super::{Ready, Sender};
use crate::activity::content::Form;
use crate::activity::{self, Shown};
use crate::push::finisher::{PAUSE_MAX, PAUSE_MIN};
use crate::push::recipient::push_id;
use crate::push::token_health::{self, Realm};

/// The pause until the next attempt, while an operator provides the right key or adds the credential again.
const UNREADABLE_WAIT: Duration = Duration::from_secs(60);

/// A push that was handed over.
struct Sent {
    device: DeviceNum,
    form: Form,
    service: PushService,
    realm: Realm,
    /// The tokens that an answer may invalidate.
    key: TokenKey,
    token_at: Timestamp,
}

/// All pushes of a slice with their answers, in the same order, the outcomes without a push, and the attempts to record.
struct Answered {
    sent: Vec<Sent>,
    answers: Vec<Answer>,
    parts: Parts,
    attempts: Vec<(u32, Attempt)>,
}

/// Starts a task for each slice.
pub(super) fn start_all(
    sender: &Arc<Sender>,
    slices: Vec<Slice>,
    activities: Vec<Activity>,
    taken_at: Instant,
    tasks: &mut JoinSet<()>,
) {
    let now = sender.pipeline.context.now();
    let known: HashMap<u64, Arc<Shown>> = activities
        .into_iter()
        .filter_map(|activity| {
            let num = activity.num;
            match activity::shown(activity, now) {
                Ok(shown) => Some((num, Arc::new(shown))),
                Err(error) => {
                    tracing::warn!(%error, "left an activity to a newer program");
                    None
                }
            }
        })
        .collect();
    for slice in slices {
        // Its app is being deleted, or a newer program wrote it: the lease expires.
        let Some(shown) = known.get(&slice.activity).cloned() else { continue };
        let (sender, members) = (sender.clone(), slice.members as usize);
        sender.in_flight.begin(shown.activity.app, slice.id, members);
        tasks.spawn(async move {
            let app = shown.activity.app;
            let task = Task { sender: &sender, slice, shown: &shown, taken_at };
            let started = Instant::now();
            let results = AssertUnwindSafe(task.run()).catch_unwind().await;
            let took = started.elapsed();
            let results = results.unwrap_or_else(|_| {
                sender.pipeline.metrics.batches_failed.inc();
                tracing::error!(slice = slice.id, app = app.0, "sending an activity panicked");
                Some((task.nothing(Some("sender_failed")), Vec::new()))
            });
            match results {
                Some((settled, reports)) => {
                    let took = settled.counts.iter().any(|(.., count)| *count > 0).then_some(took);
                    let ready = Ready { settled, reports, app, members, took };
                    // Only if the node stops: the slice is sent again.
                    let _ = sender.ready.send(ready).await;
                }
                None => sender.in_flight.end(app, slice.id, members),
            }
        });
    }
}

#[derive(Clone, Copy)]
struct Task<'a> {
    sender: &'a Sender,
    slice: Slice,
    shown: &'a Shown,
    taken_at: Instant,
}

impl Task<'_> {
    /// The results with the version that was read. With a reason, all devices are refused.
    fn nothing(&self, refused: Option<&'static str>) -> SettledSlice {
        let count = refused.map(|reason| (Outcome::PushRefused, Some(reason), self.slice.members));
        SettledSlice {
            slice: self.slice.id,
            take: self.slice.take,
            activity: self.shown.activity.num,
            version: self.shown.activity.version,
            ended: self.shown.activity.ended_at.is_some(),
            started: Vec::new(),
            again: Vec::new(),
            due_at: None,
            attempt: 0,
            parts: Vec::new(),
            counts: count.into_iter().collect(),
            accepted: None,
            failed: None,
        }
    }

    /// `None`: nothing may be written, because another node may have the slice, or the node stops.
    async fn run(self) -> Option<(SettledSlice, Vec<TokenReport>)> {
        let (pipeline, activity) = (&self.sender.pipeline, &self.shown.activity);
        if self.slice.takes > TAKES_MAX {
            tracing::warn!(
                slice = self.slice.id,
                app = activity.app.0,
                "every process that sent a slice of an activity ended"
            );
            pipeline.metrics.batches_set_aside.inc();
            return Some((self.nothing(Some(SENDER_ENDED)), Vec::new()));
        }
        let mut settled = self.nothing(None);
        let Answered { sent, answers, parts, attempts } = self.hand_over_all().await?;
        self.record(&mut settled, &sent, attempts).await;
        let mut results = Results { parts, ..Results::default() };
        self.evaluate(&mut results, &sent, answers);
        settled.started = results.started;
        settled.again = results.again;
        settled.due_at = results.due_at;
        settled.attempt = if settled.again.is_empty() { 0 } else { self.slice.attempt.saturating_add(1) };
        let mut reports: BTreeMap<TokenKey, TokenReport> = BTreeMap::new();
        for (key, gone) in results.gone {
            report_of(&mut reports, activity.app, key).gone.push(gone);
        }
        for (key, suspect) in results.suspects {
            report_of(&mut reports, activity.app, key).suspects.push(suspect);
        }
        self.count(&mut settled, results.parts, results.pushed);
        Some((settled, reports.into_values().collect()))
    }

    /// The rows of the attempts.
    async fn record(&self, settled: &mut SettledSlice, sent: &[Sent], attempts: Vec<(u32, Attempt)>) {
        if attempts.is_empty() {
            return;
        }
        let pipeline = &self.sender.pipeline;
        let of = |(index, attempt): (u32, Attempt)| Some((sent.get(index as usize)?.device, attempt));
        let (failed, accepted): (Vec<_>, Vec<_>) =
            attempts.into_iter().filter_map(of).partition(|(_, attempt)| attempt.reason.is_some());
        let _slot = pipeline.compute.acquire().await;
        let (recording, now) = (pipeline.config.recording, pipeline.context.now());
        settled.accepted = recording.row(&accepted, now);
        settled.failed = recording.row(&failed, now);
    }

    /// Hands over a push for each device, and waits for all answers. `None`: the lease ended, or the node stops.
    async fn hand_over_all(&self) -> Option<Answered> {
        let (pipeline, Shown { activity, spec, .. }) = (&self.sender.pipeline, self.shown);
        let store = &pipeline.context.store;
        let attributes = spec.attributes_type.clone();
        let mut pause = PAUSE_MIN;
        let recipients = loop {
            match store.slice_recipients(activity.clone(), self.slice, attributes.clone()).await {
                Ok(recipients) => break recipients,
                Err(noroshi_store::Error::Closed) => return None,
                Err(error) => {
                    pipeline.metrics.store_errors.inc();
                    tracing::warn!(%error, "could not read the devices of an activity; retrying");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        let services = pipeline
            .configured
            .services(&**store, activity.app, pipeline.context.now())
            .await
            .unwrap_or_default();
        let ways =
            Ways { ios_over_fcm: ios_over_fcm(spec.ios_via, &services), ended: activity.ended_at.is_some() };
        let version = self.shown.version(self.slice.version);
        let now = pipeline.context.now();
        let (mut pushes, mut sent, mut parts) = (Vec::new(), Vec::new(), Parts::new());
        let mut contents: BTreeMap<Form, Arc<Content>> = BTreeMap::new();
        for recipient in recipients {
            let device = recipient.num;
            let (form, token, content) = match plan(recipient, ways, now) {
                Plan::Nothing => continue,
                Plan::Outcome(outcome) => {
                    parts.entry((outcome, None)).or_default().push(device);
                    continue;
                }
                Plan::Push { form, token } => {
                    let content = contents
                        .entry(form)
                        .or_insert_with(|| Arc::new(Content::new(version.fields(form))))
                        .clone();
                    (form, token, content)
                }
                Plan::OverFcm { form, token, live } => {
                    let fields = version.fcm_fields(form, &text_of(&live.token));
                    (form, token, Arc::new(Content::new(fields)))
                }
            };
            let PushToken { service, environment, .. } = token.token;
            let realm = (activity.app, service, environment);
            let (key, token_at) = (token.key, token.registered_at);
            sent.push(Sent { device, form, service, realm, key, token_at });
            pushes.push((token.token, content));
        }
        pipeline.quotas.pushed(activity.app, pushes.len() as u64);
        let answers = Arc::new(Answers::new(pushes.len()));
        if !self.send(pushes, &sent, &answers).await {
            return None;
        }
        let (mut answers, attempts) = answers.all().await;
        let unreadable = pipeline.credentials.unreadable.lock();
        for (sent, answer) in sent.iter().zip(&mut answers) {
            if *answer == Answer::Unconfigured && unreadable.contains(&sent.realm) {
                *answer = Answer::Later { reason: "credential_unreadable", after: UNREADABLE_WAIT };
            }
        }
        drop(unreadable);
        Some(Answered { sent, answers, parts, attempts })
    }

    /// Returns false if the lease ended meanwhile.
    async fn send(
        &self,
        pushes: Vec<(PushToken, Arc<Content>)>,
        sent: &[Sent],
        answers: &Arc<Answers>,
    ) -> bool {
        let (pipeline, activity) = (&self.sender.pipeline, &self.shown.activity);
        // A large activity must not delay single notifications.
        let is_small = activity.devices <= limits::ACTIVITY_SLICE_DEVICES as u64;
        let lane = if is_small { Lane::Direct } else { Lane::Campaign };
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&activity.num.to_be_bytes());
        seed[8..].copy_from_slice(&activity.version.to_be_bytes());
        // The slice has an id of its own: no device has such a number.
        let recording = pipeline.config.recording.of_group(&push_id(&seed, DeviceNum(!self.slice.id)));
        let mut slot = pipeline.compute.acquire().await;
        for (index, (sent, (token, content))) in (0..).zip(sent.iter().zip(pushes)) {
            slot.yield_if_used().await;
            if !self.sender.may_send(self.taken_at) {
                pipeline.metrics.batches_lost.inc();
                return false;
            }
            let reply = Reply { to: answers.clone(), index };
            let id = push_id(&seed, sent.device);
            let record = recording.of(self.shown.spec.named, &id);
            let push = Push { app: activity.app, lane, token, content, id, details: None, record, reply };
            slot.release_while(pipeline.outlet.send(push)).await;
        }
        true
    }

    fn evaluate(&self, results: &mut Results, sent: &[Sent], answers: Vec<Answer>) {
        let (pipeline, now) = (&self.sender.pipeline, self.sender.pipeline.context.now());
        let mut sums: BTreeMap<Realm, (u64, u64)> = BTreeMap::new();
        for (sent, answer) in sent.iter().zip(&answers) {
            let suspects = u64::from(matches!(answer, Answer::Suspect { .. }));
            if suspects > 0 || matches!(answer, Answer::Accepted | Answer::Gone { .. }) {
                let sum = sums.entry(sent.realm).or_default();
                *sum = (sum.0 + 1, sum.1 + suspects);
            }
        }
        let health = &pipeline.token_health;
        let mut normal: BTreeMap<Realm, bool> = BTreeMap::new();
        for (realm, (answers, suspects)) in sums {
            let rate = health.count(realm, answers, suspects, now);
            pipeline.report_rate(realm, rate);
            normal.insert(realm, rate.is_normal());
        }
        let activity = &self.shown.activity;
        let expires_at = self.shown.version(0).expires_at();
        let seed = self.slice.id.wrapping_mul(31).wrapping_add(u64::from(self.slice.attempt));
        for (sent, answer) in sent.iter().zip(answers) {
            let Sent { device, ref key, token_at, .. } = *sent;
            match answer {
                Answer::Accepted => {
                    *results.pushed.entry(sent.service).or_default() += 1;
                    if matches!(sent.form, Form::Start | Form::Android(true)) {
                        results.started.push(device);
                    }
                }
                Answer::Refused { reason } => results.part(Outcome::PushRefused, Some(reason), device),
                Answer::Unconfigured => results.part(Outcome::PushUnconfigured, None, device),
                Answer::Expired => results.part(Outcome::PushExpired, None, device),
                Answer::Later { reason, after } => {
                    let backoff = pipeline.config.backoff;
                    match backoff.due_at(now, after, self.slice.attempt, seed, expires_at) {
                        Some(due_at) => {
                            results.again.push(device);
                            results.due_at = results.due_at.max(Some(due_at));
                        }
                        None => results.part(Outcome::PushExpired, Some(reason), device),
                    }
                }
                Answer::Gone { reason, since } if token_health::is_proof(since, token_at) => {
                    results.part(Outcome::PushTokenGone, Some(reason), device);
                    results.gone.push((key.clone(), InvalidToken { device, token_at, since, reason }));
                }
                Answer::Suspect { reason } if normal.get(&sent.realm).copied().unwrap_or(true) => {
                    results.part(Outcome::PushTokenSuspect, Some(reason), device);
                    results.suspects.push((key.clone(), SuspectToken { device, token_at, reason }));
                }
                Answer::Gone { reason, .. } | Answer::Suspect { reason } => {
                    results.part(Outcome::PushRefused, Some(reason), device);
                }
            }
        }
        let accepted: u64 = results.pushed.values().sum();
        if accepted > 0 {
            let took = now.saturating_since(activity.updated_at);
            pipeline.metrics.activity_seconds.observe(took);
        }
        if self.slice.version > 0 {
            let skipped = activity.version.saturating_sub(self.slice.version + 1);
            pipeline.metrics.activity_updates_coalesced.inc_by(skipped);
        }
    }

    /// Counts outcomes for the activity, the metrics and the event log.
    fn count(&self, settled: &mut SettledSlice, parts: Parts, pushed: BTreeMap<PushService, u64>) {
        let (pipeline, app) = (&self.sender.pipeline, self.shown.activity.app);
        let total: u64 = pushed.values().sum();
        settled.counts.push((Outcome::Pushed, None, total));
        pipeline.metrics.count(Outcome::Pushed, None, Lane::Direct, total);
        for ((outcome, reason), devices) in parts {
            let count = devices.len() as u64;
            settled.counts.push((outcome, reason, count));
            pipeline.metrics.count(outcome, reason, Lane::Direct, count);
            let part = PushPart { outcome, reason, variant: None, devices };
            pipeline.context.outcomes.pushed((app, Subject::Several), None, &part, None);
            pipeline.quotas.count_pushes(app, outcome, count);
            settled.parts.push((outcome, reason, part.devices));
        }
        pipeline.context.outcomes.activity_pushed(total);
        pipeline.quotas.count_pushes(app, Outcome::Pushed, total);
    }
}

fn report_of(
    reports: &mut BTreeMap<TokenKey, TokenReport>,
    app: noroshi_types::AppId,
    key: TokenKey,
) -> &mut TokenReport {
    let empty = TokenReport { app, key: key.clone(), gone: Vec::new(), suspects: Vec::new() };
    reports.entry(key).or_insert(empty)
}

/// Devices by outcome and reason.
type Parts = BTreeMap<(Outcome, Option<&'static str>), Vec<DeviceNum>>;

#[derive(Default)]
struct Results {
    parts: Parts,
    pushed: BTreeMap<PushService, u64>,
    started: Vec<DeviceNum>,
    again: Vec<DeviceNum>,
    due_at: Option<Timestamp>,
    gone: Vec<(TokenKey, InvalidToken)>,
    suspects: Vec<(TokenKey, SuspectToken)>,
}

impl Results {
    fn part(&mut self, outcome: Outcome, reason: Option<&'static str>, device: DeviceNum) {
        self.parts.entry((outcome, reason)).or_default().push(device);
    }
}

/// The hex digits of a token that ActivityKit issued.
fn text_of(token: &PushToken) -> String {
    let json: serde_json::Value = serde_json::from_str(token.json.as_str()).unwrap_or_default();
    json["token"].as_str().unwrap_or_default().to_owned()
}

/// Collects the answers of one slice, in any order and from any thread.
struct Answers {
    /// Guards only itself.
    slots: Mutex<(Vec<Option<Answer>>, usize)>,
    /// Guards only itself.
    attempts: Mutex<Vec<(u32, Attempt)>>,
    complete: Notify,
}

impl Answers {
    fn new(count: usize) -> Self {
        let slots = Mutex::new((vec![None; count], count));
        Self { slots, attempts: Mutex::default(), complete: Notify::new() }
    }

    async fn all(&self) -> (Vec<Answer>, Vec<(u32, Attempt)>) {
        loop {
            {
                let mut slots = self.slots.lock();
                if slots.1 == 0 {
                    let answers = std::mem::take(&mut slots.0).into_iter().flatten().collect();
                    drop(slots);
                    return (answers, std::mem::take(&mut self.attempts.lock()));
                }
            }
            self.complete.notified().await;
        }
    }
}

impl noroshi_push::Answered for Answers {
    fn attempted(&self, index: u32, attempt: Attempt) {
        self.attempts.lock().push((index, attempt));
    }

    fn answered(&self, index: u32, answer: Answer) {
        let mut slots = self.slots.lock();
        let Some(slot @ None) = slots.0.get_mut(index as usize) else { return };
        *slot = Some(answer);
        slots.1 -= 1;
        let complete = slots.1 == 0;
        drop(slots);
        if complete {
            self.complete.notify_one();
        }
    }
}
