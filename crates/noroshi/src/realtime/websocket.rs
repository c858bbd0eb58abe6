//! Client of the native WebSocket: the handshake uses the HTTP client, with the same TLS, proxies and timeouts; frames use
//! `protocol::ws`.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderValue, Method, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use noroshi_protocol::ws::{self, Decoder, Input, Opcode, Role};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Client, refusal};
use crate::failure::Failure;

const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const READ_BYTES: usize = 16 << 10;
/// Much larger than the server's messages: notification, data and frame have a few KiB each by default.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// RFC 6455 §7.4.1.
const NORMAL_CLOSURE: u16 = 1000;

pub(crate) struct WebSocket {
    io: TokioIo<Upgraded>,
    decoder: Decoder,
    /// Decoded messages not returned yet, at most those of one read.
    received: VecDeque<Received>,
    random: SystemRandom,
    /// Without any bytes for this long, not even a ping, the connection is dead.
    pub(super) quiet_max: Duration,
}

enum Received {
    Text(String),
    Ping(Vec<u8>),
    Close,
}

impl WebSocket {
    pub(crate) async fn open(client: &Client) -> Result<Self, Failure> {
        let random = SystemRandom::new();
        let mut nonce = [0; 16];
        random
            .fill(&mut nonce)
            .map_err(|_| Failure::failed("the operating system returned no random bytes"))?;
        let key = STANDARD.encode(nonce);
        let mut request = client.request(Method::GET, "/v1/connect")?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(ws::handshake::SUBPROTOCOL));
        let value = HeaderValue::try_from(&key).map_err(|error| Failure::failed(error.to_string()))?;
        headers.insert(SEC_WEBSOCKET_KEY, value);
        let handshake = async {
            let response = client.send(request).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Err(refusal(response).await);
            }
            let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
            if accept != Some(ws::accept_key(&key).as_slice()) {
                return Err(Failure::failed("the server's Sec-WebSocket-Accept does not match the request"));
            }
            hyper::upgrade::on(response)
                .await
                .map_err(|error| Failure::failed(format!("the upgrade failed: {error}")))
        };
        let upgraded = tokio::time::timeout(OPEN_TIMEOUT, handshake)
            .await
            .map_err(|_| Failure::failed("timeout during the WebSocket handshake"))??;
        Ok(Self {
            io: TokioIo::new(upgraded),
            decoder: Decoder::new(),
            received: VecDeque::new(),
            random,
            quiet_max: super::QUIET_MAX,
        })
    }

    pub(crate) async fn send(&mut self, frame: &Value) -> Result<(), Failure> {
        self.write(Opcode::Text, frame.to_string().as_bytes()).await
    }

    /// The next text message. None when the server has closed. Cancel-safe: decoded messages are kept.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Failure> {
        loop {
            match self.received.pop_front() {
                Some(Received::Text(text)) => return Ok(Some(text)),
                Some(Received::Ping(payload)) => self.write(Opcode::Pong, &payload).await?,
                Some(Received::Close) => return Ok(None),
                None => {
                    let mut bytes = [0; READ_BYTES];
                    match tokio::time::timeout(self.quiet_max, self.io.read(&mut bytes)).await {
                        Err(_) | Ok(Ok(0) | Err(_)) => return Ok(None),
                        Ok(Ok(len)) => self.decode(&mut bytes[..len])?,
                    }
                }
            }
        }
    }

    fn decode(&mut self, bytes: &mut [u8]) -> Result<(), Failure> {
        let received = &mut self.received;
        let fed = self.decoder.feed(Role::Client, bytes, MESSAGE_BYTES_MAX, &mut |input| {
            match input {
                Input::Text(text) => received.push_back(Received::Text(text.to_owned())),
                Input::Ping(payload) => received.push_back(Received::Ping(payload.to_owned())),
                Input::Close { .. } => received.push_back(Received::Close),
                // The service sends no binary messages; this client requests neither pongs nor compression.
                Input::Binary(_) | Input::Pong(_) | Input::Fragment | Input::Deflated(_) => {}
            }
            ControlFlow::Continue(())
        });
        fed.map_err(|error| Failure::failed(format!("the server violated the WebSocket protocol: {error}")))
    }

    async fn write(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), Failure> {
        let mut mask = [0; 4];
        self.random
            .fill(&mut mask)
            .map_err(|_| Failure::failed("the operating system returned no random bytes"))?;
        let mut out = Vec::with_capacity(payload.len() + 14);
        ws::push_masked_frame(&mut out, opcode, payload, mask);
        let written = async {
            self.io.write_all(&out).await?;
            self.io.flush().await
        };
        written.await.map_err(|error| Failure::failed(format!("the connection failed: {error}")))
    }

    /// RFC 6455 §7.1.2: our close frame, then reading until the server's.
    pub(crate) async fn close(mut self) {
        if self.write(Opcode::Close, &NORMAL_CLOSURE.to_be_bytes()).await.is_ok() {
            let closed = async { while let Ok(Some(_)) = self.next().await {} };
            // Does not wait for an unresponsive server.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
        }
    }
}
