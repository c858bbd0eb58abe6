//! Batches of newline-delimited JSON, with one result for each line, in order. The response is sent when all lines are done: at
//! most 10,000 short lines.
//!
//! Invariant: lines enter the store's queue in order, so their ids are in order, also if a line waits for its quota. Many lines
//! share a commit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use axum::extract::State as Shared;
use http::HeaderMap;
use noroshi_delivery::{Delivery, Error, Origin, OverQuota, Publishing, Series};
use noroshi_push::Warning;
use noroshi_store::{Device, Idempotency, Registration};
use noroshi_types::{AppId, Request, Target, Topic};
use serde::Serialize;

use crate::body::{self, Limits};
use crate::error::Problem;
use crate::handler::notification::ReceiptBody;
use crate::push_check;
use crate::registration::{self, TokenIssuer, draw_device_id};
use crate::request::access::{Devices, Provider, Publish};
use crate::request::body::NdjsonBody;
use crate::request::idempotency::{body_hash, idempotency_key};
use crate::request::page::lines;
use crate::request::trace::Traced;
use crate::respond::Lines;
use crate::token_check;

/// The `field` in errors to a front, if the quota of a line's topic is exceeded.
pub const OVER_QUOTA_FIELD: &str = "to.topic";

/// Lines that wait for their commit concurrently: half the store's maximum per commit.
const LINES_WAITING_MAX: usize = 256;

/// Devices registered in one commit.
const DEVICES_PER_COMMIT: usize = 1_000;

/// Topics in one commit; only a single device may have more. A subscription is a row, and 10,000 rows block other writers for
/// about 100 ms.
const TOPICS_PER_COMMIT: usize = 10_000;

enum Slot {
    Begun(Publishing, Vec<Warning>),
    Refused(Problem),
}

#[derive(Serialize)]
struct DeviceLine {
    device: String,
    token: String,
}

/// `POST /v1/notifications/batch`
pub(crate) async fn notifications(
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    Traced(trace): Traced,
    headers: HeaderMap,
    NdjsonBody(body): NdjsonBody,
) -> Result<Lines, Problem> {
    let lines = lines(&body)?;
    let key = idempotency_key(&headers)?;
    let mut batch = Batch::new(&provider.delivery, provider.app, lines.len(), Origin::Client);
    for (index, line) in lines.into_iter().enumerate() {
        // A header cannot contain a line break, so the key of a line differs from every key of a request.
        let idempotency =
            key.map(|key| Idempotency { key: format!("{key}\n{index}").into(), body_hash: body_hash(line) });
        let read = body::notification(line, &body_limits, provider.delivery.clock().now());
        let read = read.map(|request| (Request { trace, ..request }, idempotency));
        batch.push(read).await?;
    }
    batch.finish().await
}

/// Lines in progress, and the answers to earlier ones.
pub(crate) struct Batch<'a> {
    delivery: &'a Arc<Delivery>,
    app: AppId,
    series: Series,
    origin: Origin,
    waiting: VecDeque<Slot>,
    answers: Lines,
    /// Batches of a front: why a line could not start. All later lines are rejected too, so that none overtakes it before the
    /// front retries it.
    stopped: Option<Problem>,
    /// Batches of a front: topics with a rejected line, and why. Later lines to the same topic are rejected too.
    over_topics: HashMap<Topic, OverQuota>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(delivery: &'a Arc<Delivery>, app: AppId, lines: usize, origin: Origin) -> Self {
        let waiting = VecDeque::with_capacity(LINES_WAITING_MAX);
        Self {
            delivery,
            app,
            series: Series::new(&delivery.publisher, app),
            origin,
            waiting,
            answers: Lines::with_capacity(lines),
            stopped: None,
            over_topics: HashMap::new(),
        }
    }

    /// Adds the next line. Waits for the oldest line if too many are pending.
    pub(crate) async fn push(
        &mut self,
        line: Result<(Request, Option<Idempotency>), Problem>,
    ) -> Result<(), Problem> {
        if self.waiting.len() == LINES_WAITING_MAX {
            answer_first(&mut self.waiting, &mut self.answers).await?;
        }
        let slot = match line {
            Ok((request, idempotency)) => self.start(request, idempotency).await,
            Err(problem) => Slot::Refused(problem),
        };
        self.waiting.push_back(slot);
        Ok(())
    }

    /// Processes a line up to its commit: when this returns, it is in the store's queue.
    async fn start(&mut self, request: Request, idempotency: Option<Idempotency>) -> Slot {
        let (app, is_front) = (self.app, matches!(self.origin, Origin::Front(_)));
        if let Some(problem) = &self.stopped {
            return Slot::Refused(problem.clone());
        }
        let topic = match &request.target {
            Target::Topic(topic) if is_front => Some(topic.clone()),
            Target::Everyone if is_front => Some(Topic::everyone()),
            _ => None,
        };
        if let Some(over) = topic.as_ref().and_then(|topic| self.over_topics.get(topic)) {
            return Slot::Refused(of_topic(*over));
        }
        let warnings = match push_check::check_request(self.delivery, app, &request).await {
            // A front discards them.
            Ok(_) if is_front => Vec::new(),
            Ok(unshown) => unshown.warnings(self.delivery, app).await,
            Err(problem) => return Slot::Refused(problem),
        };
        match self.series.begin(request, idempotency, self.origin.clone()).await {
            Ok(publishing) => Slot::Begun(publishing, warnings),
            Err(error) if is_front => Slot::Refused(self.hold_back(topic, error)),
            Err(error) => Slot::Refused(error.into()),
        }
    }

    /// Makes later lines of a front fail as well: all of them, or those to the same topic.
    fn hold_back(&mut self, topic: Option<Topic>, error: Error) -> Problem {
        match (topic, error) {
            (Some(topic), Error::OverQuota(over)) if !over.quota.is_rate() => {
                self.over_topics.insert(topic, over);
                of_topic(over)
            }
            (_, error) => self.stopped.insert(error.into()).clone(),
        }
    }

    /// The answers to all lines.
    pub(crate) async fn finish(mut self) -> Result<Lines, Problem> {
        while !self.waiting.is_empty() {
            answer_first(&mut self.waiting, &mut self.answers).await?;
        }
        Ok(self.answers)
    }
}

