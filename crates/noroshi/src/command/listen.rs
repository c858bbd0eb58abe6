//! `noroshi listen`: a device on the terminal. Registers a device if no token is given, prints and acknowledges notifications, and
//! reconnects after the delay that the server requests.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use noroshi_protocol::native::{Msg, ServerFrame, parse_server_frame};
use noroshi_types::CloseReason;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::client::{Client, Connect};
use crate::failure::Failure;
use crate::folder::Secret;
use crate::input::present;
use crate::output;
use crate::realtime::Connection;

const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Maximum delay that a server can request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);
/// A connection that lasts this long resets the backoff.
const SETTLED: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Device token or app JWT [default: register a device with the API key]
    #[arg(long, env = "NOROSHI_TOKEN", hide_env_values = true, conflicts_with_all = ["user", "device"])]
    token: Option<Secret>,
    /// Register as a device of this user
    #[arg(long)]
    user: Option<String>,
    /// Id of the registered device [default: cli-USER, which keeps its inbox]
    #[arg(long)]
    device: Option<String>,
    /// Topics to subscribe to on this connection, comma-separated
    #[arg(long, value_delimiter = ',')]
    topics: Vec<String>,
    /// Use server-sent events instead of WebSocket
    #[arg(long)]
    sse: bool,
    /// Do not acknowledge notifications: they are delivered again on the next connection
    #[arg(long)]
    no_ack: bool,
    /// Report the device as idle
    #[arg(long, conflicts_with = "sse")]
    idle: bool,
    /// Stop after this many notifications
    #[arg(long)]
    count: Option<u64>,
    /// Stop after this time, such as 10s; exit code 1 if --count was not reached
    #[arg(long, value_parser = super::duration)]
    timeout: Option<Duration>,
    /// Stop instead of reconnecting
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

/// How one connection ended.
enum Ended {
    /// `--count` is reached.
    Enough,
    /// Retry, after this delay if the server requested one.
    Again(Option<Duration>),
}

/// State that outlives connections.
#[derive(Default)]
struct Progress {
    heard: u64,
    /// Position of each session topic: epoch and offset.
    positions: BTreeMap<String, (String, u64)>,
    last_event_id: Option<String>,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let mut progress = Progress::default();
        let listening = self.listen(&mut progress);
        let Some(timeout) = self.timeout else { return listening.await.map(|()| ExitCode::SUCCESS) };
        match tokio::time::timeout(timeout, listening).await {
            Ok(result) => result.map(|()| ExitCode::SUCCESS),
            Err(_) => match self.count {
                Some(count) => {
                    Err(Failure::failed(format!("{} of {count} notifications in time", progress.heard)))
                }
                None => Ok(ExitCode::SUCCESS),
            },
        }
    }

    async fn listen(&self, progress: &mut Progress) -> Result<(), Failure> {
        let mut client = self.device_client().await?;
        let mut backoff = BACKOFF_MIN;
        loop {
            let since = Instant::now();
            let delay = match self.connection(&client, progress).await {
                Ok(Ended::Enough) => return Ok(()),
                Ok(Ended::Again(delay)) => delay,
                // An overloaded or unreachable server may recover.
                Err(failure @ (Failure::Unreachable { .. } | Failure::Answered { status: 500.., .. })) => {
                    if self.once {
                        return Err(failure);
                    }
                    eprintln!("{failure}");
                    match failure {
                        Failure::Answered { retry_after: Some(delay), .. } => {
                            Some(reconnect_delay(delay, backoff))
                        }
                        _ => None,
                    }
                }
                Err(failure) => return Err(failure),
            };
            if self.once {
                return Err(Failure::failed("the connection ended"));
            }
            if since.elapsed() > SETTLED {
                backoff = BACKOFF_MIN;
            }
            let delay = delay.unwrap_or(backoff);
            backoff = (backoff * 2).min(BACKOFF_MAX);
            eprintln!("reconnecting in {:.1} s", delay.as_secs_f64());
            tokio::time::sleep(delay).await;
            if self.token.is_none() {
                // The gateway may be gone, and the API may return another one.
                client = self.device_client().await.unwrap_or(client);
            }
        }
    }

    /// A client with a device token. Registers the device if none was given.
    async fn device_client(&self) -> Result<Client, Failure> {
        if let Some(token) = &self.token {
            return self.connect.client_with(token);
        }
        let Some(device) = self.device.clone().or_else(|| Some(format!("cli-{}", self.user.as_ref()?)))
        else {
            return Err(Failure::Usage("--user, --device or --token is required".to_owned()));
        };
        let mut body = present(&[("user", &self.user)]);
        body.extend([("device".to_owned(), json!(device)), ("platform".to_owned(), json!("other"))]);
        let client = self.connect.client()?;
        let answer = client.post("/v1/devices", &body.into()).await?;
        let token = answer.get("token").and_then(Value::as_str);
        let token = token.ok_or_else(|| Failure::failed("the server's response contains no token"))?;
        let client = client.with_bearer(token)?;
        // In a cluster, the API returns the gateway for the device.
        let events = answer["connect"]["sse"].as_str();
        Ok(events
            .and_then(|url| url.strip_suffix("/v1/events"))
            .map_or(client.clone(), |base| client.at(base)))
    }

    async fn connection(&self, client: &Client, progress: &mut Progress) -> Result<Ended, Failure> {
        let mut connection = match self.sse {
            true => {
                let client = client.clone();
                Connection::events(client, &self.topics, progress.last_event_id.as_deref()).await?
            }
            false => Connection::websocket(client).await?,
        };
        let mut delay = None;
        while let Some(text) = connection.next().await? {
            let frame = parse_server_frame(&text).map_err(|error| Failure::failed(error.to_string()))?;
            match frame {
                ServerFrame::Ready { device, ping_s, .. } => {
                    connection.expect_pings(Duration::from_secs(ping_s));
                    eprintln!("listening as device {}", output::clean(&device));
                    self.introduce(&mut connection, progress).await?;
                }
                ServerFrame::Msg(message) => {
                    self.receive(&text, &message, progress)?;
                    if message.ack && !self.no_ack {
                        connection.ack(&message.id).await?;
                    }
                    if self.count.is_some_and(|count| progress.heard >= count) {
                        connection.close().await;
                        return Ok(Ended::Enough);
                    }
                }
                ServerFrame::Items { event, unread } => {
                    eprintln!("items {}: {unread} unread", output::clean(&event));
                }
                ServerFrame::Recovered { topic, complete } => {
                    let what = if complete { "recovered" } else { "recovered, but messages were missed" };
                    eprintln!("{}: {what}", output::clean(&topic));
                }
                // Caused by a frame that this client would send again.
                ServerFrame::Error { code, message } => {
                    let (message, code) = (output::clean(&message), output::clean(&code));
                    return Err(Failure::failed(format!("the server refused: {message} ({code})")));
                }
                ServerFrame::Close { reason, reconnect: true, after_ms } => {
                    eprintln!("the server closed: {}", explain(&reason));
                    delay = Some(Duration::from_millis(after_ms));
                }
                ServerFrame::Close { reason, reconnect: false, .. } => return Err(closed(&reason)),
                ServerFrame::Pong | ServerFrame::Unknown(_) => {}
            }
        }
        Ok(Ended::Again(delay))
    }

    /// Sends the state of this connection: topics with positions, and presence.
    async fn introduce(&self, connection: &mut Connection, progress: &Progress) -> Result<(), Failure> {
        if !self.topics.is_empty() {
            let position = |(topic, (epoch, offset)): (&String, &(String, u64))| {
                (topic.clone(), json!({"epoch": epoch, "offset": offset}))
            };
            let since: Map<String, Value> = progress.positions.iter().map(position).collect();
            let mut frame = json!({"t": "sub", "topics": self.topics});
            if !since.is_empty() {
                frame["since"] = since.into();
            }
            connection.say(&frame).await?;
        }
        if self.idle {
            connection.say(&json!({"t": "presence", "state": "idle"})).await?;
        }
        Ok(())
    }

    fn receive(&self, text: &str, message: &Msg<'_>, progress: &mut Progress) -> Result<(), Failure> {
        progress.heard += 1;
        if let (Some(topic), Some(epoch), Some(offset)) = (&message.topic, &message.epoch, message.offset) {
            // Only session topics; the server stores durable ones.
            if self.topics.iter().any(|wanted| wanted == topic) {
                progress.positions.insert(topic.to_string(), (epoch.to_string(), offset));
            }
        }
        if message.ack {
            progress.last_event_id = Some(message.id.to_string());
        }
        self.format.print(text, || readable(message))
    }
}

