//! Continuous profiling: takes profile after profile and posts them to a Pyroscope server.
//!
//! Sampling does not wait for the server. One profile of each kind is pending; a newer one replaces it, and the older
//! one counts as replaced. A failing server is retried with backoff; the log reports when the failure begins and ends.

mod config;
mod ingest;
mod metrics;
mod upload;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use noroshi_egress::fetch::Post;
use noroshi_egress::{Backoff, Egress, Limits};
use tokio_util::sync::CancellationToken;

pub use config::{Config, Label, check_application, check_header, check_server, labels};
pub use metrics::Metrics;

use crate::profiler::{Ask, Detail, Error, Profiler, Taken};
use upload::{Kind, Upload, Uploads};

/// Only the status of the answer is used, and the beginning of an error text.
const ANSWER_BYTES_MAX: usize = 16 << 10;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of the last upload, when the node stops.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Takes and posts profiles until it is stopped.
pub struct Pusher {
    config: Config,
    /// The labels of this process, then the configured ones.
    labels: Vec<Label>,
    profiler: Profiler,
    egress: Arc<Egress>,
    metrics: Metrics,
}

/// The result of an upload.
enum Answer {
    Taken,
    /// A retry would be rejected too.
    Refused(String),
    Failed(String),
}

impl Pusher {
    /// `egress` must allow the server's address, which an operator configured.
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

    /// The shutdown takes up to `END_TIMEOUT` per pending profile, and the time to write the last samples.
    pub async fn run(self, end: CancellationToken) {
        let uploads = Uploads::default();
        tracing::info!(server = self.config.server, "pushing profiles");
        tokio::join!(self.sample(&uploads, &end), self.send(&uploads, &end));
    }

    async fn sample(&self, uploads: &Uploads, end: &CancellationToken) {
        let ask = Ask { duration: self.config.interval, hz: self.config.hz };
        let mut failing = false;
        while !end.is_cancelled() {
            match self.profiler.window(ask, end.cancelled()).await {
                Ok(taken) => {
                    failing = false;
                    self.keep(uploads, Kind::Cpu, taken);
                }
                Err(error) => self.pause(&error, std::mem::replace(&mut failing, true), end).await,
            }
            if self.config.heap && !end.is_cancelled() {
                match self.profiler.heap(Detail::Functions).await {
                    Ok(taken) => self.keep(uploads, Kind::Heap, taken),
                    Err(error) => tracing::debug!(%error, "failed to take a heap profile"),
                }
            }
        }
        uploads.close();
    }

    fn keep(&self, uploads: &Uploads, kind: Kind, taken: Taken) {
        self.metrics.made(taken.cost);
        // An idle node has nothing to report.
        if taken.stacks > 0 && uploads.put(Upload { kind, taken }) {
            self.metrics.replaced(kind);
        }
    }

    async fn pause(&self, error: &Error, again: bool, end: &CancellationToken) {
        match again {
            true => tracing::debug!(%error, "still failing to take a profile"),
            false => tracing::warn!(%error, "failed to take a profile; retrying"),
        }
        self.metrics.untaken();
        end.run_until_cancelled(tokio::time::sleep(self.config.interval)).await;
    }

    async fn send(&self, uploads: &Uploads, end: &CancellationToken) {
        let (mut failing, mut backoff) = (false, Backoff::new(PAUSE_MIN, PAUSE_MAX));
        while let Some(upload) = uploads.next().await {
            let timeout = if end.is_cancelled() { END_TIMEOUT } else { ANSWER_TIMEOUT };
            let trouble = match self.post(&upload, timeout, end).await {
                Answer::Taken => {
                    self.metrics.pushed(upload.kind);
                    if std::mem::take(&mut failing) {
                        tracing::info!(server = self.config.server, "the server accepts profiles again");
                    }
                    backoff.reset();
                    continue;
                }
                Answer::Refused(reason) => reason,
                Answer::Failed(reason) => {
                    // Unless a newer one is pending.
                    uploads.put_back(upload);
                    reason
                }
            };
            self.metrics.failed();
            match std::mem::replace(&mut failing, true) {
                true => tracing::debug!(reason = trouble, "the server still rejects profiles or fails"),
                false => {
                    tracing::warn!(
                        server = self.config.server,
                        reason = trouble,
                        "failed to push profiles; retrying"
                    );
                }
            }
            if end.run_until_cancelled(tokio::time::sleep(backoff.pause())).await.is_none() {
                return;
            }
        }
    }

    async fn post(&self, upload: &Upload, timeout: Duration, end: &CancellationToken) -> Answer {
        let config = self.config.clone();
        let authorization = match tokio::task::spawn_blocking(move || config.authorization()).await {
            Ok(Ok(authorization)) => authorization,
            Ok(Err(reason)) => return Answer::Failed(reason),
            Err(error) => return Answer::Failed(error.to_string()),
        };
        let url = ingest::url(&self.config, &self.labels, upload);
        let mut headers = Vec::new();
        headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        // grafana.com/docs/pyroscope, "Tenant IDs"
        headers.extend(self.config.tenant.as_deref().map(|value| ("x-scope-orgid", value)));
        let body = ingest::body(upload);
        let post = Post { content_type: ingest::CONTENT_TYPE, headers: &headers, body };
        let limits = Limits { body_bytes_max: ANSWER_BYTES_MAX, timeout };
        let exchange = self.egress.post(&url, post, limits);
        // The last window is included when the node stops.
        let last = async {
            end.cancelled().await;
            tokio::time::sleep(END_TIMEOUT).await;
        };
        let answer = tokio::select! {
            answer = exchange => answer,
            () = last => return Answer::Failed("the node is stopping".to_owned()),
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
        format!("the server answered {status}: {text}")
    };
    match status {
        200..=299 => Answer::Taken,
        // The server rejected the profile.
        400 | 413 | 415 | 422 => Answer::Refused(reason()),
        // Includes failures that an operator has to fix.
        _ => Answer::Failed(reason()),
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
