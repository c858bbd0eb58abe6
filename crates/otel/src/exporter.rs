//! Posts ended spans in batches, and metrics periodically. One task, one request at a time.
//!
//! A collector that does not answer is retried with backoff for up to [`GIVE_UP`]. Spans that end meanwhile wait in
//! their queue, and are dropped and counted when it is full. A rejected batch is not sent again (OTLP §"Failures": 429,
//! 502, 503 and 504 are worth a retry, no other status is).

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_egress::fetch::Post;
use noroshi_egress::{Backoff, ConfigError, Egress, Limits};
use noroshi_telemetry::span::{Ended, Span};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::metrics::Loss;
use crate::{Config, Metrics, encode};

/// How often the queue is read.
const INTERVAL: Duration = Duration::from_millis(500);

/// Spans per request: about 250 KB, far below any collector's limit.
const BATCH_MAX: usize = 512;

/// A batch that the collector does not accept for this long is dropped in favour of newer ones.
const GIVE_UP: Duration = Duration::from_secs(60);

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// An answer is empty, or has one sentence about rejected items.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const CONTENT_TYPE: &str = "application/x-protobuf";

/// Returns the text of `/metrics`.
pub type Scrape = Box<dyn Fn() -> Option<String> + Send + Sync>;

pub struct Exporter {
    config: Config,
    egress: Egress,
    resource: Resource,
    metrics: Metrics,
    scrape: Scrape,
    /// The batch in flight; empty between two.
    batch: Vec<Span>,
    /// By signal, whether the last attempt failed; the log reports the change.
    failing: [bool; 2],
}

/// The signals; each has its own path (OTLP/HTTP).
#[derive(Clone, Copy)]
enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    const fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "spans",
            Self::Metrics => "metrics",
        }
    }
}

/// The result of a request.
enum Sent {
    Taken {
        refused: u64,
    },
    /// Retry; not before this time if the collector names it (OTLP/HTTP, "Throttling").
    Again {
        reason: String,
        after: Option<Duration>,
    },
    Refused(String),
}

/// Worth a retry, not before this time.
struct Later(Duration);

/// Ends early on `stop`.
async fn pause(stop: &CancellationToken, length: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = sleep(length) => {}
    }
}

impl Exporter {
    pub fn new(config: Config, metrics: Metrics, scrape: Scrape) -> Result<Self, ConfigError> {
        let (proxies, ca) = (config.proxies.clone(), config.ca.clone());
        let egress =
            Egress::new(noroshi_egress::Config { proxies, ca, ..noroshi_egress::Config::anywhere() })?;
        let resource = encode::resource(&config.resource);
        Ok(Self { config, egress, resource, metrics, scrape, batch: Vec::new(), failing: [false; 2] })
    }

    /// Runs until `end`, then sends the rest, for up to [`Config::drain`].
    pub async fn run(mut self, ended: Ended, end: impl Future<Output = ()>) {
        let since = encode::metric::now();
        let (drain, stop) = (self.config.drain, CancellationToken::new());
        let flushed = {
            // A request in flight is not cancelled: the collector may have accepted it.
            let mut exporting = pin!(self.export_until(&stop, &ended, since));
            tokio::select! {
                () = end => {}
                () = &mut exporting => {}
            }
            stop.cancel();
            tokio::time::timeout(drain, exporting).await
        };
        self.batch.extend(ended.0.try_iter());
        let left = self.batch.len();
        self.lose(Loss::Ended);
        if flushed.is_err() || left > 0 {
            tracing::warn!(left, "the node stopped before the collector accepted all spans");
        }
    }

    async fn export_until(&mut self, stop: &CancellationToken, ended: &Ended, since: u64) {
        let mut metrics_at = Instant::now();
        while !stop.is_cancelled() {
            // Full batches follow at once; a partial one waits for more spans.
            let is_full = self.next(ended) && self.batch.len() >= BATCH_MAX;
            self.export(stop).await;
            if let Some(interval) = self.config.metrics_interval
                && metrics_at.elapsed() >= interval
            {
                metrics_at = Instant::now();
                self.export_metrics(since).await;
            }
            if !is_full {
                pause(stop, INTERVAL).await;
            }
        }
        self.flush(ended, since).await;
    }

