//! Devices: each is assigned to a cell when it registers; the cell manages it.

use std::collections::BTreeMap;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Uri};
use noroshi_api::parts::{
    Devices, JsonBody, Lines, NdjsonBody, Path, Query, Read, Traced, bearer, draw_device_id, json, lines,
    page_limit, record_provider, scoped,
};
use noroshi_api::{Api, Problem, body};
use noroshi_auth::Refused;
use noroshi_store::cells::{CellNum, Residence};
use noroshi_types::{AppId, DeviceId, Scope, UserId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::me::{Resident, at, unchanged};
use super::{By, Call, FrontExtension};
use crate::cell_set::CellSet;
use crate::client::{CellRequest, escaped};
use crate::placement::moving;
use crate::splice::{quoted, splice};

/// Devices assigned in one commit.
const PLACES_PER_COMMIT: usize = 1_000;

/// The caller that registers a device.
pub(crate) enum Registrar {
    Provider(AppId),
    /// The device itself; its cell decides what it may do.
    Consumer(Resident),
}

impl FromRequestParts<Api> for Registrar {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match api.auth.key(bearer(&parts.headers)?, api.now()) {
            Ok(access) => {
                record_provider(parts, access.app);
                scoped(&access, Scope::Devices)?;
                Ok(Self::Provider(access.app))
            }
            Err(Refused::NotAKey) => Resident::from_request_parts(parts, api).await.map(Self::Consumer),
            Err(refused) => Err(refused.into()),
        }
    }
}

/// `POST /v1/devices`
pub(crate) async fn register(
    axum::Extension(front): FrontExtension,
    registrar: Registrar,
    Traced(trace): Traced,
    JsonBody(text): JsonBody,
) -> Result<Response, Problem> {
    let read = body::device(if text.is_empty() { b"{}" } else { &text })?;
    let (answer, app, device, residence) = match registrar {
        Registrar::Provider(app) => {
            let device = read.device.map_or_else(draw_device_id, Ok)?;
            let residence = front.placement.assign_one(app, device.clone(), read.registration.user).await?;
            let body = named(&text, &device)?;
            let cell = front.cells.get(residence.cell)?;
            let call = Call { front: front.clone(), app, trace };
            let request = CellRequest::post("/v1/devices", body);
            (call.send(cell, request).await?, app, device, residence)
        }
        Registrar::Consumer(resident) => {
            let request = CellRequest::post("/v1/devices", text.to_vec());
            // Completes the move of a device that is moving to another cell.
            let (answer, residence) =
                resident.send(&front.cells, |residence| residence.cell, request).await?;
            (answer, residence.app, resident.device, residence)
        }
    };
    if answer.status == StatusCode::CREATED {
        let elsewhere = front.placement.arrived(app, &[(device, residence)]).await?;
        if !elsewhere.is_empty() {
            return Err(moving());
        }
    }
    Ok(answer.into_response())
}

/// The body with the device's id.
fn named(text: &[u8], device: &DeviceId) -> Result<String, Problem> {
    splice(text, &[], &[("device", &quoted(device.as_str()))])
        .ok_or_else(|| Problem::internal("a validated body is not an object"))
}

/// A line of a batch.
enum Line {
    Wrong(Problem),
    /// Answered by this cell, in the order of its lines.
    For(CellNum),
}

/// `POST /v1/devices/batch`: each cell gets its own lines; a cell that is down fails only those.
pub(crate) async fn batch(By(call, _): By<Devices>, NdjsonBody(text): NdjsonBody) -> Result<Lines, Problem> {
    let lines = lines(&text)?;
    let mut answers = Lines::with_capacity(lines.len() * 2);
    for chunk in lines.chunks(PLACES_PER_COMMIT) {
        import(&call, chunk, &mut answers).await?;
    }
    Ok(answers)
}

