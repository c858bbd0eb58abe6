//! Moving devices out of a cell, one task for each cell that devices leave.
//!
//! ```text
//!   Tell ──(its tokens are revoked there: the session ends)──► Told ──(it registers again)──► Arrived
//!   Arrived ──(what waits in its inbox there is published to it in its new cell; it is deleted there)──► settled
//!   Leave ──(it is deleted there: its new user must not find the old one's inbox)──► settled
//! ```
//!
//! Until a device is settled both cells are asked for its user. What its new cell has heard of already is not carried
//! over: the trace there tells. Messages of topics are not carried: in the new cell the device hears what is published
//! from its registration on. A cell that is away is left when it is back; the device need not wait for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use noroshi_api::Problem;
use noroshi_api::parts::body_hash;
use noroshi_store::Idempotency;
use noroshi_store::cells::{Move, MoveStep, NewMessage, PartState, Relayed};
use noroshi_types::{AppId, DeviceId, NotificationId, Target, Timestamp, TraceContext, limits};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cell::Cell;
use crate::client::Ask;
use crate::front::Front;
use crate::handler::publish::new_id;
use crate::outbox;
use crate::splice::quoted;

/// What nobody reported is looked for this often.
const INTERVAL: Duration = Duration::from_secs(2);
/// A page of devices at one step.
const PAGE: usize = 100;

/// The newest message there was when a device was first seen to have arrived: what was accepted before may still be
/// on its way to its previous cell.
type Seen = HashMap<(AppId, DeviceId), u64>;

pub(crate) async fn run(front: Arc<Front>, from: Arc<Cell>) {
    let mut seen = Seen::new();
    loop {
        from.until_up().await;
        if let Err(problem) = round(&front, &from, &mut seen).await {
            tracing::warn!(
                cell = from.name(),
                reason = problem.detail(),
                "devices could not be moved; they wait"
            );
        }
        let _ = tokio::time::timeout(INTERVAL, from.moving.notified()).await;
    }
}

async fn round(front: &Front, from: &Cell, seen: &mut Seen) -> Result<(), Problem> {
    for step in [MoveStep::Tell, MoveStep::Leave, MoveStep::Arrived, MoveStep::Told] {
        let mut after = None;
        loop {
            let page = front.store.moves(from.num, step, after.take(), PAGE).await?;
            if step == MoveStep::Arrived {
                see(front, &page, seen).await?;
            }
            for one in &page {
                advance(front, from, one, seen).await?;
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some((last.app, last.device.clone())),
                _ => break,
            }
        }
    }
    Ok(())
}

/// Notes what there was when these were first seen to have arrived.
async fn see(front: &Front, page: &[Move], seen: &mut Seen) -> Result<(), Problem> {
    let key = |one: &Move| (one.app, one.device.clone());
    if page.iter().any(|one| !seen.contains_key(&key(one))) {
        let newest = front.store.newest().await?;
        for one in page {
            seen.entry(key(one)).or_insert(newest + 1);
        }
    }
    Ok(())
}

async fn advance(front: &Front, from: &Cell, one: &Move, seen: &mut Seen) -> Result<(), Problem> {
    let next = match one.step {
        MoveStep::Tell => {
            revoke(front, from, one).await?;
            MoveStep::Told
        }
        MoveStep::Leave => {
            delete(front, from, one).await?;
            MoveStep::Settled
        }
        MoveStep::Arrived => {
            if !carry(front, from, one, seen).await? {
                return Ok(());
            }
            delete(front, from, one).await?;
            MoveStep::Settled
        }
        // Nothing that was kept for it there is worth anything any more.
        MoveStep::Told if one.since.saturating_add(limits::TTL_MAX) < front.state.now() => {
            delete(front, from, one).await?;
            MoveStep::Settled
        }
        MoveStep::Told | MoveStep::Settled => return Ok(()),
    };
    front.store.advance(one.app, &one.device, one.step, next).await?;
    if next == MoveStep::Settled {
        seen.remove(&(one.app, one.device.clone()));
        from.metrics.moved.inc();
    }
    Ok(())
}

