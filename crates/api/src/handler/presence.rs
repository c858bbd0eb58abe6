//! `POST /v1/presence`: which users are online, from the memory of the nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use http::StatusCode;
use noroshi_delivery::Delivery;
use noroshi_delivery::Session;
use noroshi_types::Presence;
use serde::Serialize;

use crate::body;
use crate::error::Problem;
use crate::request::access::{Provider, Read};
use crate::request::body::JsonBody;
use crate::respond;

#[derive(Serialize)]
struct PresenceBody<'a> {
    users: BTreeMap<&'a str, UserBody>,
}

#[derive(Serialize)]
struct UserBody {
    presence: &'static str,
    devices: Vec<DeviceBody>,
}

#[derive(Serialize)]
struct DeviceBody {
    device: String,
    presence: &'static str,
}

/// An unknown user is offline: the response does not reveal whether a user exists.
pub(crate) async fn query(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let users = body::presence_query(&body)?;
    let sessions = delivery.sessions.of_users(provider.app, &users).await;
    let users =
        users.iter().zip(&sessions).map(|(user, sessions)| (user.as_str(), user_body(sessions))).collect();
    Ok(respond::json(StatusCode::OK, &PresenceBody { users }))
}

fn user_body(sessions: &[Session]) -> UserBody {
    let device = |session: &Session| DeviceBody {
        device: session.device.to_string(),
        presence: session.presence.as_str(),
    };
    UserBody {
        presence: sessions.iter().map(|session| session.presence).max().unwrap_or(Presence::Offline).as_str(),
        devices: sessions.iter().map(device).collect(),
    }
}
