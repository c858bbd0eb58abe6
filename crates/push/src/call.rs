//! One HTTP/2 request on a connection of its own, for calls that are rare. Pushes use pools.
//!
//! A failure before the request is written proves that the service has not seen it.

use std::time::Duration;

use bytes::Bytes;
use noroshi_egress::fetch::retry_after;
use noroshi_egress::target::Target;
use noroshi_egress::{Egress, Stream, Tls};
use noroshi_protocol::http2::{self, Event, Field, Head, Headers, Key};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::exchange::{Client, Request};
use crate::push::Reason;

const H2: &[u8] = b"h2";

/// A list of 10,000 channels takes 300 KB.
const HTTP2: http2::Config = http2::Config {
    stream_window: 1 << 20,
    connection_window: 1 << 20,
    response_body_bytes_max: 1 << 20,
    header_list_bytes_max: 16 << 10,
};
const READ_BYTES: usize = 16 << 10;
const KEY: Key = Key(0);

/// A whole response.
pub(crate) struct Called {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub headers: Headers,
    pub body: Bytes,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub reason: Reason,
    /// Whether the service may have processed the request.
    pub may_be_done: bool,
}

impl Failed {
    fn unsent(reason: Reason) -> Self {
        Self { reason, may_be_done: false }
    }
}

/// Sends the request to the origin and waits for the response, both within `limit`.
pub(crate) async fn call(
    egress: &Egress,
    client: &dyn Client,
    (origin, method): (&str, &str),
    request: &Request,
    limit: Duration,
) -> Result<Called, Failed> {
    let mut sent = false;
    let exchange = exchange(egress, client, (origin, method), request, &mut sent);
    match tokio::time::timeout(limit, exchange).await {
        Ok(result) => result,
        Err(_) => Err(Failed { reason: "timeout", may_be_done: sent }),
    }
}

async fn exchange(
    egress: &Egress,
    client: &dyn Client,
    (origin, method): (&str, &str),
    request: &Request,
    sent: &mut bool,
) -> Result<Called, Failed> {
    let (target, _) = Target::of_url(origin).map_err(|error| Failed::unsent(error.label()))?;
    let mut tls = Tls::alpn(&[H2]);
    tls.identity = client.identity().map(Into::into);
    let connected = egress.connect(target.https, &target.host.to_string(), target.port, tls).await;
    let connected = connected.map_err(|error| Failed::unsent(error.label()))?;
    // Without TLS a test server speaks HTTP/2 with prior knowledge (RFC 9113 §3.3).
    if target.https && connected.alpn.as_deref() != Some(H2) {
        return Err(Failed::unsent("no_http2"));
    }
    let mut stream = connected.stream;
    let mut http = http2::Connection::new(HTTP2);
    let mut buffer = vec![0; READ_BYTES];
    let lost = |sent: bool| Failed { reason: "connection_lost", may_be_done: sent };
    loop {
        write(&mut stream, &mut http).await.map_err(|_| lost(*sent))?;
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0).ok_or(lost(*sent))?;
        let received = http.receive(&buffer[..read]);
        while let Some(event) = http.poll_event() {
            match event {
                // The server speaks HTTP/2.
                Event::SettingsChanged if !*sent => {
                    *sent = true;
                    begin(&mut http, method, &target.authority(), request)?;
                }
                Event::Response { status, headers, body, truncated: false, .. } => {
                    http.go_away();
                    let _ = write(&mut stream, &mut http).await;
                    let _ = stream.shutdown().await;
                    let retry_after = headers.get("retry-after").and_then(retry_after);
                    return Ok(Called { status, retry_after, headers, body });
                }
                Event::Response { .. } => return Err(Failed { reason: "other", may_be_done: true }),
                Event::Reset { processed, .. } => {
                    return Err(Failed { reason: "stream_reset", may_be_done: processed });
                }
                Event::GoAway { debug, .. } if !*sent => return Err(Failed::unsent(client.goaway(&debug))),
                Event::GoAway { .. } | Event::SettingsChanged | Event::Pong => {}
            }
        }
        received.map_err(|_| Failed { reason: "protocol_error", may_be_done: *sent })?;
    }
}

fn begin(
    http: &mut http2::Connection,
    method: &str,
    authority: &str,
    request: &Request,
) -> Result<(), Failed> {
    let headers: Vec<Field<'_>> = request
        .headers
        .iter()
        .map(|header| Field { name: header.name, value: &header.value, indexed: false })
        .collect();
    let head = Head { method, authority, path: &request.path, headers: &headers };
    http.request(KEY, &head, request.body.clone()).map_err(|_| Failed::unsent("closing"))
}

async fn write(stream: &mut Stream, http: &mut http2::Connection) -> std::io::Result<()> {
    let output = std::mem::take(http.output());
    stream.write_all(&output).await?;
    stream.flush().await
}