async fn import(call: &Call, chunk: &[&[u8]], answers: &mut Lines) -> Result<(), Problem> {
    let read: Vec<Result<(DeviceId, Option<UserId>), Problem>> =
        chunk.iter().map(|line| registration(line)).collect();
    let good: Vec<_> = read.iter().flatten().cloned().collect();
    let mut places = call.front.placement.assign(call.app, &good).await?.into_iter();
    let mut bodies: BTreeMap<CellNum, String> = BTreeMap::new();
    let mut sent: BTreeMap<CellNum, Vec<(DeviceId, Residence)>> = BTreeMap::new();
    let mut order = Vec::with_capacity(chunk.len());
    for (line, read) in chunk.iter().zip(read) {
        let missing = || Problem::internal("the store assigned too few");
        let placed = read.and_then(|(device, _)| {
            let residence = places.next().ok_or_else(missing)??;
            Ok((named(line, &device)?, device, residence))
        });
        match placed {
            Ok((body, device, residence)) => {
                let text = bodies.entry(residence.cell).or_default();
                text.push_str(&body);
                text.push('\n');
                order.push(Line::For(residence.cell));
                sent.entry(residence.cell).or_default().push((device, residence));
            }
            Err(problem) => order.push(Line::Wrong(problem)),
        }
    }
    let mut lines_by_cell = send_lines(call, bodies, &sent).await?;
    for line in order {
        match line {
            Line::Wrong(problem) => answers.push_problem(&problem)?,
            Line::For(cell) => match lines_by_cell.get_mut(&cell).and_then(Iterator::next) {
                Some(Ok(line)) => answers.push(&line)?,
                Some(Err(problem)) => answers.push_problem(&problem)?,
                None => answers.push_problem(&Problem::internal("a cell answered too few lines"))?,
            },
        }
    }
    Ok(())
}

type CellLines = std::vec::IntoIter<Result<Box<RawValue>, Problem>>;

