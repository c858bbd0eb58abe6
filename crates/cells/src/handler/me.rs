//! What a device does for itself: handed on to its cell as it is, with the device's own token. Whether the token is
//! good is the cell's to say.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use noroshi_api::parts::{JsonBody, bearer, client};
use noroshi_api::{Api, Code, Problem};
use noroshi_auth::{Credential, Refused, device_named};
use noroshi_store::cells::Residence;
use noroshi_types::{DeviceId, UserId};

use super::Fronted;
use crate::cell::Cell;
use crate::client::{Answer, Ask};
use crate::front::Front;

/// A device by its credential, and where it may live: in more than one cell only where devices of several apps have
/// its id, since a device token names its app in its cell's own words.
pub(crate) struct Resident {
    pub(crate) device: DeviceId,
    pub(crate) residences: Vec<Residence>,
    bearer: HeaderValue,
}

impl FromRequestParts<Api> for Resident {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let front =
            parts.extensions.get::<Arc<Front>>().ok_or_else(|| Problem::internal("no front"))?.clone();
        let token = bearer(&parts.headers)?;
        let bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(Problem::internal)?;
        if let Some(device) = device_named(token) {
            let residences = front.store.residences(None, &device).await?;
            return match residences.is_empty() {
                true => Err(Problem::new(Code::Unauthorized, "the device is not known here")),
                false => Ok(Self { device, residences, bearer }),
            };
        }
        // An app's name needs no escapes, so the query is only cut.
        let app = parts.uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("app="));
        let identity = match api.auth.key(token) {
            Ok(_) => return Err(Refused::NotAToken.into()),
            Err(_) => {
                let credential = Credential { token, app, client: client(parts) };
                api.auth.authenticate(credential, api.now()).await?
            }
        };
        let residence = at_home(&front, identity.app, &identity.device, identity.user).await?;
        Ok(Self { device: identity.device, residences: vec![residence], bearer })
    }
}

/// An app JWT makes its device where there is none, and takes it to its user.
async fn at_home(
    front: &Front,
    app: noroshi_types::AppId,
    device: &DeviceId,
    user: Option<UserId>,
) -> Result<Residence, Problem> {
    let found = front.store.residences(Some(app), device).await?.pop();
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
    /// The cell's answer to the device itself.
    pub(crate) async fn ask(&self, front: &Front, ask: Ask) -> Result<(Answer, Residence), Problem> {
        let mut last = None;
        for residence in &self.residences {
            let cell: &Arc<Cell> = front.cell(residence.present())?;
            let answer = cell.request(Ask { bearer: self.bearer.clone(), ..ask.clone() }).await?;
            let fits = answer.status != StatusCode::UNAUTHORIZED;
            last = Some((answer, residence.clone()));
            if fits {
                break;
            }
        }
        last.ok_or_else(|| Problem::new(Code::Unauthorized, "the device is not known here"))
    }
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
    Ok(resident.ask(&front, ask).await?.0.into_response())
}

/// `DELETE /v1/me`
pub(crate) async fn delete(
    axum::Extension(front): Fronted,
    resident: Resident,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let ask = as_it_came(&front, Method::DELETE, &uri, &headers, b"");
    let (answer, residence) = resident.ask(&front, ask).await?;
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