/// An error of the topic: messages to other topics may succeed.
fn of_topic(over: OverQuota) -> Problem {
    Problem::from(over).at(OVER_QUOTA_FIELD)
}

/// `POST /v1/devices/batch`
pub(crate) async fn devices(
    Shared(tokens): Shared<TokenIssuer>,
    provider: Provider<Devices>,
    NdjsonBody(body): NdjsonBody,
) -> Result<Lines, Problem> {
    let lines = lines(&body)?;
    let mut answers = Lines::with_capacity(lines.len() * 2);
    for chunk in lines.chunks(DEVICES_PER_COMMIT) {
        for answer in register(&provider.delivery, provider.app, chunk).await {
            match answer {
                Ok(device) => {
                    let (token, _) = tokens.issue(&device, provider.delivery.clock().now());
                    answers.push(&DeviceLine { device: device.id.to_string(), token })?;
                }
                Err(problem) => answers.push_problem(&problem)?,
            }
        }
    }
    Ok(answers)
}

async fn answer_first(waiting: &mut VecDeque<Slot>, answers: &mut Lines) -> Result<(), Problem> {
    let answer = match waiting.pop_front() {
        Some(Slot::Begun(publishing, warnings)) => {
            let receipt = publishing.receipt().await;
            receipt.map(|receipt| (receipt, warnings)).map_err(Problem::from)
        }
        Some(Slot::Refused(problem)) => Err(problem),
        None => return Ok(()),
    };
    match answer {
        Ok((receipt, warnings)) => {
            tracing::debug!(notification = %receipt.id, "accepted in a batch");
            answers.push(&ReceiptBody::new(receipt, warnings))
        }
        Err(problem) => answers.push_problem(&problem),
    }
}

/// Registers a part of a batch in few commits. Skips invalid lines.
async fn register(delivery: &Delivery, app: AppId, chunk: &[&[u8]]) -> Vec<Result<Device, Problem>> {
    let read: Vec<Result<Registration, Problem>> =
        chunk.iter().map(|line| registration(delivery, line)).collect();
    let good: Vec<Registration> = read.iter().filter_map(|line| line.as_ref().ok().cloned()).collect();
    let mut registered = Vec::with_capacity(good.len());
    for part in commits(good) {
        registered.extend(registration::register(delivery, app, part).await);
    }
    let mut registered = registered.into_iter();
    let missing = || Problem::internal("the store returned too few registrations");
    read.into_iter().map(|line| line.and_then(|_| registered.next().ok_or_else(missing)?)).collect()
}

/// Splits registrations into commits of limited size.
fn commits(registrations: Vec<Registration>) -> Vec<Vec<Registration>> {
    let (mut commits, mut commit) = (Vec::new(), Vec::new());
    let mut topics = 0;
    for registration in registrations {
        let more = registration.topics.len();
        if topics + more > TOPICS_PER_COMMIT && !commit.is_empty() {
            commits.push(std::mem::take(&mut commit));
            topics = 0;
        }
        topics += more;
        commit.push(registration);
    }
    if !commit.is_empty() {
        commits.push(commit);
    }
    commits
}

fn registration(delivery: &Delivery, line: &[u8]) -> Result<Registration, Problem> {
    let body::Registering { device, registration } = body::device(line)?;
    token_check::by_provider(delivery, &token_check::of_registration(&registration))?;
    let device = match device {
        Some(device) => device,
        None => draw_device_id()?,
    };
    Ok(Registration { device: Some(device), ..registration })
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::Topic;

    #[test]
    fn a_commit_has_a_bounded_number_of_topics() {
        let topic = Topic::parse("t").expect("a topic");
        let check = |topics: &[usize], expected: &[usize]| {
            let topics = topics.iter().map(|count| vec![topic.clone(); *count]);
            let registrations = topics.map(|topics| Registration { topics, ..Registration::default() });
            let sizes: Vec<usize> = commits(registrations.collect()).iter().map(Vec::len).collect();
            assert_eq!(sizes, expected);
        };
        check(&[], &[]);
        check(&[0, 0, 0], &[3]);
        check(&[6_000, 4_000, 1, 9_999], &[2, 2]);
        check(&[TOPICS_PER_COMMIT + 1, 0, 1], &[1, 2]);
    }
}