async fn revoke(front: &Front, from: &Cell, one: &Move) -> Result<(), Problem> {
    let path = format!("/v1/devices/{}/revoke", escaped(one.device.as_str()));
    let ask = Ask::post(path, front.key(from, one.app)?, front.timeout(), Ask::JSON, "");
    done(from, from.request(ask).await?.status)
}

async fn delete(front: &Front, from: &Cell, one: &Move) -> Result<(), Problem> {
    let path = format!("/v1/devices/{}", escaped(one.device.as_str()));
    let ask = Ask::delete(path, front.key(from, one.app)?, front.timeout());
    done(from, from.request(ask).await?.status)
}

/// What is not there is as good as told.
fn done(cell: &Cell, status: StatusCode) -> Result<(), Problem> {
    match status.is_success() || status == StatusCode::NOT_FOUND {
        true => Ok(()),
        false => Err(unexpected(cell, status)),
    }
}

fn unexpected(cell: &Cell, status: StatusCode) -> Problem {
    if status == StatusCode::UNAUTHORIZED {
        cell.unprovisioned.notify_one();
    }
    let detail = format!("the cell {} answered {}", cell.name(), status.as_u16());
    Problem::new(noroshi_api::Code::CellUnavailable, detail)
}

#[derive(Deserialize)]
struct Registered {
    token: String,
}

#[derive(Deserialize)]
struct Inbox {
    /// The oldest, one page.
    messages: Vec<Message>,
    /// With those behind the page.
    total: u64,
    /// The device's own token there.
    #[serde(skip)]
    token: String,
}

impl Inbox {
    fn has_more(&self) -> bool {
        self.total > self.messages.len() as u64
    }
}

#[derive(Deserialize)]
struct Message {
    id: String,
    topic: Option<String>,
    notification: Option<Box<RawValue>>,
    data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Kept {
    urgency: String,
    collapse_key: Option<String>,
    expires_at: String,
}

/// Publishes what waits in the device's inbox to it in its new cell. False: something has to be waited for.
async fn carry(front: &Front, from: &Cell, one: &Move, seen: &Seen) -> Result<bool, Problem> {
    let Some(before) = seen.get(&(one.app, one.device.clone())) else { return Ok(false) };
    if front.store.waits_before(from.num, one.app, *before).await? {
        return Ok(false);
    }
    let Some(mut inbox) = inbox(front, from, one).await? else { return Ok(true) };
    let more = inbox.has_more();
    let carried: Vec<String> = inbox.messages.iter().map(|message| message.id.clone()).collect();
    for message in std::mem::take(&mut inbox.messages) {
        if message.topic.is_some() {
            continue;
        }
        let remote = NotificationId::parse(&message.id).map_err(Problem::internal)?;
        // What is not known was published in the cell itself.
        let relayed = front.store.relayed_as(from.num, remote).await?;
        if let Some(relayed) = &relayed {
            match heard(front, one, relayed).await? {
                Heard::Yes => continue,
                Heard::Later => return Ok(false),
                Heard::No => {}
            }
        }
        let trace = relayed.and_then(|relayed| relayed.trace);
        publish(front, from, one, message, remote, trace).await?;
    }
    if more {
        // What was carried makes way for the next page.
        let body = json!({ "ids": carried }).to_string();
        let ask = Ask::post("/v1/me/inbox/ack", bearer(&inbox.token)?, front.timeout(), Ask::JSON, body);
        done(from, from.request(ask).await?.status)?;
        from.moving.notify_one();
    }
    Ok(!more)
}

/// None if the device is not there.
async fn inbox(front: &Front, from: &Cell, one: &Move) -> Result<Option<Inbox>, Problem> {
    let (app_key, timeout) = (front.key(from, one.app)?, front.timeout());
    let path = format!("/v1/devices/{}", escaped(one.device.as_str()));
    match from.request(Ask::get(path, app_key.clone(), timeout)).await?.status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        status => return Err(unexpected(from, status)),
    }
    let body = format!("{{\"device\":{}}}", quoted(one.device.as_str()));
    let answer = from.request(Ask::post("/v1/devices", app_key, timeout, Ask::JSON, body)).await?;
    if answer.status != StatusCode::CREATED {
        return Err(unexpected(from, answer.status));
    }
    let token = answer.json::<Registered>()?.token;
    let path = format!("/v1/me/inbox?limit={}", limits::INBOX_PAGE_MAX);
    let answer = from.request(Ask::get(path, bearer(&token)?, timeout)).await?;
    match answer.status {
        StatusCode::OK => Ok(Some(Inbox { token, ..answer.json()? })),
        status => Err(unexpected(from, status)),
    }
}

