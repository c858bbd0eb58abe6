//! Requests with several pushes: none is lost or sent twice unless the answer is, limits hold, and what concerns the whole
//! provider counts once.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use noroshi_egress::Egress;
use noroshi_push::exchange::{
    Authorization, BatchLimits, BatchRequest, BatchResponse, BatchVerdict, Batches, Client, Request,
    Response, Verdict,
};
use noroshi_push::push::Reason;
use noroshi_push::{Answer, Condition, Credential, Push, Services};
use noroshi_types::{JsonText, Lane, PushEnvironment, PushService, PushToken, Timestamp};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::answers::{Answers, reason, until};
use crate::client::{APP, Bench, Knobs, config};

/// Bodies are the ids of the pushes, separated by commas.
#[derive(Debug)]
struct Provider {
    origin: String,
    limits: BatchLimits,
}

impl Batches for Provider {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    /// At most seven fit.
    fn request(&self, pushes: &[&Push], _: Timestamp) -> BatchRequest {
        let count = pushes.len().min(7);
        let ids: Vec<String> = pushes[..count].iter().map(|push| push.id.as_u128().to_string()).collect();
        let request =
            Request { path: "/".to_owned(), headers: Vec::new(), body: ids.join(",").into(), readable: None };
        BatchRequest { request, count }
    }

    fn read(&self, pushes: &[&Push], response: &BatchResponse<'_>) -> BatchVerdict {
        match (response.status, response.body) {
            (200, Some(_)) => BatchVerdict::Each(vec![Answer::Accepted; pushes.len()]),
            (200, None) => BatchVerdict::All(Verdict::Overloaded { reason: "malformed_answer", after: None }),
            (401, _) => BatchVerdict::All(Verdict::Broken { reason: "unauthorized" }),
            _ => BatchVerdict::All(Verdict::Overloaded { reason: "busy", after: response.retry_after }),
        }
    }
}

impl Client for Provider {
    fn origin(&self, _: &PushToken) -> Result<Arc<str>, Reason> {
        Ok(self.origin.as_str().into())
    }

    fn authorization(&self, _: &str, _: Timestamp) -> Authorization {
        Authorization::NotNeeded
    }

    fn renew(&self, _: &str, _: &Bytes, _: Timestamp) -> bool {
        false
    }

    fn batches(&self) -> Option<&dyn Batches> {
        Some(self)
    }

    fn request(&self, _: &Push, _: Option<&Bytes>, _: Timestamp) -> Result<Request, Answer> {
        Err(Answer::Refused { reason: "single" })
    }

    fn read(&self, _: &Response<'_>) -> Verdict {
        Verdict::Answer(Answer::Refused { reason: "single" })
    }
}

#[derive(Default)]
struct Log {
    requests: Mutex<Vec<Vec<u32>>>,
    open: AtomicUsize,
    open_max: AtomicUsize,
}

impl Log {
    fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.requests.lock().iter().flatten().copied().collect();
        ids.sort_unstable();
        ids
    }
}

/// Answers the request of this number with a status and the size of a body.
type Say = dyn Fn(usize) -> (u16, usize) + Send + Sync;

async fn server(say: Arc<Say>) -> (SocketAddr, Arc<Log>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, log) = (listener.local_addr().expect("an address"), Arc::new(Log::default()));
    let shared = log.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (log, say) = (shared.clone(), say.clone());
            let answer = move |request: http::Request<hyper::body::Incoming>| {
                let (log, say) = (log.clone(), say.clone());
                async move {
                    let open = log.open.fetch_add(1, Ordering::SeqCst) + 1;
                    log.open_max.fetch_max(open, Ordering::SeqCst);
                    let body = request.into_body().collect().await.expect("a body").to_bytes();
                    let text = std::str::from_utf8(&body).expect("text");
                    let ids = text.split(',').map(|id| id.parse().expect("an id")).collect();
                    let number = {
                        let mut requests = log.requests.lock();
                        requests.push(ids);
                        requests.len() - 1
                    };
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    log.open.fetch_sub(1, Ordering::SeqCst);
                    let (status, bytes) = say(number);
                    let response = http::Response::builder().status(status);
                    Ok::<_, Infallible>(
                        response.body(Full::new(Bytes::from(vec![b' '; bytes]))).expect("valid"),
                    )
                }
            };
            tokio::spawn(async move {
                let io = TokioIo::new(socket);
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(io, service_fn(answer)).await;
            });
        }
    });
    (address, log)
}

