//! Requests of a device about itself: the front forwards them to the device's cell with the device's own token. The
//! cell verifies the token.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use noroshi_api::parts::{self, JsonBody, bearer, named_app};
use noroshi_api::{Api, Code, Problem};
use noroshi_auth::{ClientNetwork, Credential, Refused, unverified_device};
use noroshi_store::cells::{CellNum, Residence};
use noroshi_types::{AppId, AppName, DeviceId, UserId};

use super::FrontExtension;
use crate::cell_set::CellSet;
use crate::client::{self, CellRequest, CellResponse};
use crate::front::Front;

/// A device as its credential names it, and where it may be assigned.
///
/// Only the cell that issued a device token can verify it, and the token names the app by the cell's own number. Each
/// cell reports its numbers to the front, so the front looks up exactly the device that the token would name in each
/// cell, and never a device of another app with the same id. The front verifies app JWTs itself.
pub(crate) struct Resident {
    pub(crate) device: DeviceId,
    bearer: HeaderValue,
    homes: Vec<Home>,
    /// The app of a JWT, which the cell needs to find the key.
    app: Option<AppName>,
    /// The device may belong to a cell that has not reported its numbers yet.
    is_unsure: bool,
}

struct Home {
    residence: Residence,
    /// The cell that would have issued the token. None: every cell accepts the app's JWT.
    issuer: Option<CellNum>,
}

/// Selects a cell of a residence.
pub(crate) type Place = fn(&Residence) -> CellNum;

impl FromRequestParts<Api> for Resident {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let front = super::front(parts)?;
        let token = bearer(&parts.headers)?;
        let bearer = client::bearer(token)?;
        if let Some((number, device)) = unverified_device(token) {
            let homes = homes(&front.cells, number, &device).await?;
            let is_unsure = front.cells.misses_app_numbers();
            return Ok(Self { device, bearer, homes, app: None, is_unsure });
        }
        let app = named_app(&parts.uri, &parts.headers, api);
        let identity = match api.auth.key(token, api.now()) {
            Ok(_) => return Err(Refused::NotAToken.into()),
            Err(_) => {
                let credential = Credential { token, app: app.as_deref(), client: parts::client(parts) };
                let identity = api.auth.authenticate(credential, api.now()).await;
                identity.map_err(|refused| Problem::failed_log_in(token, refused))?
            }
        };
        let app = Some(front.cells.app_name(identity.app)?);
        let residence = residence_of(&front, identity.app, &identity.device, identity.user).await?;
        let homes = vec![Home { residence, issuer: None }];
        Ok(Self { device: identity.device, bearer, homes, app, is_unsure: false })
    }
}

/// The device's residence for each cell that may have issued a token with this app number. At most one lookup per cell,
/// all in one read.
async fn homes(cells: &CellSet, number: AppId, device: &DeviceId) -> Result<Vec<Home>, Problem> {
    let candidates: Vec<(CellNum, AppId)> =
        cells.iter().filter_map(|cell| Some((cell.num, cell.app_of(number)?))).collect();
    let apps: Vec<AppId> = candidates.iter().map(|(_, app)| *app).collect();
    let residences = cells.store.residences(&apps, device).await?;
    let home = |(cell, app)| {
        let residence = residences.iter().find(|residence| residence.app == app)?;
        let knows_it = residence.present() == cell || residence.cell == cell;
        knows_it.then(|| Home { residence: residence.clone(), issuer: Some(cell) })
    };
    Ok(candidates.into_iter().filter_map(home).collect())
}

/// The residence of a device token's device, if it is unambiguous.
pub(super) async fn only_home(
    front: &Front,
    token: &str,
    app: Option<&str>,
    client: Option<ClientNetwork>,
) -> Option<Residence> {
    if let Some((number, device)) = unverified_device(token) {
        let mut homes = homes(&front.cells, number, &device).await.ok()?;
        return homes.pop().filter(|_| homes.is_empty()).map(|home| home.residence);
    }
    let credential = Credential { token, app, client };
    let identity = front.cells.state.auth.authenticate(credential, front.cells.state.now()).await.ok()?;
    front.cells.store.residences(&[identity.app], &identity.device).await.ok()?.pop()
}

