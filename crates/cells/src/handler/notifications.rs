//! The outcome of a message: the sum of the cells' answers, and the front's own state for cells that do not answer.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use noroshi_api::parts::{Path, Publish, Read, json, notification_id};
use noroshi_api::{Problem, body};
use noroshi_store::cells::{PartState, Relayed, RelayedPart};
use noroshi_types::{DeviceId, NotificationId, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::By;
use super::publish::{Summary, TargetSummary};
use crate::cell_set::CellSet;
use crate::client::{CellRequest, CellResponse, escaped};

#[derive(Serialize)]
struct StateBody {
    id: String,
    state: &'static str,
    when: String,
    urgency: String,
    target: TargetSummary,
    targets: Option<u64>,
    counts: BTreeMap<String, u64>,
    collapse_key: Option<String>,
    category: Option<String>,
    /// The category was essential when a cell accepted the message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    essential: bool,
    retain: bool,
    sent_at: String,
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    cells: Vec<CellBody>,
}

/// The part of one cell.
#[derive(Serialize)]
struct CellBody {
    cell: String,
    /// `waiting`, `refused`, `expired`, `cancelled`, `unanswered`, or the state in the cell.
    state: String,
    /// The cell's own id.
    id: Option<String>,
    /// The error code with which the cell rejected it.
    reason: Option<String>,
}

#[derive(Deserialize)]
struct CellState {
    state: String,
    counts: BTreeMap<String, u64>,
    #[serde(default)]
    essential: bool,
}

#[derive(Deserialize)]
struct CellCancelled {
    removed: u64,
}

#[derive(Serialize)]
struct CancelledBody {
    id: String,
    removed: u64,
    /// Cells that did not answer; the relay cancels there later.
    unanswered: Vec<String>,
}

/// `GET /v1/notifications/{id}`
pub(crate) async fn show(By(call, _): By<Read>, Path(id): Path<String>) -> Result<Response, Problem> {
    let found = call.front.cells.store.relayed(call.app, notification_id(&id)?).await?;
    let relayed = found.ok_or_else(|| Problem::not_found("notification"))?;
    let mut counts = BTreeMap::new();
    if relayed.unknown > 0 {
        counts.insert(Outcome::Unknown.as_str().to_owned(), relayed.unknown);
    }
    let (mut cells, mut requests, mut essential) = (Vec::new(), Vec::new(), false);
    for part in &relayed.parts {
        match (part.remote, call.front.cells.get(part.cell)) {
            (Some(remote), Ok(cell)) => {
                let path = format!("/v1/notifications/{remote}");
                requests.push((cell.clone(), CellRequest::get(path)));
            }
            _ => cells.push(part_body(&call.front.cells, part)),
        }
    }
    for (cell, answer) in call.send_each(requests).await {
        let cell_state = answer.ok().filter(|answer| answer.status == StatusCode::OK);
        let cell_state: Option<CellState> = cell_state.and_then(|answer| answer.json().ok());
        for (outcome, count) in cell_state.iter().flat_map(|cell_state| &cell_state.counts) {
            *counts.entry(outcome.clone()).or_default() += count;
        }
        essential |= cell_state.as_ref().is_some_and(|cell_state| cell_state.essential);
        let remote = relayed.parts.iter().find(|part| part.cell == cell.num).and_then(|part| part.remote);
        cells.push(CellBody {
            cell: cell.name().to_owned(),
            state: cell_state.map_or_else(|| "unanswered".to_owned(), |cell_state| cell_state.state),
            id: remote.map(|id| id.to_string()),
            reason: None,
        });
    }
    cells.sort_by(|a, b| a.cell.cmp(&b.cell));
    json_of(relayed, counts, essential, cells)
}

fn json_of(
    relayed: Relayed,
    counts: BTreeMap<String, u64>,
    essential: bool,
    cells: Vec<CellBody>,
) -> Result<Response, Problem> {
    let summary: Summary = serde_json::from_str(&relayed.summary).map_err(Problem::internal)?;
    let body = StateBody {
        id: relayed.id.to_string(),
        state: state(&relayed, &cells),
        when: summary.when,
        urgency: summary.urgency,
        target: summary.target,
        targets: relayed.targets,
        counts,
        collapse_key: summary.collapse_key,
        category: summary.category,
        essential,
        retain: summary.retain,
        sent_at: relayed.accepted_at.to_string(),
        expires_at: relayed.expires_at.to_string(),
        trace: relayed.trace.map(|context| context.trace.to_string()),
        cells,
    };
    Ok(json(StatusCode::OK, &body))
}

/// The overall state: pending while any part is pending or unknown.
fn state(relayed: &Relayed, cells: &[CellBody]) -> &'static str {
    let any = |state: &str| cells.iter().any(|cell| cell.state == state);
    match () {
        () if relayed.cancelled => "cancelled",
        () if any("waiting") || any("pending") || any("unanswered") => "pending",
        () if any("expired") && cells.iter().all(|cell| cell.state == "expired") => "expired",
        () => "done",
    }
}

