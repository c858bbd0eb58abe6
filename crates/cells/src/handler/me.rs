//! What a device does for itself: the front passes it to the device's cell with the device's own token. The cell decides
//! whether the token is good.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use noroshi_api::parts::{JsonBody, bearer, client, named_app};
use noroshi_api::{Api, Code, Problem};
use noroshi_auth::{ClientNetwork, Credential, Refused, device_named};
use noroshi_store::cells::{CellNum, Residence};
use noroshi_types::{AppId, AppName, DeviceId, UserId};

use super::Fronted;
use crate::client::{Answer, Ask};
use crate::front::Front;

/// A device by its credential, and where it may live.
///
/// A device token is its cell's: only that cell can verify it, and it names its app by the cell's own number. Each cell
/// told the front its numbers over its admin address, so the front looks for exactly the device that the token would be
/// of in each cell, and never for devices of other apps with the same id. An app JWT is verified here.
pub(crate) struct Resident {
    pub(crate) device: DeviceId,
    bearer: HeaderValue,
    homes: Vec<Home>,
    /// The app of a JWT: the cell has to look for its key in this app too.
    app: Option<AppName>,
    /// The device may live in a cell that has not told its numbers yet.
    is_unsure: bool,
}

struct Home {
    residence: Residence,
    /// The cell whose token it would be. None: its app's JWT is good in every cell.
    issuer: Option<CellNum>,
}

/// Which cell of a residence is asked.
pub(crate) type Place = fn(&Residence) -> CellNum;

impl FromRequestParts<Api> for Resident {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let front =
            parts.extensions.get::<Arc<Front>>().ok_or_else(|| Problem::internal("no front"))?.clone();
        let token = bearer(&parts.headers)?;
        let bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(Problem::internal)?;
        if let Some((number, device)) = device_named(token) {
            let homes = homes(&front, number, &device).await?;
            let is_unsure = front.is_unsure();
            return Ok(Self { device, bearer, homes, app: None, is_unsure });
        }
        let app = named_app(&parts.uri, &parts.headers, api);
        let identity = match api.auth.key(token) {
            Ok(_) => return Err(Refused::NotAToken.into()),
            Err(_) => {
                let credential = Credential { token, app: app.as_deref(), client: client(parts) };
                let identity = api.auth.authenticate(credential, api.now()).await;
                identity.map_err(|refused| Problem::failed_log_in(token, refused))?
            }
        };
        let app = Some(front.app_name(identity.app)?);
        let residence = at_home(&front, identity.app, &identity.device, identity.user).await?;
        let homes = vec![Home { residence, issuer: None }];
        Ok(Self { device: identity.device, bearer, homes, app, is_unsure: false })
    }
}

/// Where the device lives, for each cell that may have issued a token with this number of an app. At most one look-up
/// for each cell, all in one read.
async fn homes(front: &Front, number: AppId, device: &DeviceId) -> Result<Vec<Home>, Problem> {
    let meant: Vec<(CellNum, AppId)> =
        front.cells.iter().filter_map(|cell| Some((cell.num, cell.app_of(number)?))).collect();
    let apps: Vec<AppId> = meant.iter().map(|(_, app)| *app).collect();
    let residences = front.store.residences(&apps, device).await?;
    let home = |(cell, app)| {
        let residence = residences.iter().find(|residence| residence.app == app)?;
        let knows_it = residence.present() == cell || residence.cell == cell;
        knows_it.then(|| Home { residence: residence.clone(), issuer: Some(cell) })
    };
    Ok(meant.into_iter().filter_map(home).collect())
}

/// Of a device token, the cell where its device lives, if only one comes into question.
pub(super) async fn only_home(
    front: &Front,
    token: &str,
    app: Option<&str>,
    client: Option<ClientNetwork>,
) -> Option<Residence> {
    if let Some((number, device)) = device_named(token) {
        let mut homes = homes(front, number, &device).await.ok()?;
        return homes.pop().filter(|_| homes.is_empty()).map(|home| home.residence);
    }
    let credential = Credential { token, app, client };
    let identity = front.state.auth.authenticate(credential, front.state.now()).await.ok()?;
    front.store.residences(&[identity.app], &identity.device).await.ok()?.pop()
}

