//! `POST /v1/presence`: which users are online, from the memory of the nodes.

use std::collections::BTreeMap;

use noroshi_delivery::Session;
use noroshi_types::Presence;
use serde::Serialize;

use crate::body;
use crate::request::access::{Provider, Read};
use crate::request::body::JsonBody;
use crate::respond::{self, Answer};

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
pub(crate) async fn query(provider: Provider<Read>, JsonBody(body): JsonBody) -> Answer {
    let users = body::presence_query(&body)?;
    let sessions = provider.delivery.sessions.of_users(provider.app, &users).await;
    let users = users.iter().zip(&sessions).map(|(user, sessions)| (user.as_str(), user_body(sessions)));
    respond::field("users", users.collect::<BTreeMap<_, _>>())
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
