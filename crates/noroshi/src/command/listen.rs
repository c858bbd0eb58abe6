//! `noroshi listen`: a device on the terminal, with the client library. Registers a device if no token is given, prints and
//! acknowledges notifications, and stays connected.

use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use noroshi_client as device;
use noroshi_client::{Acknowledge, Code, Event, Events, Message, PresenceMode, Reason, State, Subscribe};
use noroshi_client::{TokenError, TokenReason, TokenRequest, Transport};
use noroshi_types::{CloseReason, Timestamp};
use serde_json::{Value, json};

use crate::client::{Connect, tls_config};
use crate::failure::Failure;
use crate::folder::Secret;
use crate::input::present;
use crate::output;

#[derive(Debug, Clone, clap::Args)]
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
    #[arg(long)]
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

/// A device that may connect.
struct Registered {
    /// Of the gateway: in a cluster, the API returns the one for the device.
    base: String,
    token: String,
    /// None if only its token is known.
    id: Option<String>,
}

/// What `listen` knows of its connections.
#[derive(Default)]
struct Progress {
    heard: u64,
    has_connected: bool,
    /// Why the last connection ended.
    ended: Option<Reason>,
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
        let mut registered = self.register().await?;
        loop {
            let (client, mut events) = self.open(&registered)?;
            let Some(moved) = self.follow(&registered, &client, &mut events, progress).await? else {
                // Sends the last acknowledgements.
                client.close().await;
                return Ok(());
            };
            eprintln!("moving to {}: messages of topics may be missed", output::clean(&moved.base));
            registered = moved;
        }
    }

    /// The token that was given, or that of a device which it registers.
    async fn register(&self) -> Result<Registered, Failure> {
        if let Some(token) = &self.token {
            let base = self.connect.client_with(token)?.base().to_owned();
            return Ok(Registered { base, token: token.expose().to_owned(), id: None });
        }
        let Some(id) = self.device.clone().or_else(|| Some(format!("cli-{}", self.user.as_ref()?))) else {
            return Err(Failure::Usage("--user, --device or --token is required".to_owned()));
        };
        let mut body = present(&[("user", &self.user)]);
        body.extend([("device".to_owned(), json!(id)), ("platform".to_owned(), json!("other"))]);
        let client = self.connect.client()?;
        let answer = client.post("/v1/devices", &body.into()).await?;
        let token = answer.get("token").and_then(Value::as_str);
        let token = token.ok_or_else(|| Failure::failed("the server's response contains no token"))?;
        let gateway = answer["connect"]["sse"].as_str().and_then(|url| url.strip_suffix("/v1/events"));
        let base = gateway.unwrap_or(client.base()).to_owned();
        Ok(Registered { base, token: token.to_owned(), id: Some(id) })
    }

    fn open(&self, registered: &Registered) -> Result<(device::Client, Events), Failure> {
        let (this, token) = (self.clone(), registered.token.clone());
        let tokens = move |request: TokenRequest| {
            let (this, token) = (this.clone(), token.clone());
            async move {
                match request.reason {
                    TokenReason::First => Ok(token),
                    _ if this.token.is_some() => Err(TokenError::SignedOut),
                    _ => match this.register().await {
                        Ok(again) => Ok(again.token),
                        Err(failure) => Err(TokenError::failed(failure.to_string())),
                    },
                }
            }
        };
        let acknowledge = if self.no_ack { Acknowledge::Manual } else { Acknowledge::Handled };
        let transport = if self.sse { Transport::Sse } else { Transport::WebSocket };
        let builder = device::Client::builder(&registered.base, tokens)
            .acknowledge(acknowledge)
            .transports([transport])
            .tls(tls_config(self.connect.ca_file.as_deref())?);
        let (client, events) = builder.build().map_err(|error| Failure::failed(error.to_string()))?;
        for topic in &self.topics {
            client.subscribe(topic, Subscribe::with_recovery());
        }
        if self.idle {
            client.set_presence(PresenceMode::Idle);
        }
        client.connect();
        Ok((client, events))
    }

    /// Prints what happens. None: `--count` is reached. Otherwise the API has another gateway for the device.
    async fn follow(
        &self,
        registered: &Registered,
        client: &device::Client,
        events: &mut Events,
        progress: &mut Progress,
    ) -> Result<Option<Registered>, Failure> {
        while let Some(event) = events.next().await {
            match event {
                Event::Message(delivery) => {
                    progress.heard += 1;
                    self.format.print(delivery.as_json(), || readable(&delivery))?;
                    delivery.handled();
                    if self.count.is_some_and(|count| progress.heard >= count) {
                        return Ok(None);
                    }
                }
                Event::State(state) => {
                    self.report(registered, &state, progress)?;
                    if let State::Waiting { .. } = state
                        && self.token.is_none()
                        && let Ok(again) = self.register().await
                        && again.base != registered.base
                    {
                        client.close().await;
                        return Ok(Some(again));
                    }
                }
                Event::Items(items) => {
                    eprintln!("items {}: {} unread", output::clean(&items.event), items.unread);
                }
                Event::Recovered(recovered) => {
                    let what = match recovered.complete {
                        Some(true) => "recovered",
                        Some(false) => "recovered, but messages were missed",
                        None => "recovered, but messages may have been missed",
                    };
                    eprintln!("{}: {what}", output::clean(&recovered.topic));
                }
                Event::Denied(denied) => {
                    let text = format!("topic {:?}: {} ({})", denied.topic, denied.reason, denied.code);
                    return Err(refused(&text));
                }
                Event::Error(error) if is_passing(error.code()) => {
                    eprintln!("{}", output::clean(&error.to_string()));
                }
                // Caused by a frame that this command would send again.
                Event::Error(error) => {
                    return Err(refused(&format!("{} ({})", error.message(), error.code())));
                }
                _ => {}
            }
        }
        Err(Failure::failed("the connection ended"))
    }

    fn report(&self, registered: &Registered, state: &State, progress: &mut Progress) -> Result<(), Failure> {
        match state {
            State::Connected { device, .. } => {
                progress.has_connected = true;
                let id = device.as_deref().or(registered.id.as_deref()).unwrap_or("of the token");
                eprintln!("listening as device {}", output::clean(id));
            }
            State::Waiting { reason, retry_in, .. } => {
                // An operator ended it.
                if self.once || *reason == Reason::Revoked {
                    return Err(ended(registered, reason, progress.has_connected));
                }
                progress.ended = Some(reason.clone());
                let wait = retry_in.unwrap_or_default().as_secs_f64();
                eprintln!("{}; reconnecting in {wait:.1} s", explain(reason));
            }
            // The token was rejected, and there is no other one.
            State::Closed { reason: Reason::SignedOut, .. } => {
                return Err(closed(progress.ended.as_ref().unwrap_or(&Reason::Unauthorized)));
            }
            State::Closed { reason, .. } => return Err(closed(reason)),
            _ => {}
        }
        Ok(())
    }
}