/// Sends each cell its lines. Returns one answer per line.
async fn send_lines(
    call: &Call,
    bodies: BTreeMap<CellNum, String>,
    sent: &BTreeMap<CellNum, Vec<(DeviceId, Residence)>>,
) -> Result<BTreeMap<CellNum, CellLines>, Problem> {
    let refused = |problem: Problem, num: CellNum| {
        let count = sent.get(&num).map_or(0, Vec::len);
        (num, vec![Err::<Box<RawValue>, _>(problem); count].into_iter())
    };
    let mut lines_by_cell = BTreeMap::new();
    let mut requests = Vec::new();
    for (num, body) in bodies {
        match call.front.cells.get(num) {
            Ok(cell) => requests.push((cell.clone(), CellRequest::post_lines("/v1/devices/batch", body))),
            Err(problem) => lines_by_cell.extend([refused(problem, num)]),
        }
    }
    for (cell, answer) in call.send_each(requests).await {
        let answer = answer.and_then(|answer| match answer.status {
            StatusCode::OK => Ok(answer),
            _ => Err(cell.away()),
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(problem) => {
                lines_by_cell.extend([refused(problem, cell.num)]);
                continue;
            }
        };
        let lines = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut lines: Vec<_> =
            lines.map(|line| serde_json::from_slice(line).map_err(Problem::internal)).collect();
        if let Some(sent) = sent.get(&cell.num) {
            let registered = sent.iter().zip(&lines).filter(|(_, line)| is_registered(line));
            let registered: Vec<_> = registered.map(|(one, _)| one.clone()).collect();
            let elsewhere = call.front.placement.arrived(call.app, &registered).await?;
            for ((device, _), line) in sent.iter().zip(&mut lines) {
                if elsewhere.contains(device) {
                    *line = Err(moving());
                }
            }
        }
        lines_by_cell.insert(cell.num, lines.into_iter());
    }
    Ok(lines_by_cell)
}

fn is_registered(line: &Result<Box<RawValue>, Problem>) -> bool {
    #[derive(Deserialize)]
    struct Answered {
        token: Option<String>,
    }
    let read = line.as_ref().ok().and_then(|line| serde_json::from_str::<Answered>(line.get()).ok());
    read.is_some_and(|line| line.token.is_some())
}

fn registration(line: &[u8]) -> Result<(DeviceId, Option<UserId>), Problem> {
    let body::Registering { device, registration } = body::device(line)?;
    Ok((device.map_or_else(draw_device_id, Ok)?, registration.user))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    user: Option<String>,
    platform: Option<String>,
    token: Option<String>,
    service: Option<String>,
    kind: Option<String>,
    seen: Option<String>,
    seen_after: Option<String>,
    seen_before: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct DevicesBody {
    devices: Vec<Value>,
    next: Option<String>,
}

/// `GET /v1/devices`: cell by cell; `next` names the cell and the position in its list.
pub(crate) async fn list(By(call, _): By<Read>, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let limit = page_limit(query.limit)?;
    let cells = &call.front.cells;
    let (first, mut after) = place(cells, query.after.as_deref().unwrap_or_default())?;
    let user = query.user.map(|user| UserId::parse(&user).map_err(|wrong| Problem::from(wrong).at("user")));
    let user = user.transpose()?;
    let homes = match &user {
        Some(user) => {
            let found = cells.store.cells_of_users(call.app, vec![user.clone()], cells.state.now()).await?;
            Some(found.into_iter().flatten().collect::<Vec<_>>())
        }
        None => None,
    };
    // The cells check them.
    let ListQuery { platform, token, service, kind, seen, seen_after, seen_before, .. } = query;
    let filters = [
        ("platform", platform),
        ("token", token),
        ("service", service),
        ("kind", kind),
        ("seen", seen),
        ("seen_after", seen_after),
        ("seen_before", seen_before),
    ];
    let filters: Vec<_> =
        filters.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect();
    let mut found = DevicesBody { devices: Vec::new(), next: None };
    for (index, cell) in cells.iter().enumerate().skip(first) {
        if homes.as_ref().is_some_and(|homes| !homes.contains(&cell.num)) {
            continue;
        }
        let mut path = format!("/v1/devices?limit={}&after={after}", limit - found.devices.len());
        if let Some(user) = &user {
            path += &format!("&user={}", escaped(user.as_str()));
        }
        for (name, value) in &filters {
            path += &format!("&{name}={}", escaped(value));
        }
        let answer = call.send(cell, CellRequest::get(path)).await?;
        if answer.status != StatusCode::OK {
            return Ok(answer.into_response());
        }
        let page: DevicesBody = answer.json()?;
        found.devices.extend(page.devices);
        after = String::new();
        if let Some(next) = page.next {
            found.next = Some(format!("{index}.{next}"));
            break;
        }
        if found.devices.len() >= limit {
            found.next = (index + 1 < cells.len()).then(|| format!("{}.", index + 1));
            break;
        }
    }
    Ok(json(StatusCode::OK, &found))
}

/// Parses `after` into the cell's index in the configuration and the position in its list.
fn place(cells: &CellSet, after: &str) -> Result<(usize, String), Problem> {
    if after.is_empty() {
        return Ok((0, String::new()));
    }
    let wrong = || Problem::parameter("after", "must be the `next` of an earlier page");
    let (index, inner) = after.split_once('.').ok_or_else(wrong)?;
    let index: usize = index.parse().map_err(|_| wrong())?;
    let plain = inner.bytes().all(|byte| byte.is_ascii_hexdigit());
    if index >= cells.len() || !plain || inner.len() > 16 {
        return Err(wrong());
    }
    Ok((index, inner.to_owned()))
}

/// `GET /v1/devices/{device}`, `GET /v1/devices/{device}/preferences`
pub(crate) async fn show(
    By(call, _): By<Read>,
    Path(device): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    at_cell_of_device(&call, &device, at(&uri)).await
}

/// `GET /v1/devices/{device}/topics/{topic}/permission`
pub(crate) async fn permission(
    By(call, _): By<Read>,
    Path((device, _)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Problem> {
    at_cell_of_device(&call, &device, at(&uri)).await
}

/// `POST /v1/devices/{device}/revoke`
pub(crate) async fn revoke(
    By(call, _): By<Devices>,
    Path(device): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    at_cell_of_device(&call, &device, CellRequest { method: Method::POST, ..at(&uri) }).await
}

/// Everything under `/v1/devices/{device}/push-tokens`, and changes of `/v1/devices/{device}/preferences`
pub(crate) async fn forward(
    By(call, _): By<Devices>,
    Path(segments): Path<Vec<String>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let device = segments.first().map_or("", String::as_str);
    at_cell_of_device(&call, device, unchanged(method, &uri, &headers, &body)).await
}

/// `DELETE /v1/devices/{device}`
pub(crate) async fn delete(
    By(call, _): By<Devices>,
    Path(device): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let request = CellRequest { method: Method::DELETE, ..at(&uri) };
    let response = at_cell_of_device(&call, &device, request).await?;
    if response.status().is_success() || response.status() == StatusCode::NOT_FOUND {
        call.front.cells.store.forget_device(call.app, &body::device_id(&device)?).await?;
    }
    Ok(response)
}

async fn at_cell_of_device(call: &Call, device: &str, request: CellRequest) -> Result<Response, Problem> {
    let cells = &call.front.cells;
    let found = cells.store.residences(&[call.app], &body::device_id(device)?).await?;
    let residence = found.first().ok_or_else(|| Problem::not_found("device"))?;
    Ok(call.send(cells.get(residence.present())?, request).await?.into_response())
}
