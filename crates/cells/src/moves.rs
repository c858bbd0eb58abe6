//! Moves devices out of a cell; one task per cell.
//!
//! ```text
//!   Tell ──(revoke its tokens in the old cell: the session ends)──► Told ──(it registers again)──► Arrived
//!   Arrived ──(publish its old inbox to it in the new cell; copy its push tokens and its
//!   preferences; delete it in the old cell)──► settled
//!   Leave ──(delete it in the old cell: a new user must not find the previous user's inbox)──► settled
//! ```
//!
//! Until a device is settled, both cells are queried for its user. Messages that the new cell has delivered already,
//! according to its trace, are not copied. Topic messages are not copied: in the new cell the device receives what is
//! published after its registration. If the old cell is down, the move completes when it is back; the device does not
//! wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use noroshi_api::Problem;
use noroshi_api::parts::body_hash;
use noroshi_store::Idempotency;
use noroshi_store::cells::{Move, MoveStep, NewMessage, PartState, Relayed};
use noroshi_types::{AppId, DeviceId, NotificationId, Target, Timestamp, TraceContext, limits};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cell::Cell;
use crate::cell_set::CellSet;
use crate::client::{CellRequest, CellResponse, bearer, escaped};
use crate::outbox;
use crate::splice::quoted;

/// How often to look for moves that nothing reported.
const INTERVAL: Duration = Duration::from_secs(2);
/// Devices per page of one step.
const PAGE: usize = 100;

/// For each device, the newest message when its arrival was noticed: earlier ones may still be in transit to
/// its previous cell.
type Arrivals = HashMap<(AppId, DeviceId), u64>;

pub(crate) async fn run(cells: Arc<CellSet>, from: Arc<Cell>) {
    let mut arrivals = Arrivals::new();
    loop {
        from.until_up().await;
        if let Err(problem) = round(&cells, &from, &mut arrivals).await {
            tracing::warn!(
                cell = from.name(),
                reason = problem.detail(),
                "failed to move devices out of the cell; will retry"
            );
        }
        let _ = tokio::time::timeout(INTERVAL, from.moving.notified()).await;
    }
}

async fn round(cells: &CellSet, from: &Cell, arrivals: &mut Arrivals) -> Result<(), Problem> {
    for step in [MoveStep::Tell, MoveStep::Leave, MoveStep::Arrived, MoveStep::Told] {
        let mut after = None;
        loop {
            let page = cells.store.moves(from.num, step, after.take(), PAGE).await?;
            if step == MoveStep::Arrived {
                note_arrivals(cells, &page, arrivals).await?;
            }
            for one in &page {
                advance(cells, from, one, arrivals).await?;
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some((last.app, last.device.clone())),
                _ => break,
            }
        }
    }
    Ok(())
}

/// Records the newest message for newly arrived devices.
async fn note_arrivals(cells: &CellSet, page: &[Move], arrivals: &mut Arrivals) -> Result<(), Problem> {
    let key = |one: &Move| (one.app, one.device.clone());
    if page.iter().any(|one| !arrivals.contains_key(&key(one))) {
        let newest = cells.store.newest().await?;
        for one in page {
            arrivals.entry(key(one)).or_insert(newest + 1);
        }
    }
    Ok(())
}

async fn advance(cells: &CellSet, from: &Cell, one: &Move, arrivals: &mut Arrivals) -> Result<(), Problem> {
    let next = match one.step {
        MoveStep::Tell => {
            revoke(cells, from, one).await?;
            MoveStep::Told
        }
        MoveStep::Leave => {
            delete(cells, from, one).await?;
            MoveStep::Settled
        }
        MoveStep::Arrived => {
            if !carry(cells, from, one, arrivals).await? {
                return Ok(());
            }
            copy_tokens(cells, from, one).await?;
            move_preferences(cells, from, one).await?;
            delete(cells, from, one).await?;
            MoveStep::Settled
        }
        // All messages for it there have expired.
        MoveStep::Told if one.since.saturating_add(limits::TTL_MAX) < cells.state.now() => {
            move_preferences(cells, from, one).await?;
            delete(cells, from, one).await?;
            MoveStep::Settled
        }
        MoveStep::Told | MoveStep::Settled => return Ok(()),
    };
    cells.store.advance(one.app, &one.device, one.step, next).await?;
    if next == MoveStep::Settled {
        arrivals.remove(&(one.app, one.device.clone()));
        from.metrics.moved.inc();
    }
    Ok(())
}

/// Sends to the cell with the front's key.
async fn send(
    cells: &CellSet,
    cell: &Cell,
    app: AppId,
    request: CellRequest,
) -> Result<CellResponse, Problem> {
    cell.send_if_up(request.with(cells.key(cell, app)?)).await
}

async fn revoke(cells: &CellSet, from: &Cell, one: &Move) -> Result<(), Problem> {
    let request = CellRequest::post(format!("{}/revoke", path_of(one)), "");
    done(from, send(cells, from, one.app, request).await?.status)
}

