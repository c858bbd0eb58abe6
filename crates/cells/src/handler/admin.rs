//! Cells for operators: population, shares of new devices, and moves.

use std::collections::HashMap;

use axum::response::Response;
use http::StatusCode;
use noroshi_api::parts::{JsonBody, Operator, Path, json};
use noroshi_api::{Code, Problem};
use noroshi_store::cells::{CellChange, CellNum, Population, Relocated, Relocation};
use noroshi_types::{AppId, DeviceId, UserId, limits};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::FrontExtension;
use crate::front::Front;

/// Users or devices that start to move in one commit.
const MOVES_PER_COMMIT: usize = 500;

#[derive(Serialize)]
struct CellsBody {
    cells: Vec<CellBody>,
}

#[derive(Serialize)]
struct CellBody {
    cell: String,
    url: String,
    up: bool,
    draining: bool,
    weight: u32,
    devices: u64,
    users: u64,
    /// Devices that are moving to another cell.
    leaving: u64,
    /// Messages queued for the cell.
    waiting: u64,
    oldest_waiting_seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::option_option)] // absent, null and a value are three different wishes
struct ChangeBody {
    /// Null: as configured.
    #[serde(default, deserialize_with = "some")]
    weight: Option<Option<u32>>,
    draining: Option<bool>,
}

/// Exactly one of `user`, `device` and `share`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MovesBody {
    to: String,
    app: Option<String>,
    user: Option<String>,
    device: Option<String>,
    /// Percent of the cell's users and devices.
    share: Option<f64>,
}

#[derive(Serialize)]
struct MovedBody {
    users: u64,
    devices: u64,
}

/// Distinguishes a missing field from null.
#[allow(clippy::option_option)]
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// `GET /v1/cells`
pub(crate) async fn list(axum::Extension(front): FrontExtension, _: Operator) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, &CellsBody { cells: cells(&front).await? }))
}

async fn cells(front: &Front) -> Result<Vec<CellBody>, Problem> {
    let populations: HashMap<_, Population> =
        front.cells.store.populations().await?.into_iter().map(|one| (one.cell, one)).collect();
    let depths: HashMap<_, _> =
        front.cells.store.depths().await?.into_iter().map(|depth| (depth.cell, depth)).collect();
    let now = front.cells.state.now();
    let bodies = front.cells.iter().map(|cell| {
        let population = populations.get(&cell.num);
        let depth = depths.get(&cell.num);
        let oldest = depth.and_then(|depth| depth.oldest).map(|oldest| now.saturating_since(oldest));
        CellBody {
            cell: cell.name().to_owned(),
            url: cell.config.urls.first().cloned().unwrap_or_default(),
            up: cell.is_up(),
            draining: cell.is_draining(),
            weight: cell.weight(),
            devices: population.map_or(0, |one| one.devices),
            users: population.map_or(0, |one| one.users),
            leaving: population.map_or(0, |one| one.leaving),
            waiting: depth.map_or(0, |depth| depth.parts),
            oldest_waiting_seconds: oldest.unwrap_or_default().as_secs(),
        }
    });
    Ok(bodies.collect())
}

/// `PATCH /v1/cells/{cell}`
pub(crate) async fn change(
    axum::Extension(front): FrontExtension,
    _: Operator,
    Path(name): Path<String>,
    JsonBody(text): JsonBody,
) -> Result<Response, Problem> {
    let cell = front.cells.named(&name)?;
    let ChangeBody { weight, draining } = read(&text)?;
    let record = front.cells.store.adjust(cell.num, CellChange { weight, draining }).await?;
    cell.apply(&record);
    tracing::info!(
        cell = cell.name(),
        weight = cell.weight(),
        draining = cell.is_draining(),
        "an operator changed a cell"
    );
    let body = cells(&front).await?.into_iter().find(|one| one.cell == name);
    Ok(json(StatusCode::OK, &body))
}

/// `POST /v1/cells/{cell}/moves`: selects users or devices and returns. They move one by one afterwards.
pub(crate) async fn relocate(
    axum::Extension(front): FrontExtension,
    _: Operator,
    Path(name): Path<String>,
    JsonBody(text): JsonBody,
) -> Result<Response, Problem> {
    let from = front.cells.named(&name)?;
    let body: MovesBody = read(&text)?;
    let to = front.cells.named(&body.to).map_err(|problem| problem.at("to"))?;
    if to.num == from.num {
        return Err(Problem::field("to", "must be another cell"));
    }
    let app = body.app.as_deref().map(|app| app_named(&front, app)).transpose()?;
    let moved = match (app, body.user, body.device, body.share) {
        (Some(app), Some(user), None, None) => {
            let user = UserId::parse(&user).map_err(|wrong| Problem::from(wrong).at("user"))?;
            relocate_some(&front, Relocation::User(app, user), to.num).await?
        }
        (Some(app), None, Some(device), None) => {
            let device = DeviceId::parse(&device).map_err(|wrong| Problem::from(wrong).at("device"))?;
            relocate_some(&front, Relocation::Device(app, device), to.num).await?
        }
        (None, None, None, Some(share)) if share > 0.0 && share <= 100.0 => {
            relocate_share(&front, from.num, to.num, share).await?
        }
        _ => {
            let rule = "name `app` with `user` or `device`, or a `share` above 0 and up to 100 (percent)";
            return Err(Problem::field("share", rule));
        }
    };
    for cell in front.cells.iter() {
        cell.moving.notify_one();
    }
    tracing::info!(from = name, to = body.to, users = moved.users, devices = moved.devices, "moving");
    Ok(json(StatusCode::ACCEPTED, &MovedBody { users: moved.users, devices: moved.devices }))
}

async fn relocate_some(front: &Front, who: Relocation, to: CellNum) -> Result<Relocated, Problem> {
    let now = front.cells.state.now();
    Ok(front.cells.store.relocate(who, to, now, now.saturating_add(limits::TTL_MAX)).await?)
}

/// In several commits, so that no other commit waits for long.
async fn relocate_share(front: &Front, from: CellNum, to: CellNum, share: f64) -> Result<Relocated, Problem> {
    let population = front.cells.store.populations().await?.into_iter().find(|one| one.cell == from);
    // A user's devices move with the user; the others count separately.
    let all = population.map_or(0, |one| one.users + one.alone);
    let mut left = (all as f64 * share / 100.0).ceil() as usize;
    let mut moved = Relocated::default();
    while left > 0 {
        let limit = left.min(MOVES_PER_COMMIT);
        let part = relocate_some(front, Relocation::Some { from, limit }, to).await?;
        let units = part.users + part.alone;
        if units == 0 {
            break;
        }
        left = left.saturating_sub(units as usize);
        moved.users += part.users;
        moved.devices += part.devices;
    }
    Ok(moved)
}

fn app_named(front: &Front, name: &str) -> Result<AppId, Problem> {
    front.cells.state.auth.app_id(name).ok_or_else(|| Problem::not_found("app").at("app"))
}

fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|error| {
        let code = if error.is_data() { Code::InvalidField } else { Code::InvalidJson };
        Problem::new(code, error.to_string())
    })
}