/// At least the delay that the server requested. Adds up to half of it at random, so that clients do not reconnect together.
fn reconnect_delay(delay: Duration, backoff: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random bytes, uses the maximum.
    let part = match SystemRandom::new().fill(&mut random) {
        Ok(()) => f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    };
    let delay = delay.min(RETRY_AFTER_MAX).max(backoff);
    delay + delay.mul_f64(part / 2.0)
}

/// `2026-01-02T03:04:05.678Z  [news] Title: body  {"data":1}  (id)`
fn readable(message: &Msg<'_>) -> String {
    let mut parts = vec![message.sent_at.to_string()];
    parts.extend(message.topic.as_ref().map(|topic| format!("[{}]", output::clean(topic))));
    let notification: Value =
        message.notification.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let field = |name: &str| notification.get(name).and_then(Value::as_str).map(output::clean);
    parts.extend(match (field("title"), field("body")) {
        (Some(title), Some(body)) => Some(format!("{title}: {body}")),
        (title, body) => title.or(body),
    });
    parts.extend(message.data.map(|data| output::clean(data.get())));
    parts.push(format!("({})", message.id));
    parts.join("  ")
}

fn explain(reason: &str) -> String {
    let known = CloseReason::ALL.into_iter().find(|known| known.as_str() == reason);
    known.map_or_else(|| output::clean(reason), |known| known.explain().to_owned())
}

fn closed(reason: &str) -> Failure {
    let text = format!("the server closed: {}", explain(reason));
    let credential = [CloseReason::Unauthorized, CloseReason::Expired, CloseReason::Revoked];
    match credential.iter().any(|known| known.as_str() == reason) {
        true => Failure::Refused(text),
        false => Failure::Failed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnects_wait_for_the_server_delay_and_are_spread() {
        let check = |told_s: u64, backoff_s: u64, least_s: u64| {
            let [delay, backoff, least] = [told_s, backoff_s, least_s].map(Duration::from_secs);
            let waits: Vec<Duration> = (0..50).map(|_| reconnect_delay(delay, backoff)).collect();
            assert!(waits.iter().all(|wait| (least..=least * 3 / 2).contains(wait)), "{waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        };
        check(30, 1, 30);
        check(1, 16, 16);
        check(u64::MAX, 1, 3_600);
    }
}
