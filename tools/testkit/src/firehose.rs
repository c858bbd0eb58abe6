//! Amazon Kinesis Data Firehose, limited to `PutRecordBatch`: HTTP/1.1 without TLS on loopback, on its own
//! thread.
//!
//! Strict: the signature (AWS Signature Version 4) is recomputed from the received request and compared, and
//! all documented limits are enforced: 500 records and 4 MiB per call, 1,000 KiB per record, an existing
//! stream. On command it produces the documented failures: some records, a used-up quota, throttling, no
//! answer. It accepts records when it answers, so calls that are in flight together may be accepted in any order
//! if their delays differ.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::background::{Background, bind, serve};

mod signature;

/// The credentials to sign with, by environment variable.
pub const ENVIRONMENT: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY), ("AWS_REGION", REGION)];
pub(crate) const ACCESS_KEY: &str = "AKIDNOROSHITESTKIT";
pub(crate) const SECRET_KEY: &str = "testkit/secret/of/nobody/EXAMPLEKEY";
pub(crate) const REGION: &str = "eu-west-1";

const RECORDS_MAX: usize = 500;
const CALL_BYTES_MAX: usize = 4 << 20;
const RECORD_BYTES_MAX: usize = 1_000 << 10;
/// 4 MiB in base64, plus field names.
const BODY_BYTES_MAX: usize = 8 << 20;

/// What it does with valid calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mood {
    #[default]
    Well,
    /// Every n-th record of all calls fails.
    Failing { every: u64 },
    /// Records beyond this many bytes per second fail, as those beyond a stream's quota do.
    Quota { bytes_per_second: u64 },
    /// `ServiceUnavailableException`
    Throttling,
    /// The same for every n-th call.
    Faltering { every: u64 },
    /// Connections are closed without an answer.
    Away,
}

/// What it has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub calls: u64,
    pub records: u64,
    /// Records it reported as failed.
    pub failed: u64,
    /// The most calls that were in flight at a time.
    pub in_flight_max: u64,
    /// Calls that violated a rule; the last violation is in [`Firehose::violation`].
    pub violations: u64,
}

/// Called with the data of every accepted record; must not block.
pub type Listener = Arc<dyn Fn(&[u8]) + Send + Sync>;

struct State {
    stream: String,
    listener: Listener,
    changing: Mutex<Changing>,
}

#[derive(Default)]
struct Changing {
    mood: Mood,
    delay: Duration,
    /// The longer delay of every n-th call.
    slow: Option<(u64, Duration)>,
    /// Calls since the start, and those without an answer.
    received: u64,
    in_flight: u64,
    /// Of [`Mood::Quota`]: unused bytes, and when they were counted.
    quota: Option<(u64, Instant)>,
    counts: Counts,
    violation: Option<String>,
}

/// Runs until dropped.
pub struct Firehose {
    address: SocketAddr,
    state: Arc<State>,
    _background: Background,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct PutRecordBatch {
    delivery_stream_name: String,
    records: Vec<Record>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Record {
    data: String,
}

impl Firehose {
    /// Starts it with one stream.
    pub fn start(stream: &str, listener: Listener) -> io::Result<Self> {
        let state = Arc::new(State { stream: stream.to_owned(), listener, changing: Mutex::default() });
        let (listener, address) = bind(0)?;
        let serving = state.clone();
        let background = Background::start("fake-firehose", || {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            Ok(serve(listener, move |request| answer(serving.clone(), request)))
        })?;
        Ok(Self { address, state, _background: background })
    }

    /// `http://127.0.0.1:<port>`
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn behave(&self, mood: Mood) {
        self.state.changing.lock().mood = mood;
    }

    /// Delays all answers.
    pub fn delay(&self, delay: Duration) {
        self.state.changing.lock().delay = delay;
    }

    /// Delays every n-th answer by another time, so that later calls overtake it.
    pub fn delay_some(&self, every: u64, delay: Duration) {
        self.state.changing.lock().slow = Some((every.max(1), delay));
    }

    pub fn counts(&self) -> Counts {
        self.state.changing.lock().counts
    }

    /// The last violation.
    pub fn violation(&self) -> Option<String> {
        self.state.changing.lock().violation.clone()
    }
}

/// A response, or a closed connection.
type Answer = Result<Response<Full<Bytes>>, io::Error>;

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?.to_bytes();
    let _in_flight = InFlight::new(&state);
    let (mood, delay) = {
        let mut changing = state.changing.lock();
        changing.received += 1;
        let slow = changing.slow.filter(|(every, _)| changing.received.is_multiple_of(*every));
        (changing.mood, slow.map_or(changing.delay, |(_, delay)| delay))
    };
    tokio::time::sleep(delay).await;
    if mood == Mood::Away {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    let (status, body) = match read(&state.stream, &head, &body) {
        Ok(_) if state.changing.lock().throttles(mood) => {
            state.changing.lock().counts.calls += 1;
            failure(500, "ServiceUnavailableException", "slow down")
        }
        Ok(records) => (200, state.take(&records, mood)),
        Err((code, why)) => {
            let mut changing = state.changing.lock();
            changing.counts.violations += 1;
            changing.violation = Some(why.clone());
            failure(400, code, &why)
        }
    };
    let response = Response::builder().status(status).header("content-type", "application/x-amz-json-1.1");
    response.body(Full::new(body.to_string().into())).map_err(io::Error::other)
}

/// Counts a call until its answer, or until the caller gives up.
struct InFlight<'a>(&'a State);

impl<'a> InFlight<'a> {
    fn new(state: &'a State) -> Self {
        let mut changing = state.changing.lock();
        changing.in_flight += 1;
        changing.counts.in_flight_max = changing.counts.in_flight_max.max(changing.in_flight);
        Self(state)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.changing.lock().in_flight -= 1;
    }
}

impl Changing {
    /// Whether a call fails as a whole.
    fn throttles(&self, mood: Mood) -> bool {
        match mood {
            Mood::Throttling => true,
            Mood::Faltering { every } => self.counts.calls % every == every - 1,
            Mood::Well | Mood::Failing { .. } | Mood::Quota { .. } | Mood::Away => false,
        }
    }