fn bearer(token: &str) -> Result<http::HeaderValue, Problem> {
    http::HeaderValue::from_str(&format!("Bearer {token}")).map_err(Problem::internal)
}

enum Heard {
    Yes,
    No,
    /// The new cell has not taken it yet.
    Later,
}

/// Whether the device has the message in its new cell.
async fn heard(front: &Front, one: &Move, relayed: &Relayed) -> Result<Heard, Problem> {
    let Some(part) = relayed.parts.iter().find(|part| part.cell == one.to) else { return Ok(Heard::No) };
    let remote = match (part.state, part.remote) {
        (PartState::Waiting, _) => return Ok(Heard::Later),
        (_, Some(remote)) => remote,
        (_, None) => return Ok(Heard::No),
    };
    let to = front.cell(one.to)?;
    let path = format!("/v1/notifications/{remote}/devices/{}", escaped(one.device.as_str()));
    let answer = to.request(Ask::get(path, front.key(to, one.app)?, front.timeout())).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(Heard::No);
    }
    if answer.status != StatusCode::OK {
        return Err(unexpected(to, answer.status));
    }
    let trace: Value = answer.json()?;
    let there = trace["in_inbox"] == true || trace["steps"].as_array().is_some_and(|steps| !steps.is_empty());
    Ok(if there { Heard::Yes } else { Heard::No })
}

async fn publish(
    front: &Front,
    from: &Cell,
    one: &Move,
    message: Message,
    remote: NotificationId,
    trace: Option<TraceContext>,
) -> Result<(), Problem> {
    let ask = Ask::get(format!("/v1/notifications/{remote}"), front.key(from, one.app)?, front.timeout());
    let answer = from.request(ask).await?;
    let kept: Kept = match answer.status {
        StatusCode::OK => answer.json()?,
        status => return Err(unexpected(from, status)),
    };
    let now = front.state.now();
    let expires_at = moment(&kept.expires_at).unwrap_or(now);
    let mut body = json!({
        "when": "stored",
        "ttl": format!("{}ms", expires_at.saturating_since(now).as_millis()),
        "urgency": kept.urgency,
    });
    for (name, value) in [("notification", message.notification), ("data", message.data)] {
        if let Some(value) = value {
            body[name] = serde_json::from_str(value.get()).map_err(Problem::internal)?;
        }
    }
    if let Some(collapse_key) = kept.collapse_key {
        body["collapse_key"] = collapse_key.into();
    }
    // No provider's key begins with a line break.
    let key = format!("\ncarried\n{}\n{remote}\n{}", from.name(), one.device);
    let kept = NewMessage {
        id: new_id(),
        app: one.app,
        target: Target::Devices(vec![one.device.clone()]),
        to: "{}".into(),
        body: body.to_string().into(),
        summary:
            json!({"when": "stored", "urgency": kept.urgency, "target": {"kind": "devices"}, "retain": false})
                .to_string()
                .into(),
        expires_at,
        trace,
        idempotency: Some(Idempotency { body_hash: body_hash(key.as_bytes()), key: key.into() }),
        everywhere: Arc::from([]),
        full: Arc::from([]),
    };
    outbox::keep_all(front, vec![kept]).await.pop().transpose()?;
    Ok(())
}

/// As cells write times: RFC 3339 in UTC with milliseconds.
fn moment(text: &str) -> Option<Timestamp> {
    let time: std::time::Duration =
        text.parse::<jiff::Timestamp>().ok()?.duration_since(jiff::Timestamp::UNIX_EPOCH).try_into().ok()?;
    u64::try_from(time.as_millis()).ok().map(Timestamp)
}

/// In a path.
pub(crate) fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