/// Assigns a cell to the device of an app JWT, the cell of its user.
async fn residence_of(
    front: &Front,
    app: AppId,
    device: &DeviceId,
    user: Option<UserId>,
) -> Result<Residence, Problem> {
    let found = front.cells.store.residences(&[app], device).await?.pop();
    let home = match &user {
        Some(user) => {
            let cells =
                front.cells.store.cells_of_users(app, vec![user.clone()], front.cells.state.now()).await?;
            cells.into_iter().flatten().next()
        }
        None => None,
    };
    match found {
        Some(residence) if user.is_none() || home == Some(residence.cell) => Ok(residence),
        _ => front.placement.assign_one(app, device.clone(), user).await,
    }
}

impl Resident {
    /// The answer of the cell that accepts the credential, and the device's residence. Any answer but 401 comes from
    /// that cell: a cell rejects a token that it did not sign before it looks at anything else.
    pub(crate) async fn send(
        &self,
        cells: &CellSet,
        place: Place,
        request: CellRequest,
    ) -> Result<(CellResponse, Residence), Problem> {
        let path = match &self.app {
            Some(app) => with_app(&request.path, app),
            None => request.path.clone(),
        };
        let request = CellRequest { bearer: self.bearer.clone(), path, ..request };
        let mut refused = None;
        let mut away = None;
        for Home { residence, issuer } in &self.homes {
            let num = place(residence);
            if issuer.is_some_and(|issuer| issuer != num) {
                continue;
            }
            // Another cell may have issued the token.
            match cells.get(num)?.send_if_up(request.clone()).await {
                Ok(answer) if answer.status == StatusCode::UNAUTHORIZED => {
                    refused = Some((answer, residence.clone()));
                }
                Ok(answer) => return Ok((answer, residence.clone())),
                Err(problem) => away = Some(problem),
            }
        }
        match (away, refused) {
            (Some(problem), _) => Err(problem),
            // A client discards a token after 401, so this must not be one.
            (None, _) if self.is_unsure => Err(Problem::new(
                Code::CellUnavailable,
                "unknown device; not every cell has reported its apps to the front yet, try again",
            )),
            (None, Some(refused)) => Ok(refused),
            (None, None) => Err(Problem::new(Code::Unauthorized, "unknown device")),
        }
    }
}

/// The path with the app in its query: the cell verifies the JWT as the front did.
fn with_app(path: &str, app: &AppName) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut whole = format!("{path}?app={app}");
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("app=")) {
        whole.push('&');
        whole.push_str(pair);
    }
    whole
}

/// Everything under `/v1/me` except its deletion.
pub(crate) async fn forward(
    axum::Extension(front): FrontExtension,
    resident: Resident,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let request = unchanged(method, &uri, &headers, &body);
    Ok(resident.send(&front.cells, Residence::present, request).await?.0.into_response())
}

/// `DELETE /v1/me`
pub(crate) async fn delete(
    axum::Extension(front): FrontExtension,
    resident: Resident,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let request = unchanged(Method::DELETE, &uri, &headers, b"");
    let (answer, residence) = resident.send(&front.cells, Residence::present, request).await?;
    if answer.status.is_success() {
        front.cells.store.forget_device(residence.app, &resident.device).await?;
    }
    Ok(answer.into_response())
}

pub(super) fn unchanged(method: Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> CellRequest {
    let content_type = headers.get(header::CONTENT_TYPE).cloned();
    CellRequest { method, content_type, body: Bytes::copy_from_slice(body), ..at(uri) }
}

/// `GET` of the same path and query.
pub(super) fn at(uri: &Uri) -> CellRequest {
    CellRequest::get(uri.path_and_query().map_or("/", |path| path.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_gets_the_app_of_a_jwt() {
        let app = AppName::parse("shop").expect("a name");
        let check = |path: &str, expected: &str| assert_eq!(with_app(path, &app), expected);
        check("/v1/me", "/v1/me?app=shop");
        check("/v1/me?app=other", "/v1/me?app=shop");
        check("/v1/me/inbox?limit=2&app=shop&after=x", "/v1/me/inbox?app=shop&limit=2&after=x");
    }
}