    /// Whether a record fails now.
    fn fails(&mut self, mood: Mood, bytes: u64) -> bool {
        match mood {
            Mood::Failing { every } => {
                let number = self.counts.records + self.counts.failed;
                number % every == every - 1
            }
            Mood::Quota { bytes_per_second } => {
                let now = Instant::now();
                let (unused, since) = self.quota.unwrap_or((bytes_per_second, now));
                let more = now.duration_since(since).as_secs_f64() * bytes_per_second as f64;
                // A second's worth at most, but always enough for one record.
                let most = bytes_per_second.max(bytes);
                let unused = (unused + more as u64).min(most);
                let fails = bytes > unused;
                self.quota = Some((if fails { unused } else { unused - bytes }, now));
                fails
            }
            Mood::Well | Mood::Throttling | Mood::Faltering { .. } | Mood::Away => false,
        }
    }
}

fn failure(status: u16, code: &str, why: &str) -> (u16, Value) {
    (status, json!({ "__type": code, "message": why }))
}

impl State {
    fn take(&self, records: &[Vec<u8>], mood: Mood) -> Value {
        let mut changing = self.changing.lock();
        changing.counts.calls += 1;
        let (mut failed, mut answers) = (0, Vec::new());
        for record in records {
            if changing.fails(mood, record.len() as u64) {
                (failed, changing.counts.failed) = (failed + 1, changing.counts.failed + 1);
                answers
                    .push(json!({ "ErrorCode": "ServiceUnavailableException", "ErrorMessage": "slow down" }));
                continue;
            }
            let number = changing.counts.records + changing.counts.failed;
            changing.counts.records += 1;
            answers.push(json!({ "RecordId": format!("record-{number}") }));
            (self.listener)(record);
        }
        json!({ "FailedPutCount": failed, "Encrypted": false, "RequestResponses": answers })
    }
}

type Violation = (&'static str, String);

/// The records of a valid call.
fn read(stream: &str, head: &http::request::Parts, body: &[u8]) -> Result<Vec<Vec<u8>>, Violation> {
    const ARGUMENT: &str = "InvalidArgumentException";
    signature::check(head, body).map_err(|why| ("InvalidSignatureException", why))?;
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    if header("x-amz-target") != Some("Firehose_20150804.PutRecordBatch") {
        return Err(("UnknownOperationException", format!("unknown target {:?}", header("x-amz-target"))));
    }
    if header("content-type") != Some("application/x-amz-json-1.1") {
        return Err(("SerializationException", format!("wrong content type {:?}", header("content-type"))));
    }
    let call: PutRecordBatch =
        serde_json::from_slice(body).map_err(|error| ("SerializationException", error.to_string()))?;
    if call.delivery_stream_name != stream {
        return Err(("ResourceNotFoundException", format!("no stream {}", call.delivery_stream_name)));
    }
    if call.records.is_empty() || call.records.len() > RECORDS_MAX {
        return Err((ARGUMENT, format!("{} records in a call", call.records.len())));
    }
    let mut records = Vec::new();
    for record in &call.records {
        let data = BASE64_STANDARD
            .decode(&record.data)
            .map_err(|error| ("SerializationException", error.to_string()))?;
        if data.is_empty() || data.len() > RECORD_BYTES_MAX {
            return Err((ARGUMENT, format!("a record of {} bytes", data.len())));
        }
        records.push(data);
    }
    let bytes: usize = records.iter().map(Vec::len).sum();
    if bytes > CALL_BYTES_MAX {
        return Err((ARGUMENT, format!("a call of {bytes} bytes")));
    }
    Ok(records)
}
