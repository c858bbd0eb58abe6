//! `POST /v1/presence`: queries each cell for its users.

use std::collections::BTreeMap;

use axum::response::Response;
use http::StatusCode;
use noroshi_api::parts::{JsonBody, Read, json};
use noroshi_api::{Problem, body};
use noroshi_store::cells::CellNum;
use noroshi_types::Presence;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::By;
use crate::client::CellRequest;

#[derive(Serialize)]
struct PresenceBody {
    users: BTreeMap<String, UserBody>,
    /// Cells that did not answer: their users are missing from the answer.
    unanswered: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct UserBody {
    presence: String,
    devices: Vec<Value>,
}

#[derive(Deserialize)]
struct CellPresence {
    users: BTreeMap<String, UserBody>,
}

/// A user of a cell that does not answer counts as offline, and `unanswered` names the cell.
pub(crate) async fn query(By(call, _): By<Read>, JsonBody(text): JsonBody) -> Result<Response, Problem> {
    let users = body::presence_query(&text)?;
    let front = &call.front.cells;
    let cells = front.store.cells_of_users(call.app, users.clone(), front.state.now()).await?;
    let mut by_cell: BTreeMap<CellNum, Vec<&str>> = BTreeMap::new();
    for (user, cells) in users.iter().zip(cells) {
        for cell in cells {
            by_cell.entry(cell).or_default().push(user.as_str());
        }
    }
    let (mut requests, mut unanswered) = (Vec::new(), Vec::new());
    for (num, users) in by_cell {
        let body = serde_json::json!({ "users": users }).to_string();
        match front.get(num) {
            Ok(cell) => requests.push((cell.clone(), CellRequest::post("/v1/presence", body))),
            Err(_) => unanswered.push("?".to_owned()),
        }
    }
    let offline = || UserBody { presence: Presence::Offline.as_str().to_owned(), devices: Vec::new() };
    let mut merged: BTreeMap<String, UserBody> =
        users.iter().map(|user| (user.to_string(), offline())).collect();
    for (cell, answer) in call.send_each(requests).await {
        let body = answer.ok().filter(|answer| answer.status == StatusCode::OK);
        let Some(body) = body.and_then(|answer| answer.json::<CellPresence>().ok()) else {
            unanswered.push(cell.name().to_owned());
            continue;
        };
        for (user, there) in body.users {
            let whole = merged.entry(user).or_insert_with(offline);
            if rank(&there.presence) > rank(&whole.presence) {
                whole.presence = there.presence;
            }
            whole.devices.extend(there.devices);
        }
    }
    Ok(json(StatusCode::OK, &PresenceBody { users: merged, unanswered }))
}

fn rank(presence: &str) -> Option<Presence> {
    Presence::ALL.into_iter().find(|one| one.as_str() == presence)
}
