//! Profiles all the time: window after window is sampled and posted to a Pyroscope server.
//!
//! Sampling does not wait for the server. What is to be posted is one profile of a kind: where the one before was not
//! taken yet the newer takes its place, and the older is counted as replaced. A server that fails is asked again, twice
//! as long apart each time; the log says when that begins and when it ends.

mod config;
mod ingest;
mod metrics;
mod parcel;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use noroshi_egress::fetch::Post;
use noroshi_egress::{Backoff, Egress, Limits};
use tokio_util::sync::CancellationToken;

pub use config::{Config, Label, check_application, check_header, check_server, labels};
pub use metrics::Metrics;

use crate::profiler::{Ask, Detail, Error, Profiler, Taken};
use parcel::{Kind, Parcel, Parcels};

/// Nothing of the answer is used but its status, and a refusal's first words.
const ANSWER_BYTES_MAX: usize = 16 << 10;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The last one, when the node ends.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Samples and posts until it is told to end.
pub struct Pusher {
    config: Config,
    /// Of this process, after those of the configuration.
    labels: Vec<Label>,
    profiler: Profiler,
    egress: Arc<Egress>,
    metrics: Metrics,
}

/// What became of a profile.
enum Answer {
    Taken,
    /// It would not be taken the next time either.
    Refused(String),
    Failed(String),
}

impl Pusher {
    /// `egress` has to let the server be reached: its address is an operator's word.
    pub fn new(
        config: Config,
        own: Vec<Label>,
        profiler: Profiler,
        egress: Arc<Egress>,
        metrics: Metrics,
    ) -> Self {
        let labels = own.into_iter().chain(config.labels.iter().cloned()).collect();
        Self { config, labels, profiler, egress, metrics }
    }

    /// Takes `END_TIMEOUT` for each profile that is left to end, and the time to write up the last samples.
    pub async fn run(self, end: CancellationToken) {
        let parcels = Parcels::default();
        tracing::info!(server = self.config.server, "profiles are pushed");
        tokio::join!(self.sample(&parcels, &end), self.send(&parcels, &end));
    }

    async fn sample(&self, parcels: &Parcels, end: &CancellationToken) {
        let ask = Ask { duration: self.config.interval, hz: self.config.hz };
        let mut failing = false;
        while !end.is_cancelled() {
            match self.profiler.window(ask, end.cancelled()).await {
                Ok(taken) => {
                    failing = false;
                    self.keep(parcels, Kind::Cpu, taken);
                }
                Err(error) => self.pause(&error, std::mem::replace(&mut failing, true), end).await,
            }
            if self.config.heap && !end.is_cancelled() {
                match self.profiler.heap(Detail::Functions).await {
                    Ok(taken) => self.keep(parcels, Kind::Heap, taken),
                    Err(error) => tracing::debug!(%error, "no heap profile"),
                }
            }
        }
        parcels.close();
    }

    fn keep(&self, parcels: &Parcels, kind: Kind, taken: Taken) {
        self.metrics.made(taken.cost);
        // Of a node that did nothing there is nothing to say.
        if taken.stacks > 0 && parcels.put(Parcel { kind, taken }) {
            self.metrics.replaced(kind);
        }
    }

    async fn pause(&self, error: &Error, again: bool, end: &CancellationToken) {
        match again {
            true => tracing::debug!(%error, "still no profile can be taken"),
            false => tracing::warn!(%error, "no profile can be taken; trying again"),
        }
        self.metrics.untaken();
        end.run_until_cancelled(tokio::time::sleep(self.config.interval)).await;
    }

    async fn send(&self, parcels: &Parcels, end: &CancellationToken) {
        let (mut failing, mut backoff) = (false, Backoff::new(PAUSE_MIN, PAUSE_MAX));
        while let Some(parcel) = parcels.next().await {
            let timeout = if end.is_cancelled() { END_TIMEOUT } else { ANSWER_TIMEOUT };
            let trouble = match self.post(&parcel, timeout, end).await {
                Answer::Taken => {
                    self.metrics.pushed(parcel.kind);
                    if std::mem::take(&mut failing) {
                        tracing::info!(server = self.config.server, "profiles are taken again");
                    }
                    backoff.reset();
                    continue;
                }
                Answer::Refused(reason) => reason,
                Answer::Failed(reason) => {
                    // Unless there is a newer one by now.
                    parcels.put_back(parcel);
                    reason
                }
            };
            self.metrics.failed();
            match std::mem::replace(&mut failing, true) {
                true => tracing::debug!(reason = trouble, "profiles are still not taken"),
                false => {
                    tracing::warn!(
                        server = self.config.server,
                        reason = trouble,
                        "profiles are not taken; trying again"
                    );
                }
            }
            if end.run_until_cancelled(tokio::time::sleep(backoff.pause())).await.is_none() {
                return;
            }
        }
    }

    async fn post(&self, parcel: &Parcel, timeout: Duration, end: &CancellationToken) -> Answer {
        let config = self.config.clone();
        let authorization = match tokio::task::spawn_blocking(move || config.authorization()).await {
            Ok(Ok(authorization)) => authorization,
            Ok(Err(reason)) => return Answer::Failed(reason),
            Err(error) => return Answer::Failed(error.to_string()),
        };
        let url = ingest::url(&self.config, &self.labels, parcel);
        let mut headers = Vec::new();
        headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        // grafana.com/docs/pyroscope, "Tenant IDs"
        headers.extend(self.config.tenant.as_deref().map(|value| ("x-scope-orgid", value)));
        let body = ingest::body(parcel);
        let post = Post { content_type: ingest::CONTENT_TYPE, headers: &headers, body };
        let limits = Limits { body_bytes_max: ANSWER_BYTES_MAX, timeout };
        let exchange = self.egress.post(&url, post, limits);
        // What is under way when the node ends has the last moments too.
        let last = async {
            end.cancelled().await;
            tokio::time::sleep(END_TIMEOUT).await;
        };
        let answer = tokio::select! {
            answer = exchange => answer,
            () = last => return Answer::Failed("the node ends".to_owned()),
        };
        match answer {
            Ok(answer) => judge(answer.status, &answer.body),
            Err(error) => Answer::Failed(error.to_string()),
        }
    }
}

fn judge(status: u16, body: &[u8]) -> Answer {
    let reason = || {
        let text = String::from_utf8_lossy(&body[..body.len().min(200)]).replace(char::is_control, " ");
        format!("it answered {status}: {text}")
    };
    match status {
        200..=299 => Answer::Taken,
        // It looked at the profile and does not want it.
        400 | 413 | 415 | 422 => Answer::Refused(reason()),
        // Also what an operator has to mend.
        _ => Answer::Failed(reason()),
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
