//! Device connections of `noroshi listen`: native WebSocket or SSE. Both yield the same JSON objects, so callers need not
//! distinguish them.

mod events;
mod websocket;

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::failure::Failure;

use events::Events;
use websocket::WebSocket;

/// Used until the server reports its ping interval. Longer than any configurable interval.
const QUIET_MAX: Duration = Duration::from_secs(2 * 3_600);

pub(crate) enum Connection {
    WebSocket(WebSocket),
    Events(Box<(Events, Client)>),
}

impl Connection {
    pub(crate) async fn websocket(client: &Client) -> Result<Self, Failure> {
        WebSocket::open(client).await.map(Connection::WebSocket)
    }

    /// `topics`: subscriptions of this connection. `last_event_id`: resumes after this message.
    pub(crate) async fn events(
        client: Client,
        topics: &[String],
        last_event_id: Option<&str>,
    ) -> Result<Self, Failure> {
        let events = Events::open(&client, topics, last_event_id).await?;
        Ok(Connection::Events(Box::new((events, client))))
    }

    /// The next object, unchanged. None when the connection has ended. Not cancel-safe during an SSE ack, but never called then.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Connection::WebSocket(socket) => socket.next().await,
            Connection::Events(open) => open.0.next().await,
        }
    }

    /// The server's ping interval. A connection that is silent for twice as long is dead.
    pub(crate) fn expect_pings(&mut self, every: Duration) {
        let quiet_max = every * 2 + Duration::from_secs(10);
        match self {
            Connection::WebSocket(socket) => socket.quiet_max = quiet_max,
            Connection::Events(open) => open.0.quiet_max = quiet_max,
        }
    }

    /// Sends a frame on a WebSocket. SSE cannot send.
    pub(crate) async fn say(&mut self, frame: &Value) -> Result<(), Failure> {
        match self {
            Connection::WebSocket(socket) => socket.send(frame).await,
            Connection::Events(..) => Ok(()),
        }
    }

    pub(crate) async fn ack(&mut self, id: &str) -> Result<(), Failure> {
        match self {
            Connection::WebSocket(socket) => socket.send(&json!({"t": "ack", "ids": [id]})).await,
            Connection::Events(open) => {
                open.1.post("/v1/me/inbox/ack", &json!({"ids": [id]})).await.map(drop)
            }
        }
    }

    /// Sends a close frame and waits until the server has read everything before it.
    pub(crate) async fn close(self) {
        if let Connection::WebSocket(socket) = self {
            socket.close().await;
        }
    }
}
