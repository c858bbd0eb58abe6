//! The device's end of a connection, for `noroshi listen`: native WebSocket or SSE. Both give the same
//! JSON objects, so what is above them does not see which it is.

mod events;
mod websocket;

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::failure::Failure;

use events::Events;
use websocket::WebSocket;

/// Until the server has told how often it pings; longer than any interval it may be set to.
const QUIET_MAX: Duration = Duration::from_secs(2 * 3_600);

pub(crate) enum Connection {
    WebSocket(WebSocket),
    Events(Box<(Events, Client)>),
}

impl Connection {
    pub(crate) async fn websocket(client: &Client) -> Result<Self, Failure> {
        WebSocket::open(client).await.map(Connection::WebSocket)
    }

    /// `topics` are those of this connection; `last_event_id` resumes behind a message.
    pub(crate) async fn events(
        client: Client,
        topics: &[String],
        last_event_id: Option<&str>,
    ) -> Result<Self, Failure> {
        let events = Events::open(&client, topics, last_event_id).await?;
        Ok(Connection::Events(Box::new((events, client))))
    }

    /// The next object as it came; none when the connection has ended. Not cancel-safe for SSE acks in
    /// progress, but this is never called while one is.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Connection::WebSocket(socket) => socket.next().await,
            Connection::Events(open) => open.0.next().await,
        }
    }

    /// The server pings this often: a connection that is silent for twice as long is dead.
    pub(crate) fn expect_pings(&mut self, every: Duration) {
        let quiet_max = every * 2 + Duration::from_secs(10);
        match self {
            Connection::WebSocket(socket) => socket.quiet_max = quiet_max,
            Connection::Events(open) => open.0.quiet_max = quiet_max,
        }
    }

    /// What a WebSocket client may say; SSE has no such way.
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

    /// Says good-bye and waits until the server has read everything before it.
    pub(crate) async fn close(self) {
        if let Connection::WebSocket(socket) = self {
            socket.close().await;
        }
    }
}
