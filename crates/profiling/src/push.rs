//! Continuous profiling: takes profile after profile and posts them to a Pyroscope server.
//!
//! Sampling does not wait for the server. One profile of each kind is pending; a newer one replaces it, and the older
//! one counts as replaced. A failing server is retried with backoff. The log has a line when failures begin, one when
//! they are over, and a reminder every ten minutes; a server that fails now and then is failing until it is calm.

mod config;
mod ingest;
mod metrics;
mod upload;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use noroshi_egress::failing::Report;
use noroshi_egress::fetch::Post;
use noroshi_egress::{Backoff, Egress, Failing, Limits};
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
        let mut failing = Failing::default();
        while !end.is_cancelled() {
            match self.profiler.window(ask, end.cancelled()).await {
                Ok(taken) => {
                    self.report_taking(failing.succeeded(Instant::now()), None);
                    self.keep(uploads, Kind::Cpu, taken);
                }
                Err(error) => {
                    self.report_taking(failing.failed(Instant::now()), Some(&error));
                    self.metrics.untaken();
                    end.run_until_cancelled(tokio::time::sleep(self.config.interval)).await;
                }
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

    fn report_taking(&self, report: Option<Report>, error: Option<&Error>) {
        let error = error.map(tracing::field::display);
        match report {
            Some(Report::Began) => tracing::warn!(error, "failed to take a profile; retrying"),
            Some(Report::Lasts(summary)) => {
                let (failures, lasted) = (summary.failures, summary.lasted);
                tracing::warn!(error, failures, ?lasted, "still failing to take profiles");
            }
            Some(Report::Over(summary)) => {
                let (failures, lasted) = (summary.failures, summary.lasted);
                tracing::info!(failures, ?lasted, "profiles are taken again");
            }
            None => tracing::debug!(error, "took a profile, or failed to"),
        }
    }

    async fn send(&self, uploads: &Uploads, end: &CancellationToken) {
        let (mut failing, mut backoff) = (Failing::default(), Backoff::new(PAUSE_MIN, PAUSE_MAX));
        loop {
            // The end of a failure is reported even if no upload follows.
            let over_at = failing.over_at().map(tokio::time::Instant::from_std);
            let over = async {
                match over_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let upload = tokio::select! {
                biased;
                upload = uploads.next() => upload,
                () = over => {
                    self.report_pushing(failing.check(Instant::now()), None);
                    continue;
                }
            };
            let Some(upload) = upload else { return };
            let timeout = if end.is_cancelled() { END_TIMEOUT } else { ANSWER_TIMEOUT };
            let reason = match self.post(&upload, timeout, end).await {
                Answer::Taken => {
                    self.metrics.pushed(upload.kind);
                    self.report_pushing(failing.succeeded(Instant::now()), None);
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
            self.report_pushing(failing.failed(Instant::now()), Some(&reason));
            if end.run_until_cancelled(tokio::time::sleep(backoff.pause())).await.is_none() {
                return;
            }
        }
    }

    fn report_pushing(&self, report: Option<Report>, reason: Option<&str>) {
        let server = &self.config.server;
        match report {
            Some(Report::Began) => tracing::warn!(server, reason, "failed to push profiles; retrying"),
            Some(Report::Lasts(summary)) => {
                let (failures, lasted) = (summary.failures, summary.lasted);
                tracing::warn!(server, reason, failures, ?lasted, "still failing to push profiles");
            }
            Some(Report::Over(summary)) => {
                let (failures, lasted) = (summary.failures, summary.lasted);
                tracing::info!(server, failures, ?lasted, "the server accepts profiles again");
            }
            None => tracing::debug!(server, reason, "pushed a profile, or failed to"),
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
