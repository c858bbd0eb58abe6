//! `noroshi listen`: a device at the terminal. It registers one where no token is given, prints what
//! arrives, confirms it, and comes back when the connection ends, after the delay the server told.

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
use crate::output;
use crate::realtime::Connection;

const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// No longer than this because of what a server says.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);
/// After this long a connection counts as having worked, and back-off starts over.
const SETTLED: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Device token or app JWT; without it a device is registered with the API key
    #[arg(long, env = "NOROSHI_TOKEN", hide_env_values = true, conflicts_with_all = ["user", "device"])]
    token: Option<Secret>,
    /// Register as a device of this user
    #[arg(long)]
    user: Option<String>,
    /// Id of the registered device [default: cli-USER, so that its inbox is found again]
    #[arg(long)]
    device: Option<String>,
    /// Topics to hear on this connection, separated by commas
    #[arg(long, value_delimiter = ',')]
    topics: Vec<String>,
    /// Use server-sent events instead of WebSocket
    #[arg(long)]
    sse: bool,
    /// Leave notifications unconfirmed: they come again at the next connection
    #[arg(long)]
    no_ack: bool,
    /// Be connected, but not in use
    #[arg(long, conflicts_with = "sse")]
    idle: bool,
    /// End after this many notifications
    #[arg(long)]
    count: Option<u64>,
    /// End after this time, such as 10s; exit 1 if --count was not reached
    #[arg(long, value_parser = super::duration)]
    timeout: Option<Duration>,
    /// End instead of connecting again
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
    /// Worth another try, after this long if the server said so.
    Again(Option<Duration>),
}

/// What is known across connections.
#[derive(Default)]
struct Progress {
    heard: u64,
    /// Where each session topic stands: epoch and offset.
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
                // A busy server and one that is away may be back.
                Err(failure @ (Failure::Unreachable { .. } | Failure::Answered { status: 500.., .. })) => {
                    if self.once {
                        return Err(failure);
                    }
                    eprintln!("{failure}");
                    match failure {
                        Failure::Answered { retry_after: Some(told), .. } => {
                            Some(asked_to_wait(told, backoff))
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
            eprintln!("connecting again in {:.1} s", delay.as_secs_f64());
            tokio::time::sleep(delay).await;
            if self.token.is_none() {
                // Its gateway may be gone: another one may be named now.
                client = self.device_client().await.unwrap_or(client);
            }
        }
    }

    /// A client with a device's token, registering the device if none was given.
    async fn device_client(&self) -> Result<Client, Failure> {
        if let Some(token) = &self.token {
            return self.connect.client_with(token);
        }
        let Some(device) = self.device.clone().or_else(|| Some(format!("cli-{}", self.user.as_ref()?)))
        else {
            return Err(Failure::Usage("who listens? give --user, --device or --token".to_owned()));
        };
        let mut body =
            Map::from_iter([("device".to_owned(), json!(device)), ("platform".to_owned(), json!("other"))]);
        if let Some(user) = &self.user {
            body.insert("user".to_owned(), json!(user));
        }
        let client = self.connect.client()?;
        let answer = client.post("/v1/devices", &body.into()).await?;
        let token = answer.get("token").and_then(Value::as_str);
        let token = token.ok_or_else(|| Failure::failed("the server answered without a token"))?;
        let client = client.with_bearer(token)?;
        // In a cluster the API names the gateway that is to hold the device.
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
        let mut told = None;
        while let Some(text) = connection.next().await? {
            let frame = parse_server_frame(&text).map_err(|error| Failure::failed(error.to_string()))?;
            match frame {
                ServerFrame::Ready { device, ping_s, .. } => {
                    connection.expect_pings(Duration::from_secs(ping_s));
                    eprintln!("listening as device {}", output::clean(&device));
                    self.introduce(&mut connection, progress).await?;
                }
                ServerFrame::Msg(message) => {
                    self.hear(&text, &message, progress)?;
                    if message.ack && !self.no_ack {
                        connection.ack(&message.id).await?;
                    }
                    if self.count.is_some_and(|count| progress.heard >= count) {
                        connection.close().await;
                        return Ok(Ended::Enough);
                    }
                }
                ServerFrame::Recovered { topic, complete } => {
                    let what = if complete { "recovered" } else { "recovered, but something was missed" };
                    eprintln!("{}: {what}", output::clean(&topic));
                }
                // Of what this client said, and would say again.
                ServerFrame::Error { code, message } => {
                    let (message, code) = (output::clean(&message), output::clean(&code));
                    return Err(Failure::failed(format!("the server refused: {message} ({code})")));
                }
                ServerFrame::Close { reason, reconnect: true, after_ms } => {
                    eprintln!("the server closed: {}", explain(&reason));
                    told = Some(Duration::from_millis(after_ms));
                }
                ServerFrame::Close { reason, reconnect: false, .. } => return Err(closed(&reason)),
                ServerFrame::Pong | ServerFrame::Unknown(_) => {}
            }
        }
        Ok(Ended::Again(told))
    }

    /// Says what only this connection knows: its topics, since where, and whether it is in use.
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

    fn hear(&self, text: &str, message: &Msg<'_>, progress: &mut Progress) -> Result<(), Failure> {
        progress.heard += 1;
        if let (Some(topic), Some(epoch), Some(offset)) = (&message.topic, &message.epoch, message.offset) {
            // Only topics of this connection are asked for again; durable ones the server remembers.
            if self.topics.iter().any(|wanted| wanted == topic) {
                progress.positions.insert(topic.to_string(), (epoch.to_string(), offset));
            }
        }
        if message.ack {
            progress.last_event_id = Some(message.id.to_string());
        }
        match self.format.json {
            true => output::line(text),
            false => output::line(readable(message)),
        }
    }
}

/// Not before the server said. It says the same to everybody it turned away: each adds up to a half of its
/// own, so that they do not come back together.
fn asked_to_wait(told: Duration, backoff: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random bytes everybody is as late as can be, which is late enough.
    let part = match SystemRandom::new().fill(&mut random) {
        Ok(()) => f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    };
    let told = told.min(RETRY_AFTER_MAX).max(backoff);
    told + told.mul_f64(part / 2.0)
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
    fn nobody_comes_back_before_the_server_said_nor_all_together() {
        let check = |told_s: u64, backoff_s: u64, least_s: u64| {
            let [told, backoff, least] = [told_s, backoff_s, least_s].map(Duration::from_secs);
            let waits: Vec<Duration> = (0..50).map(|_| asked_to_wait(told, backoff)).collect();
            assert!(waits.iter().all(|wait| (least..=least * 3 / 2).contains(wait)), "{waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        };
        check(30, 1, 30);
        check(1, 16, 16);
        check(u64::MAX, 1, 3_600);
    }
}
