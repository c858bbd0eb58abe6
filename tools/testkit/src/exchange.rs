//! Handles one request: checks it by the service's rules, applies the script, records it, and determines the
//! answer and its delay. The decision is carried out by the connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Service;
use crate::behaviour::{Act, Behaviour, Change};
use crate::latency::{Random, is_late};
use crate::record::{Received, Record};
use crate::rules::{ConnectionInfo, IncomingRequest, Reply, Rules};
use crate::tokens::Devices;

/// Called for every request that a fake answers.
pub type Listener = Arc<dyn Fn(&Received) + Send + Sync>;

/// A fake, shared by all its connections.
pub(crate) struct Fake {
    pub(crate) service: Service,
    pub(crate) rules: Arc<dyn Rules>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) behaviour: Mutex<Behaviour>,
    pub(crate) record: Mutex<Record>,
    random: Mutex<Random>,
    orders: watch::Sender<Orders>,
    listener: Option<Listener>,
}

/// Orders to the open connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Each increment is one order.
    pub(crate) go_away: u64,
    pub(crate) disconnect: u64,
    pub(crate) streams_max: u32,
}

/// When and how a request ends.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) after: Duration,
    pub(crate) ending: Ending,
}

#[derive(Debug)]
pub(crate) enum Ending {
    Reply(Reply),
    /// Not processed, signalled as such.
    Refuse,
    /// Not processed: this and later streams get GOAWAY.
    GoAway,
    Reset,
    Silence,
    Disconnect,
}

impl Fake {
    pub(crate) fn new(
        service: Service,
        rules: Arc<dyn Rules>,
        devices: Arc<Devices>,
        record: Record,
        listener: Option<Listener>,
    ) -> Self {
        let behaviour = Behaviour::default();
        let orders = Orders { streams_max: behaviour.streams_max, ..Orders::default() };
        Self {
            service,
            rules,
            devices,
            behaviour: Mutex::new(behaviour),
            record: Mutex::new(record),
            random: Mutex::default(),
            orders: watch::Sender::new(orders),
            listener,
        }
    }

    pub(crate) fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    pub(crate) fn change(&self, change: Change) -> Result<(), String> {
        let (go_away, disconnect) = (change.go_away, change.disconnect);
        let mut behaviour = self.behaviour.lock();
        behaviour.change(change)?;
        let streams_max = behaviour.streams_max;
        drop(behaviour);
        self.orders.send_if_modified(|orders| {
            let before = *orders;
            orders.streams_max = streams_max;
            orders.go_away += u64::from(go_away);
            orders.disconnect += u64::from(disconnect);
            before != *orders
        });
        Ok(())
    }

    /// `go_away`: whether GOAWAY is possible, i.e. no later request has been processed yet.
    pub(crate) fn decide(&self, info: &ConnectionInfo, head: &Parts, body: &[u8], go_away: bool) -> Decision {
        let mut behaviour = self.behaviour.lock();
        let now_ms = unix_ms() + behaviour.clock_ahead_s * 1_000;
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = IncomingRequest {
            method: &head.method,
            path,
            headers: &head.headers,
            body,
            now_ms,
            connection: info,
        };
        let mut verdict = self.rules.evaluate(&request);
        let script = verdict.reply.is_accepted().then(|| behaviour.script(&verdict.token)).flatten();
        let mut act = Act::Answer;
        if let Some(script) = script {
            act = script.act;
            if act == Act::Answer {
                verdict.reply = self.rules.scripted(&script, &verdict, now_ms);
                if let Some(seconds) = script.retry_after_s {
                    verdict.reply.headers.push(("retry-after", seconds.to_string()));
                }
            }
        }
        match act {
            Act::Refuse => return Decision { after: Duration::ZERO, ending: Ending::Refuse },
            Act::GoAway if go_away => return Decision { after: Duration::ZERO, ending: Ending::GoAway },
            _ => {}
        }
        let mut after = behaviour.latency.sample(&mut self.random.lock());
        if let Some(late) = behaviour.late.filter(|late| is_late(&verdict.token, late.share)) {
            after = after.max(Duration::from_millis(late.ms));
        }
        drop(behaviour);
        let mut record = self.record.lock();
        record.count(&verdict, now_ms);
        if record.keeps() || self.listener.is_some() {
            let received = Received {
                at_ms: now_ms,
                service: self.service,
                token: verdict.token,
                id: verdict.id,
                title: verdict.title,
                payload: verdict.payload,
                headers: recorded_headers(head),
                bytes: body.len(),
                status: verdict.reply.status,
                reason: verdict.reply.reason.clone(),
                connection: info.number,
            };
            if let Some(listener) = &self.listener {
                listener(&received);
            }
            if record.keeps() {
                record.keep(received);
            }
        }
        let ending = match act {
            Act::Reset => Ending::Reset,
            Act::Silence => Ending::Silence,
            Act::Disconnect => Ending::Disconnect,
            Act::Answer | Act::Refuse | Act::GoAway => Ending::Reply(verdict.reply),
        };
        Decision { after, ending }
    }
}

/// Without the authorization header.
fn recorded_headers(head: &Parts) -> BTreeMap<String, String> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter().filter(|(name, _)| *name != http::header::AUTHORIZATION);
    headers.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
