//! Users, who exist by what their devices and their app's JWTs say.

use axum::extract::State as Shared;
use axum::response::Response;
use http::StatusCode;
use noroshi_types::UserId;
use serde::Serialize;

use crate::access::{Devices, Provider};
use crate::error::Problem;
use crate::extract::Path;
use crate::respond;
use crate::state::Api;

#[derive(Serialize)]
struct RevokedBody {
    user: String,
    devices: usize,
}

/// `POST /v1/users/{user}/revoke`: also of a user who is not known (any more), whose JWTs may still be.
pub(crate) async fn revoke(
    Shared(api): Shared<Api>,
    provider: Provider<Devices>,
    Path(user): Path<String>,
) -> Result<Response, Problem> {
    let user = user_id(&user)?;
    let devices = api.delivery.revoke_user(provider.app, &user).await?;
    Ok(respond::json(StatusCode::OK, &RevokedBody { user: user.to_string(), devices }))
}

/// A user in a path.
pub fn user_id(text: &str) -> Result<UserId, Problem> {
    UserId::parse(text).map_err(|invalid| Problem::from(invalid).at("user"))
}