async fn delete(cells: &CellSet, from: &Cell, one: &Move) -> Result<(), Problem> {
    done(from, send(cells, from, one.app, CellRequest::delete(path_of(one))).await?.status)
}

fn path_of(one: &Move) -> String {
    format!("/v1/devices/{}", escaped(one.device.as_str()))
}

/// A device that does not exist there is done.
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
    /// The oldest messages, one page.
    messages: Vec<Message>,
    /// Including those beyond the page.
    total: u64,
    /// The device's token in the old cell.
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
    category: Option<String>,
    expires_at: String,
}

/// Publishes the device's old inbox to it in its new cell. False: something is still pending.
async fn carry(cells: &CellSet, from: &Cell, one: &Move, arrivals: &Arrivals) -> Result<bool, Problem> {
    let Some(before) = arrivals.get(&(one.app, one.device.clone())) else { return Ok(false) };
    if cells.store.waits_before(from.num, one.app, *before).await? {
        return Ok(false);
    }
    let Some(mut inbox) = inbox(cells, from, one).await? else { return Ok(true) };
    let more = inbox.has_more();
    let carried: Vec<String> = inbox.messages.iter().map(|message| message.id.clone()).collect();
    for message in std::mem::take(&mut inbox.messages) {
        if message.topic.is_some() {
            continue;
        }
        let remote = NotificationId::parse(&message.id).map_err(Problem::internal)?;
        // An unknown message was published in the cell itself.
        let relayed = cells.store.relayed_as(from.num, remote).await?;
        if let Some(relayed) = &relayed {
            match in_new_cell(cells, one, relayed).await? {
                InNewCell::Yes => continue,
                InNewCell::Pending => return Ok(false),
                InNewCell::No => {}
            }
        }
        let trace = relayed.and_then(|relayed| relayed.trace);
        publish(cells, from, one, message, remote, trace).await?;
    }
    if more {
        // Acknowledging the copied messages frees space for the next page.
        let body = json!({ "ids": carried }).to_string();
        let request = CellRequest::post("/v1/me/inbox/ack", body).with(bearer(&inbox.token)?);
        done(from, from.send_if_up(request).await?.status)?;
        from.moving.notify_one();
    }
    Ok(!more)
}

/// None if the device is not in the cell.
async fn inbox(cells: &CellSet, from: &Cell, one: &Move) -> Result<Option<Inbox>, Problem> {
    match send(cells, from, one.app, CellRequest::get(path_of(one))).await?.status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        status => return Err(unexpected(from, status)),
    }
    let body = format!("{{\"device\":{}}}", quoted(one.device.as_str()));
    let answer = send(cells, from, one.app, CellRequest::post("/v1/devices", body)).await?;
    if answer.status != StatusCode::CREATED {
        return Err(unexpected(from, answer.status));
    }
    let token = answer.json::<Registered>()?.token;
    let path = format!("/v1/me/inbox?limit={}", limits::INBOX_PAGE_MAX);
    let answer = from.send_if_up(CellRequest::get(path).with(bearer(&token)?)).await?;
    match answer.status {
        StatusCode::OK => Ok(Some(Inbox { token, ..answer.json()? })),
        status => Err(unexpected(from, status)),
    }
}

#[derive(Deserialize)]
struct Tokens {
    push_tokens: Vec<Token>,
}

#[derive(Deserialize)]
struct Token {
    kind: String,
    name: String,
    expires_at: Option<String>,
    /// As registered.
    token: Value,
}

