//! Batches: NDJSON in requests of bounded size, and a result for each line.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::client::Client;
use crate::error::{Error, Problem, Refused};
use crate::request::{Call, path};
use crate::retry;
use crate::types::{DeviceRegistration, Notification, Receipt, Recipient, Registered};

/// Of one request. The service takes 10,000 lines and, by default, 16 MiB.
const LINES_MAX: usize = 1_000;
const BYTES_MAX: usize = 4 << 20;

/// The result of one line of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line<T> {
    /// Its number, from 0.
    pub number: usize,
    /// The answer, or why the service did not accept the line. The other lines do not depend on it.
    pub result: Result<T, Refused>,
}

/// The result of a line of [`Client::upload_recipients`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct UploadedRecipient {
    /// The user.
    pub user: String,
}

/// The results of a batch, in order: a [`Stream`] that reads lines and sends requests as it proceeds.
///
/// An error ends it: the lines without a result may or may not have been accepted. Repeat them with the same
/// [`idempotency_key`](Self::idempotency_key) and the same lines, and nothing happens twice.
#[must_use = "a stream does nothing unless it is polled"]
pub struct Batch<T> {
    /// Before the first poll.
    start: Option<Start<T>>,
    results: Results<T>,
}

type Results<T> = Pin<Box<dyn Stream<Item = Result<Line<T>, Error>> + Send>>;
type Begin<T> = Box<dyn FnOnce(Option<String>) -> Results<T> + Send>;

struct Start<T> {
    key: Option<String>,
    begin: Begin<T>,
}

impl<T> Batch<T> {
    /// Sets the `Idempotency-Key`. Each request has it with the number of its first line. Only batches of notifications take one.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        if let Some(start) = &mut self.start {
            if start.key.is_some() {
                start.key = Some(key.into());
            }
        }
        self
    }

    /// The result of the next line. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Line<T>, Error>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<T> Stream for Batch<T> {
    type Item = Result<Line<T>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(Start { key, begin }) = self.start.take() {
            self.results = begin(key);
        }
        self.results.as_mut().poll_next(context)
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

/// How lines of a batch may be repeated.
enum Repeat<L> {
    /// Each request has a key.
    Keyed,
    /// Lines for which this is true change nothing when they are sent again.
    If(fn(&L) -> bool),
}

struct State<L, T> {
    client: Client,
    call: Call,
    key: Option<String>,
    may_repeat: fn(&L) -> bool,
    lines: Pin<Box<dyn Stream<Item = L> + Send>>,
    /// A line that did not fit into the last request, and whether it may be repeated.
    carry: Option<(Vec<u8>, bool)>,
    /// Results of the last request.
    results: VecDeque<Line<T>>,
    /// The number of the next line.
    number: usize,
}

impl Client {
    /// Publishes any number of notifications. Reads them as the stream proceeds, sends requests of at most 1,000 lines and 4 MiB,
    /// and returns a result for each line. A line that the service refuses has an error in its result and is not repeated.
    pub fn publish_batch<I>(&self, notifications: I) -> Batch<Receipt>
    where
        I: IntoIterator<Item = Notification>,
        I::IntoIter: Send + 'static,
    {
        self.publish_stream(stream::iter(notifications))
    }

    /// [`publish_batch`](Self::publish_batch) from a stream.
    pub fn publish_stream(
        &self,
        notifications: impl Stream<Item = Notification> + Send + 'static,
    ) -> Batch<Receipt> {
        self.batch("/v1/notifications/batch", &[], Repeat::Keyed, notifications)
    }

    /// Registers any number of devices, like [`publish_batch`](Self::publish_batch). A registration that names its device may be
    /// repeated.
    pub fn import_devices<I>(&self, devices: I) -> Batch<Registered>
    where
        I: IntoIterator<Item = DeviceRegistration>,
        I::IntoIter: Send + 'static,
    {
        self.import_stream(stream::iter(devices))
    }

    /// [`import_devices`](Self::import_devices) from a stream.
    pub fn import_stream(
        &self,
        devices: impl Stream<Item = DeviceRegistration> + Send + 'static,
    ) -> Batch<Registered> {
        let names_device: fn(&DeviceRegistration) -> bool = |registration| registration.device.is_some();
        self.batch("/v1/devices/batch", &[], Repeat::If(names_device), devices)
    }

    /// Adds users to a campaign whose audience is uploaded, like [`publish_batch`](Self::publish_batch). Repeating a line changes
    /// nothing.
    pub fn upload_recipients<I>(&self, campaign: &str, recipients: I) -> Batch<UploadedRecipient>
    where
        I: IntoIterator<Item = Recipient>,
        I::IntoIter: Send + 'static,
    {
        self.upload_stream(campaign, stream::iter(recipients))
    }

