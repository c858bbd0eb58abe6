//! Publishes a message or a burst to all connected devices, in the target's protocol. The measurement starts
//! here, so publishing waits for the response only.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Setup};
use crate::http::{Client, Request};
use crate::partition::Partition;
use crate::payload::{Names, When, push_plain_data, push_topic_body};
use crate::target::{DATA, Publish};
use crate::{Error, clock};

/// For the publishing device.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// For a burst.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) enum Publisher {
    /// Noroshi's API, or a server with the same API.
    Topic {
        client: Client,
        key: String,
        topic: String,
    },
    Post {
        client: Client,
        path: String,
        headers: Vec<(String, String)>,
        body: String,
    },
    Device {
        engine: Box<Engine>,
        text: String,
    },
}

impl Publisher {
    pub(crate) fn topic(client: Client, setup: &Setup) -> Self {
        let topic = setup.topic.clone().unwrap_or_default();
        Self::Topic { client, key: setup.api_key.clone(), topic }
    }

    /// `setup` is that of the devices.
    pub(crate) fn foreign(publish: &Publish, setup: &Setup) -> Result<Self, Error> {
        Ok(match publish.clone() {
            Publish::Post { origin, path, headers, body } => {
                Self::Post { client: Client::new(origin)?, path, headers, body }
            }
            Publish::Frame(text) => Self::Device { engine: Box::new(connect(setup)?), text },
        })
    }

    /// Sends `messages` at once, each with `data_bytes` of data that contain `stamp_ns`.
    pub(crate) fn publish(
        &mut self,
        messages: u32,
        when: When,
        stamp_ns: u64,
        data_bytes: usize,
    ) -> Result<(), Error> {
        let mut data = Vec::new();
        push_plain_data(&mut data, stamp_ns, data_bytes);
        let data = String::from_utf8_lossy(&data);
        match self {
            Publisher::Topic { client, key, topic } => {
                let mut body = Vec::new();
                for _ in 0..messages {
                    push_topic_body(&mut body, topic, when, stamp_ns, data_bytes);
                    body.push(b'\n');
                }
                let request = match messages {
                    1 => Request::notification(key),
                    _ => Request::lines("/v1/notifications/batch", key),
                };
                client.expect_success(request, &body).map(drop)
            }
            Publisher::Post { client, path, headers, body } => {
                let body = body.replace(DATA, &data);
                (0..messages).try_for_each(|_| client.post(path, headers, body.as_bytes()).map(drop))
            }
            Publisher::Device { engine, text } => {
                // Handles other traffic, such as pings.
                engine.catch_up()?;
                let text = text.replace(DATA, &data);
                let deadline_ns = clock::now_ns() + clock::ns(SEND_TIMEOUT);
                (0..messages).try_for_each(|_| engine.publish(0, &text, deadline_ns))
            }
        }
    }
}

fn no_publisher(reason: &str) -> Error {
    let reasons = format!("The publishing connection failed: {reason}");
    Error::NotConnected { wanted: 1, connected: 0, seconds: 0.0, reasons, advice: String::new() }
}

/// An engine with a single device.
fn connect(setup: &Setup) -> Result<Engine, Error> {
    let prefix = format!("{}-publisher", setup.names.prefix);
    let dialect = setup.dialect.of_publisher();
    let setup = Setup { names: Names { prefix }, dialect, ..setup.clone() };
    let (mut engine, _) = Engine::new(Arc::new(setup), Partition { index: 0, count: 1 })?;
    let deadline_ns = clock::now_ns() + clock::ns(CONNECT_TIMEOUT);
    engine.open(0);
    while engine.ready == 0 {
        if let Some((_, ended)) = engine.ended.pop() {
            return Err(no_publisher(&ended.reason));
        }
        if clock::now_ns() >= deadline_ns {
            return Err(no_publisher("it did not become ready in time (--hello, --ready)"));
        }
        engine.turn(deadline_ns)?;
    }
    Ok(engine)
}
