//! The product's push client on its own runtime, and the results of its pushes. A response costs one store to
//! a separate slot, so that measuring does not affect the result.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use noroshi_egress::Egress;
use noroshi_push::{Answer, Answered, Config, Content, Credential, Fields, Push, Record, Reply, Services};
use noroshi_types::{AppId, JsonText, Lane, OwnFields, PushToken, Timestamp, Urgency};
use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::deadline_ns;
use crate::args;
use crate::http::Origin;
use crate::target::PushService;
use crate::{Error, clock};

const APP: AppId = AppId(1);
const DRAIN: Duration = Duration::from_secs(10);

pub(super) struct Client {
    runtime: Runtime,
    services: Arc<Services>,
    content: Arc<Content>,
}

impl Client {
    /// A client for `count` pushes: a node's queue holds pushes that were taken and not sent.
    pub(super) fn new(args: &args::Push, service: &PushService, count: usize) -> Result<Self, Error> {
        let usage = |why: String| Error::Usage(why);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(usize::from(args.threads))
            .enable_all()
            .build()
            .map_err(Error::system("a runtime"))?;
        let certificates = CertificateDer::pem_slice_iter(service.ca.as_bytes());
        let ca = certificates
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| usage(format!("--ca-file: {error}")))?;
        // A Web Push credential names none: the subscriptions do, which are the fake's.
        let endpoint = service.credential["endpoint"].as_str().map(Origin::parse).transpose()?;
        let loopback = ["127.0.0.0/8", "::1/128"].into_iter().filter_map(|net| net.parse().ok());
        let allow: Vec<IpNet> =
            loopback.chain(endpoint.map(|origin| IpNet::from(origin.address.ip()))).collect();
        let egress = Egress::new(noroshi_egress::Config { allow, ca, ..noroshi_egress::Config::default() });
        let egress = Arc::new(egress.map_err(|error| usage(error.to_string()))?);
        let credential = Credential::parse(service.credential.to_string().as_bytes());
        let mut credential = credential.map_err(|error| usage(error.to_string()))?;
        // FCM's rate is far below what the client can send, and grows over a minute.
        credential.quota.per_second = None;
        let default = Config::default();
        let config = Config {
            connections_max: args.connections,
            queue_max: if args.experiment { default.queue_max.max(count) } else { default.queue_max },
            request_timeout: args.patience.min(Duration::from_secs(60)),
            ..default
        };
        let mut registry = noroshi_telemetry::registry();
        let services = Services::new(config, egress, &mut registry, runtime.handle().clone());
        services.set_credentials(APP, vec![credential]);
        Ok(Self { runtime, services, content: Arc::new(content()) })
    }

    /// Sends one push to each token, taking `together` of them from the queue at the same time, and waits for all
    /// responses.
    pub(super) fn push(
        &self,
        tokens: Vec<PushToken>,
        together: usize,
        patience: Duration,
    ) -> Result<Run, Error> {
        let count = tokens.len();
        let answers = Arc::new(Answers::new(count));
        let deadline_ns = deadline_ns(patience);
        let sent = async {
            let mut taken_ns = 0;
            for (index, token) in tokens.into_iter().enumerate() {
                if index % together == 0 {
                    taken_ns = clock::now_ns();
                }
                answers.taken_ns[index].store(taken_ns, Ordering::Relaxed);
                let push = Push {
                    app: APP,
                    lane: Lane::Direct,
                    token,
                    content: self.content.clone(),
                    id: uuid::Uuid::now_v7(),
                    details: None,
                    record: Record::Failures,
                    reply: Reply { to: answers.clone(), index: index as u32 },
                };
                self.services.send(push).await;
            }
            answers.all.notified().await;
        };
        let left = Duration::from_nanos(deadline_ns.saturating_sub(clock::now_ns()));
        let ended = self.runtime.block_on(async { tokio::time::timeout(left, sent).await });
        match ended {
            Ok(()) => Ok(answers.run()),
            Err(_) => Err(Error::NotDelivered {
                missing: answers.left.load(Ordering::Relaxed) as u64,
                expected: count as u64,
                seconds: patience.as_secs_f64(),
                hint: format!(
                    "no responses; rejected: {:?}; reported by the client: {:?}",
                    answers.run().reasons,
                    self.services.status(APP)
                ),
            }),
        }
    }

    pub(super) fn end(self) {
        self.runtime.block_on(self.services.drain(DRAIN));
        self.runtime.shutdown_timeout(DRAIN);
    }
}