/// The part of a cell that does not have the message, or is no longer configured.
fn part_body(cells: &CellSet, part: &RelayedPart) -> CellBody {
    let state = match part.state {
        PartState::Waiting => "waiting",
        PartState::Forwarded | PartState::Cancelling => "unanswered",
        PartState::Refused => "refused",
        PartState::Expired => "expired",
        PartState::Cancelled => "cancelled",
    };
    CellBody {
        cell: cells.get(part.cell).map_or_else(|_| "?".to_owned(), |cell| cell.name().to_owned()),
        state: state.to_owned(),
        id: part.remote.map(|id| id.to_string()),
        reason: part.reason.clone(),
    }
}

/// `GET /v1/notifications/{id}/devices/{device}`: the answer of the device's cell.
pub(crate) async fn trace(
    By(call, _): By<Read>,
    Path((id, device)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let id = notification_id(&id)?;
    let device = body::device_id(&device)?;
    let nothing = || Problem::not_found("notification or device");
    let relayed = call.front.cells.store.relayed(call.app, id).await?.ok_or_else(nothing)?;
    let residences = call.front.cells.store.residences(&[call.app], &device).await?;
    let residence = residences.first().ok_or_else(nothing)?;
    let mut last = None;
    // The previous cell may have delivered it.
    for num in [Some(residence.cell), residence.previous].into_iter().flatten() {
        let Some(part) = relayed.parts.iter().find(|part| part.cell == num) else { continue };
        let Some(remote) = part.remote else {
            last = Some(unforwarded(&relayed, &device, part));
            continue;
        };
        let path = format!("/v1/notifications/{remote}/devices/{}", escaped(device.as_str()));
        let cell = call.front.cells.get(num)?;
        let answer = call.send(cell, CellRequest::get(path)).await?;
        if answer.status == StatusCode::OK {
            return with_id(&answer, id);
        }
        last = Some(answer.into_response());
    }
    last.ok_or_else(nothing)
}

/// The cell answers with its own id.
fn with_id(answer: &CellResponse, id: NotificationId) -> Result<Response, Problem> {
    let mut body: Value = answer.json()?;
    body["id"] = id.to_string().into();
    Ok(json(StatusCode::OK, &body))
}

fn unforwarded(relayed: &Relayed, device: &DeviceId, part: &RelayedPart) -> Response {
    let (summary, reason) = match part.state {
        PartState::Waiting => ("It is queued until the device's cell answers.", "pending"),
        PartState::Refused => ("The device's cell rejected it.", "not_reached"),
        PartState::Expired => ("It expired before the device's cell accepted it.", "expired"),
        PartState::Cancelled | PartState::Cancelling | PartState::Forwarded => {
            ("It was cancelled before the device's cell accepted it.", "cancelled")
        }
    };
    let targeting = "Only the device's cell knows whether it was for the device.";
    let mut body = serde_json::json!({
        "id": relayed.id.to_string(), "device": device.as_str(), "steps": [], "in_inbox": false,
        "connected": false, "subscribed": false, "targeted_by": "unknown", "targeting": targeting, "reason": reason,
        "summary": summary,
    });
    if let Some(context) = relayed.trace {
        body["trace"] = context.trace.to_string().into();
    }
    json(StatusCode::OK, &body)
}

/// `DELETE /v1/notifications/{id}`: unsent parts are dropped, the others are cancelled in their cells; the relay
/// retries cells that do not answer.
pub(crate) async fn cancel(By(call, _): By<Publish>, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = notification_id(&id)?;
    let found = call.front.cells.store.cancel_relayed(call.app, id).await?;
    let relayed = found.ok_or_else(|| Problem::not_found("notification"))?;
    let in_cell = |part: &RelayedPart| {
        let path = format!("/v1/notifications/{}", part.remote?);
        Some((call.front.cells.get(part.cell).ok()?.clone(), CellRequest::delete(path)))
    };
    let requests = relayed.parts.iter().filter_map(in_cell);
    let (mut removed, mut unanswered) = (0, Vec::new());
    for (cell, answer) in call.send_each(requests).await {
        match answer.ok().filter(|answer| answer.status.is_success()) {
            Some(answer) => {
                removed += answer.json::<CellCancelled>().map_or(0, |cell_state| cell_state.removed)
            }
            None => {
                cell.work.notify_one();
                unanswered.push(cell.name().to_owned());
            }
        }
    }
    let mut response = json(StatusCode::OK, &CancelledBody { id: id.to_string(), removed, unanswered });
    response.extensions_mut().insert(id);
    Ok(response)
}