/// An app JWT makes its device where there is none, and takes it to its user.
async fn at_home(
    front: &Front,
    app: AppId,
    device: &DeviceId,
    user: Option<UserId>,
) -> Result<Residence, Problem> {
    let found = front.store.residences(&[app], device).await?.pop();
    let home = match &user {
        Some(user) => {
            let cells = front.store.cells_of_users(app, vec![user.clone()], front.state.now()).await?;
            cells.into_iter().flatten().next()
        }
        None => None,
    };
    match found {
        Some(residence) if user.is_none() || home == Some(residence.cell) => Ok(residence),
        _ => front.assign_one(app, device.clone(), user).await,
    }
}

impl Resident {
    /// The answer of the cell that accepts the credential, and where its device lives. Any answer but 401 is of that
    /// cell: a cell refuses tokens that it did not sign before it looks at anything else.
    pub(crate) async fn ask(
        &self,
        front: &Front,
        place: Place,
        ask: Ask,
    ) -> Result<(Answer, Residence), Problem> {
        let path = match &self.app {
            Some(app) => with_app(&ask.path, app),
            None => ask.path.clone(),
        };
        let ask = Ask { bearer: self.bearer.clone(), path, ..ask };
        let mut refused = None;
        let mut away = None;
        for Home { residence, issuer } in &self.homes {
            let num = place(residence);
            if issuer.is_some_and(|issuer| issuer != num) {
                continue;
            }
            // Another one may be the token's, and answer.
            match front.cell(num)?.request(ask.clone()).await {
                Ok(answer) if answer.status == StatusCode::UNAUTHORIZED => {
                    refused = Some((answer, residence.clone()));
                }
                Ok(answer) => return Ok((answer, residence.clone())),
                Err(problem) => away = Some(problem),
            }
        }
        match (away, refused) {
            (Some(problem), _) => Err(problem),
            // A client gives up a token that is refused for good.
            (None, _) if self.is_unsure => Err(Problem::new(
                Code::CellUnavailable,
                "the device is not known here, but not every cell has told its apps to the front; try again",
            )),
            (None, Some(refused)) => Ok(refused),
            (None, None) => Err(Problem::new(Code::Unauthorized, "the device is not known here")),
        }
    }
}

/// The same path with the app in its query: the cell has to verify a JWT as the front did.
fn with_app(path: &str, app: &AppName) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut whole = format!("{path}?app={app}");
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("app=")) {
        whole.push('&');
        whole.push_str(pair);
    }
    whole
}

/// Everything under `/v1/me` but its end.
pub(crate) async fn hand_on(
    axum::Extension(front): Fronted,
    resident: Resident,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let ask = as_it_came(&front, method, &uri, &headers, &body);
    Ok(resident.ask(&front, Residence::present, ask).await?.0.into_response())
}

/// `DELETE /v1/me`
pub(crate) async fn delete(
    axum::Extension(front): Fronted,
    resident: Resident,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let ask = as_it_came(&front, Method::DELETE, &uri, &headers, b"");
    let (answer, residence) = resident.ask(&front, Residence::present, ask).await?;
    if answer.status.is_success() {
        front.store.forget_device(residence.app, &resident.device).await?;
    }
    Ok(answer.into_response())
}

fn as_it_came(front: &Front, method: Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Ask {
    Ask {
        method,
        path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        bearer: super::no_key(),
        trace: None,
        content_type: headers.get(header::CONTENT_TYPE).cloned(),
        body: Bytes::copy_from_slice(body),
        timeout: front.timeout(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_told_the_app_of_a_jwt() {
        let app = AppName::parse("shop").expect("a name");
        let check = |path: &str, expected: &str| assert_eq!(with_app(path, &app), expected);
        check("/v1/me", "/v1/me?app=shop");
        check("/v1/me?app=other", "/v1/me?app=shop");
        check("/v1/me/inbox?limit=2&app=shop&after=x", "/v1/me/inbox?app=shop&limit=2&after=x");
    }
}