/// One slot per push.
struct Answers {
    taken_ns: Vec<AtomicU64>,
    answered_ns: Vec<AtomicU64>,
    left: AtomicUsize,
    all: Notify,
    /// Rejected pushes, by reason.
    reasons: Mutex<BTreeMap<String, u64>>,
}

impl Answers {
    fn new(count: usize) -> Self {
        let places = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            taken_ns: places(),
            answered_ns: places(),
            left: AtomicUsize::new(count),
            all: Notify::new(),
            reasons: Mutex::default(),
        }
    }

    fn run(&self) -> Run {
        let read = |places: &[AtomicU64]| places.iter().map(|place| place.load(Ordering::Relaxed)).collect();
        let (taken_ns, answered_ns): (Vec<u64>, Vec<u64>) = (read(&self.taken_ns), read(&self.answered_ns));
        Run {
            first_ns: taken_ns.first().copied().unwrap_or_default(),
            last_ns: answered_ns.iter().copied().max().unwrap_or_default(),
            taken_ns,
            answered_ns,
            reasons: self.reasons.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Answered for Answers {
    fn answered(&self, index: u32, answer: Answer) {
        self.answered_ns[index as usize].store(clock::now_ns(), Ordering::Relaxed);
        let reason = match answer {
            Answer::Accepted => None,
            Answer::Gone { reason, .. } => Some(format!("gone {reason}")),
            Answer::Suspect { reason } => Some(format!("suspect {reason}")),
            Answer::Refused { reason } => Some(format!("refused {reason}")),
            Answer::Later { reason, .. } => Some(format!("later {reason}")),
            Answer::Unconfigured => Some("unconfigured".to_owned()),
            Answer::Expired => Some("expired".to_owned()),
        };
        if let Some(reason) = reason {
            *self.reasons.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
        }
        // Release, so that the reader of the last response sees all times.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all.notify_one();
        }
    }
}

/// The results of one run.
pub(super) struct Run {
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    taken_ns: Vec<u64>,
    answered_ns: Vec<u64>,
    pub(super) reasons: BTreeMap<String, u64>,
}

impl Run {
    pub(super) fn errors(&self) -> u64 {
        self.reasons.values().sum()
    }

    /// Sorted.
    pub(super) fn latencies_ms(&self, wanted: impl Fn(usize) -> bool) -> Vec<f64> {
        let times = self.taken_ns.iter().zip(&self.answered_ns).enumerate();
        let times = times.filter(|(index, _)| wanted(*index));
        let mut ms: Vec<f64> =
            times.map(|(_, (taken, answered))| answered.saturating_sub(*taken) as f64 / 1e6).collect();
        ms.sort_by(f64::total_cmp);
        ms
    }
}

/// CPU time of this process with nanosecond precision, unlike ticks of 10 ms.
pub(super) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 // never negative
}

fn content() -> Content {
    let in_an_hour_ms = (clock::unix_seconds() + 3_600) * 1_000;
    Content::new(Fields {
        unread: None,
        kind: None,
        notification_id: None,
        notification: Some(JsonText::from_valid(
            r#"{"title":"A headline of usual length, as news have it","body":"And a line that says a little more about it."}"#,
        )),
        data: Some(JsonText::from_valid(r#"{"article":"0123456789abcdef","section":"front"}"#)),
        urgency: Urgency::High,
        collapse_key: None,
        expires_at: Timestamp(in_an_hour_ms),
        own: OwnFields::default(),
    })
}