/// Why the last connection ended, for people.
fn explain(reason: &Reason) -> String {
    let known = CloseReason::ALL.into_iter().find(|known| known.as_str() == reason.as_str());
    match known {
        Some(known) => format!("the server closed: {}", known.explain()),
        None => output::clean(reason.as_str()).replace('_', " "),
    }
}

/// With `--once`.
fn ended(registered: &Registered, reason: &Reason, has_connected: bool) -> Failure {
    match reason {
        Reason::ConnectionLost if has_connected => Failure::failed("the connection ended"),
        Reason::ConnectionLost => {
            let cause = "it accepts no device connection".to_owned();
            Failure::Unreachable { server: registered.base.clone(), cause }
        }
        reason => closed(reason),
    }
}

fn closed(reason: &Reason) -> Failure {
    match reason {
        Reason::Unauthorized | Reason::Expired | Reason::Revoked => Failure::Refused(explain(reason)),
        _ => Failure::Failed(explain(reason)),
    }
}

fn refused(what: &str) -> Failure {
    Failure::failed(format!("the server refused: {}", output::clean(what)))
}

/// Whether the client continues as before.
fn is_passing(code: &Code) -> bool {
    matches!(code, Code::TokenFailed | Code::Network | Code::Timeout | Code::QueueFull)
}

/// `2026-01-02T03:04:05.678Z  [news] Title: body  {"data":1}  (id)`
fn readable(message: &Message) -> String {
    let sent = message.sent_at().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let sent = sent.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or_default();
    let mut parts = vec![Timestamp(sent).to_string()];
    parts.extend(message.topic().map(|topic| format!("[{}]", output::clean(topic))));
    let body = message.notification().and_then(|shown| shown.body.as_deref());
    parts.extend(match (message.title().map(output::clean), body.map(output::clean)) {
        (Some(title), Some(body)) => Some(format!("{title}: {body}")),
        (title, body) => title.or(body),
    });
    parts.extend(message.data_json().map(output::clean));
    parts.push(format!("({})", output::clean(message.id())));
    parts.join("  ")
}