/// Copies the device's push tokens to its new cell, except those that it has registered there.
async fn copy_tokens(cells: &CellSet, from: &Cell, one: &Move) -> Result<(), Problem> {
    let path = format!("{}/push-tokens", path_of(one));
    let answer = send(cells, from, one.app, CellRequest::get(path.clone())).await?;
    let tokens = match answer.status {
        StatusCode::OK => answer.json::<Tokens>()?.push_tokens,
        // The device is not there, or the cell runs a version without these tokens.
        StatusCode::NOT_FOUND => return Ok(()),
        status => return Err(unexpected(from, status)),
    };
    let to = cells.get(one.to)?;
    for Token { kind, name, expires_at, token: mut body } in tokens {
        body["only_if_missing"] = true.into();
        if let Some(expires_at) = expires_at {
            body["expires_at"] = expires_at.into();
        }
        let name = if name.is_empty() { name } else { format!("/{name}") };
        let request = CellRequest {
            method: Method::PUT,
            ..CellRequest::post(format!("{path}/{kind}{name}"), body.to_string())
        };
        match send(cells, to, one.app, request).await?.status {
            // The cell refuses a token that has expired meanwhile, or one too many.
            StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::NOT_FOUND => {
                tracing::info!(cell = to.name(), kind, "the new cell of a device refused a push token");
            }
            status if status.is_success() => {}
            status => return Err(unexpected(to, status)),
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct OldDevice {
    user: Option<String>,
}

#[derive(Deserialize)]
struct OldDevices {
    devices: Vec<Value>,
}

/// Copies the preferences of the device and of its user to the new cell, unless it has some. Those of the user leave the old
/// cell with the user's last device, so that a later return does not bring them back.
async fn move_preferences(cells: &CellSet, from: &Cell, one: &Move) -> Result<(), Problem> {
    let Some(device) = found::<OldDevice>(cells, from, one, path_of(one)).await? else { return Ok(()) };
    copy_preferences(cells, from, one, &format!("{}/preferences", path_of(one))).await?;
    let Some(user) = device.user else { return Ok(()) };
    let path = format!("/v1/users/{}/preferences", escaped(&user));
    if !copy_preferences(cells, from, one, &path).await? {
        return Ok(());
    }
    let others = format!("/v1/devices?limit=2&user={}", escaped(&user));
    let others = found::<OldDevices>(cells, from, one, others).await?;
    match others.is_none_or(|others| others.devices.len() <= 1) {
        true => done(from, send(cells, from, one.app, CellRequest::delete(path)).await?.status),
        false => Ok(()),
    }
}

/// Whether the old cell has preferences.
async fn copy_preferences(cells: &CellSet, from: &Cell, one: &Move, path: &str) -> Result<bool, Problem> {
    let in_cell = async |cell: &Cell| {
        let found = found::<Value>(cells, cell, one, path.to_owned()).await?;
        Ok::<_, Problem>(found.filter(|all| *all != json!({})))
    };
    let Some(preferences) = in_cell(from).await? else { return Ok(false) };
    let to = cells.get(one.to)?;
    if in_cell(to).await?.is_some() {
        return Ok(true);
    }
    let request = CellRequest { method: Method::PUT, ..CellRequest::post(path, preferences.to_string()) };
    match send(cells, to, one.app, request).await?.status {
        // The cell runs a version without them, or does not know a field of a newer version. Or the device never registered.
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => {
            tracing::info!(cell = to.name(), "the new cell of a device refused preferences");
        }
        status if status.is_success() => {}
        status => return Err(unexpected(to, status)),
    }
    Ok(true)
}

/// `None`: it is not there, or the cell runs a version without it.
async fn found<T: serde::de::DeserializeOwned>(
    cells: &CellSet,
    cell: &Cell,
    one: &Move,
    path: String,
) -> Result<Option<T>, Problem> {
    let answer = send(cells, cell, one.app, CellRequest::get(path)).await?;
    match answer.status {
        StatusCode::OK => Ok(Some(answer.json()?)),
        StatusCode::NOT_FOUND => Ok(None),
        status => Err(unexpected(cell, status)),
    }
}

enum InNewCell {
    Yes,
    No,
    /// The new cell has not accepted it yet.
    Pending,
}

/// Whether the device has the message in its new cell.
async fn in_new_cell(cells: &CellSet, one: &Move, relayed: &Relayed) -> Result<InNewCell, Problem> {
    let Some(part) = relayed.parts.iter().find(|part| part.cell == one.to) else { return Ok(InNewCell::No) };
    let remote = match (part.state, part.remote) {
        (PartState::Waiting, _) => return Ok(InNewCell::Pending),
        (_, Some(remote)) => remote,
        (_, None) => return Ok(InNewCell::No),
    };
    let to = cells.get(one.to)?;
    let path = format!("/v1/notifications/{remote}/devices/{}", escaped(one.device.as_str()));
    let answer = send(cells, to, one.app, CellRequest::get(path)).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(InNewCell::No);
    }
    if answer.status != StatusCode::OK {
        return Err(unexpected(to, answer.status));
    }
    let trace: Value = answer.json()?;
    let there = trace["in_inbox"] == true || trace["steps"].as_array().is_some_and(|steps| !steps.is_empty());
    Ok(if there { InNewCell::Yes } else { InNewCell::No })
}

async fn publish(
    cells: &CellSet,
    from: &Cell,
    one: &Move,
    message: Message,
    remote: NotificationId,
    trace: Option<TraceContext>,
) -> Result<(), Problem> {
    let request = CellRequest::get(format!("/v1/notifications/{remote}"));
    let answer = send(cells, from, one.app, request).await?;
    let kept: Kept = match answer.status {
        StatusCode::OK => answer.json()?,
        status => return Err(unexpected(from, status)),
    };
    let now = cells.state.now();
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
    for (name, value) in [("collapse_key", kept.collapse_key), ("category", kept.category)] {
        if let Some(value) = value {
            body[name] = value.into();
        }
    }
    // No provider's key starts with a line break.
    let key = format!("\ncarried\n{}\n{remote}\n{}", from.name(), one.device);
    let kept = NewMessage {
        id: outbox::new_id(),
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
    outbox::keep_all(cells, vec![kept]).await.pop().transpose()?;
    Ok(())
}

/// Parses a time as cells write it: RFC 3339 in UTC with milliseconds.
fn moment(text: &str) -> Option<Timestamp> {
    let time: std::time::Duration =
        text.parse::<jiff::Timestamp>().ok()?.duration_since(jiff::Timestamp::UNIX_EPOCH).try_into().ok()?;
    u64::try_from(time.as_millis()).ok().map(Timestamp)
}