struct Stand {
    services: Arc<Services>,
    answers: Arc<Answers>,
    bench: Bench,
}

fn stand(address: SocketAddr, pushes_max: usize) -> Stand {
    let allow = vec!["127.0.0.0/8".parse().expect("a network")];
    let egress = Egress::new(noroshi_egress::Config { allow, ..Default::default() }).expect("no proxies");
    let mut registry = noroshi_telemetry::registry();
    let runtime = tokio::runtime::Handle::current();
    let services = Services::new(config(), Arc::new(egress), &mut registry, runtime);
    let limits = BatchLimits { pushes_max, connections_max: 3, timeout: Duration::from_secs(10) };
    let client = Arc::new(Provider { origin: format!("http://{address}"), limits });
    let credential = Credential {
        service: PushService::Webhook,
        environment: PushEnvironment::Production,
        provider: "mail".into(),
        name: "mail".to_owned(),
        quota: noroshi_push::exchange::Quota::UNLIMITED,
        client,
        shown: JsonText::from_valid("{}"),
    };
    services.set_credentials(APP, vec![credential]);
    // Makes pushes; its own pools stay unused.
    let bench = Bench::new(config(), Knobs::new(PushService::Webhook, "http://127.0.0.1:9"), Vec::new());
    Stand { services, answers: bench.answers.clone(), bench }
}

impl Stand {
    async fn send(&self, numbers: std::ops::Range<u32>, provider: &str) {
        let token = format!(r#"{{"service":"webhook","provider":"{provider}","token":"x"}}"#);
        for number in numbers {
            self.services.send(self.bench.push_to(number, Lane::Direct, &token)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_push_is_in_one_request_and_limits_hold() {
    let (address, log) = server(Arc::new(|_| (200, 0))).await;
    let stand = stand(address, 50);
    stand.send(0..400, "mail").await;
    stand.answers.all_accepted(400).await;
    assert_eq!(log.ids(), (0..400).collect::<Vec<_>>());
    assert!(log.requests.lock().iter().all(|ids| ids.len() <= 7), "as many as fit");
    assert!(log.open_max.load(Ordering::SeqCst) <= 3, "connections");
    for index in 0..400 {
        let [attempt] = &stand.answers.attempts(index)[..] else { panic!("one request carries {index}") };
        let ids = std::str::from_utf8(&attempt.body).expect("text");
        assert!(ids.split(',').any(|id| id == index.to_string()), "{index} is not in {ids}");
        assert_eq!(attempt.response.as_ref().map(|response| response.status), Some(200));
    }
    stand.services.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_an_unknown_provider_is_unconfigured() {
    let (address, log) = server(Arc::new(|_| (200, 0))).await;
    let stand = stand(address, 50);
    stand.send(0..1, "sms").await;
    let answers = stand.answers.wait(1).await;
    assert!(answers.values().all(|answer| *answer == Answer::Unconfigured), "{answers:?}");
    assert!(log.ids().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_answer_pauses_the_provider_once_and_an_unreadable_one_is_no_success() {
    // 2 MiB of body are more than is read.
    let (address, log) = server(Arc::new(|number| if number == 0 { (503, 0) } else { (200, 2 << 20) })).await;
    let stand = stand(address, 1);
    stand.send(0..1, "mail").await;
    let answers = stand.answers.wait(1).await;
    assert!(answers.values().all(|answer| reason(answer) == "busy"), "{answers:?}");
    stand.send(1..2, "mail").await;
    let answers = stand.answers.wait(2).await;
    assert_eq!(reason(&answers[&1]), "malformed_answer");
    assert_eq!(log.ids(), [0, 1]);
    let reasons: Vec<_> = (0..2)
        .flat_map(|index| stand.answers.attempts(index))
        .map(|attempt| (attempt.response.map(|response| response.status), attempt.reason))
        .collect();
    assert_eq!(reasons, [(Some(503), Some("busy")), (Some(200), Some("malformed_answer"))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_secret_opens_the_breaker() {
    let (address, log) = server(Arc::new(|_| (401, 0))).await;
    let stand = stand(address, 50);
    stand.send(0..30, "mail").await;
    let answers = stand.answers.wait(30).await;
    assert!(answers.values().all(|answer| reason(answer) == "unauthorized"), "{answers:?}");
    until("the breaker to open", || matches!(stand.services.status(APP)[0].breaker, Condition::Open { .. }))
        .await;
    assert!(log.ids().len() <= 21, "three requests at a time: {:?}", log.ids());
}
