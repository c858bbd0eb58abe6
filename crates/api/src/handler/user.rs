//! Users. They exist only in devices and app JWTs.

use noroshi_types::UserId;
use serde::Serialize;

use crate::error::Problem;
use crate::request::access::{Devices, Provider};
use crate::request::parameter::Path;
use crate::respond::{self, Answer};

#[derive(Serialize)]
struct RevokedBody {
    user: String,
    devices: usize,
}

/// `POST /v1/users/{user}/revoke`: also for an unknown user, who may still have valid JWTs.
pub(crate) async fn revoke(provider: Provider<Devices>, Path(user): Path<String>) -> Answer {
    let user = user_id(&user)?;
    let devices = provider.delivery.devices.revoke_user(provider.app, &user).await?;
    respond::ok(&RevokedBody { user: user.to_string(), devices })
}

/// A `user` parameter of a path.
pub fn user_id(text: &str) -> Result<UserId, Problem> {
    UserId::parse(text).map_err(|invalid| Problem::from(invalid).at("user"))
}