    /// Takes the next batch, if there is one.
    fn next(&mut self, ended: &Ended) -> bool {
        if self.batch.is_empty() {
            self.batch.extend(ended.0.try_iter().take(BATCH_MAX));
        }
        !self.batch.is_empty()
    }

    /// Returns when the batch is accepted, rejected, or too old. After `stop`, it may be left for [`Self::flush`].
    async fn export(&mut self, stop: &CancellationToken) {
        let (began, mut backoff) = (Instant::now(), Backoff::new(PAUSE_MIN, PAUSE_MAX));
        while !self.batch.is_empty() && !stop.is_cancelled() {
            let Err(Later(after)) = self.try_export().await else { return };
            let pause = backoff.pause().max(after);
            if began.elapsed().saturating_add(pause) > GIVE_UP {
                return self.lose(Loss::Unreachable);
            }
            self::pause(stop, pause).await;
        }
    }

    async fn try_export(&mut self) -> Result<(), Later> {
        let body = Bytes::from(encode::spans(&self.resource, &self.batch));
        match self.post(Signal::Traces, body).await {
            Sent::Taken { refused } => {
                let all = self.batch.len() as u64;
                self.metrics.dropped(Loss::Refused).inc_by(refused.min(all));
                self.metrics.exported.inc_by(all.saturating_sub(refused));
                self.batch.clear();
                Ok(())
            }
            Sent::Refused(reason) => {
                self.failed(Signal::Traces, &reason);
                self.lose(Loss::Refused);
                Ok(())
            }
            Sent::Again { reason, after } => {
                self.failed(Signal::Traces, &reason);
                Err(Later(after.unwrap_or_default()))
            }
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.metrics.dropped(loss).inc_by(self.batch.len() as u64);
        self.batch.clear();
    }

    /// Sends the last spans and the present metrics; without retries.
    async fn flush(&mut self, ended: &Ended, since: u64) {
        while self.next(ended) {
            if self.try_export().await.is_err() {
                return;
            }
        }
        if self.config.metrics_interval.is_some() {
            self.export_metrics(since).await;
        }
    }

    /// No retry: the next export includes this one.
    async fn export_metrics(&mut self, since: u64) {
        let Some(text) = (self.scrape)() else { return };
        let body = encode::metric::metrics(&self.resource, &text, since, encode::metric::now());
        match self.post(Signal::Metrics, body.into()).await {
            Sent::Taken { .. } => {}
            Sent::Again { reason, .. } | Sent::Refused(reason) => self.failed(Signal::Metrics, &reason),
        }
    }

    async fn post(&mut self, signal: Signal, body: Bytes) -> Sent {
        let headers: Vec<(&str, &str)> =
            self.config.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let post = Post { content_type: CONTENT_TYPE, headers: &headers, body };
        let limits = Limits { body_bytes_max: ANSWER_BYTES_MAX, timeout: self.config.timeout };
        let answer = match self.egress.post(&self.config.url(signal.path()), post, limits).await {
            Ok(answer) => answer,
            Err(error) => return Sent::Again { reason: error.to_string(), after: None },
        };
        match answer.status {
            200..=299 => {
                if std::mem::take(&mut self.failing[signal as usize]) {
                    tracing::info!("the collector accepts {} again", signal.as_str());
                }
                // The answer about metrics has the same fields (`rejected_data_points`).
                let partial = ExportTraceServiceResponse::decode(answer.body).ok();
                let partial = partial.and_then(|answer| answer.partial_success);
                Sent::Taken { refused: partial.map_or(0, |partial| partial.rejected_spans.max(0) as u64) }
            }
            status @ (429 | 502 | 503 | 504) => {
                Sent::Again { reason: format!("the collector answered {status}"), after: answer.retry_after }
            }
            status => Sent::Refused(format!("the collector answered {status}")),
        }
    }

    fn failed(&mut self, signal: Signal, reason: &str) {
        self.metrics.failures.inc();
        if !std::mem::replace(&mut self.failing[signal as usize], true) {
            tracing::warn!(reason, "the collector does not accept {}", signal.as_str());
        }
    }
}