    /// [`upload_recipients`](Self::upload_recipients) from a stream.
    pub fn upload_stream(
        &self,
        campaign: &str,
        recipients: impl Stream<Item = Recipient> + Send + 'static,
    ) -> Batch<UploadedRecipient> {
        self.batch("/v1/campaigns/{}/recipients", &[campaign], Repeat::If(|_| true), recipients)
    }

    fn batch<L, T>(
        &self,
        template: &str,
        segments: &[&str],
        repeat: Repeat<L>,
        lines: impl Stream<Item = L> + Send + 'static,
    ) -> Batch<T>
    where
        L: Serialize + Send + 'static,
        T: DeserializeOwned + Send + 'static,
    {
        let call = path(template, segments).map(|path| Call::new(Method::POST, path));
        let call = match (call, &repeat) {
            (Ok(call), Repeat::Keyed) => match retry::key() {
                Some(key) => Ok((call, Some(key))),
                None => Err(Error::Invalid("the operating system returned no random bytes".to_owned())),
            },
            (Ok(call), Repeat::If(_)) => Ok((call, None)),
            (Err(error), _) => Err(error),
        };
        let (call, key) = match call {
            Ok(parts) => parts,
            Err(error) => {
                let failed = stream::once(async move { Err(error) });
                return Batch { start: None, results: Box::pin(failed) };
            }
        };
        let may_repeat = match repeat {
            Repeat::Keyed => |_: &L| true,
            Repeat::If(may_repeat) => may_repeat,
        };
        let client = self.clone();
        let lines: Pin<Box<dyn Stream<Item = L> + Send>> = Box::pin(lines);
        let begin: Begin<T> = Box::new(move |key| {
            let (carry, results) = (None, VecDeque::new());
            let state = State { client, call, key, may_repeat, lines, carry, results, number: 0 };
            Box::pin(stream::try_unfold(state, State::next))
        });
        Batch { start: Some(Start { key, begin }), results: Box::pin(stream::empty()) }
    }
}

impl<L: Serialize, T: DeserializeOwned> State<L, T> {
    async fn next(mut self) -> Result<Option<(Line<T>, Self)>, Error> {
        if self.results.is_empty() {
            self.request().await?;
        }
        Ok(self.results.pop_front().map(|line| (line, self)))
    }

    /// Sends as many lines as fit into a request, if there are any.
    async fn request(&mut self) -> Result<(), Error> {
        let (mut body, mut count, mut can_repeat) = (Vec::new(), 0, true);
        loop {
            let line = match self.carry.take() {
                Some(carry) => Some(carry),
                None => match self.lines.next().await {
                    Some(line) => {
                        let json =
                            serde_json::to_vec(&line).map_err(|error| Error::Invalid(error.to_string()))?;
                        Some((json, (self.may_repeat)(&line)))
                    }
                    None => None,
                },
            };
            let Some((json, may_repeat)) = line else { break };
            if count == LINES_MAX || count > 0 && body.len() + json.len() >= BYTES_MAX {
                self.carry = Some((json, may_repeat));
                break;
            }
            body.extend_from_slice(&json);
            body.push(b'\n');
            count += 1;
            can_repeat &= may_repeat;
        }
        if count == 0 {
            return Ok(());
        }
        let mut call = self.call.clone().ndjson(body.into());
        call.can_repeat = can_repeat;
        call.idempotency_key = self.key.as_ref().map(|key| format!("{key}-{}", self.number));
        let start = self.number;
        let results = self.client.inner.send(&call, |answer| read(&call, answer, start, count)).await?;
        self.number += count;
        self.results = results;
        Ok(())
    }
}

fn read<T: DeserializeOwned>(
    call: &Call,
    answer: &[u8],
    start: usize,
    count: usize,
) -> Result<VecDeque<Line<T>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Failed {
        error: Option<Problem>,
    }
    let mut lines = VecDeque::with_capacity(count);
    for raw in serde_json::Deserializer::from_slice(answer).into_iter::<Box<RawValue>>() {
        let raw = raw?;
        let number = start + lines.len();
        let result = match serde_json::from_str(raw.get())? {
            Failed { error: Some(problem) } => {
                Err(problem.refused(call.method.clone(), call.path.clone(), None))
            }
            Failed { error: None } => Ok(serde_json::from_str(raw.get())?),
        };
        lines.push_back(Line { number, result });
    }
    match lines.len() == count {
        true => Ok(lines),
        false => {
            let text = format!("the answer has {} lines instead of {count}", lines.len());
            Err(<serde_json::Error as serde::de::Error>::custom(text))
        }
    }
}
