//! A request for a WebSocket or an event stream on a connection that the API already serves: the
//! gateway gets the request's head and one end of a socket pair, and what it answers is passed on.
//!
//! Most connections never come here, since the gateway looks at a connection's first request itself.
//! Bounded by what the two sockets buffer; closed when either side ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use noroshi_types::limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::error::{Code, Problem};
use crate::metrics::Counted;
use crate::state::{Api, Peer};

/// The gateway reads a token at once; it waits for nothing before it answers a head.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than a poll waits for the next ping, and than a session lives whose client is silent.
const POLL_TIMEOUT: Duration = Duration::from_secs(60);

/// It answers in place of the gateway.
const NO_GATEWAY: &str = "this node holds no devices: it does not have the role gateway";

/// Read from the gateway at once.
const PIECE_BYTES: usize = 16 << 10;

/// `GET /v1/connect` and `GET /v1/events`
pub(crate) async fn open(Shared(api): Shared<Api>, request: Request) -> Result<Response, Problem> {
    pass(&api, request, &[], ANSWER_TIMEOUT).await
}

/// Engine.IO: a poll is answered when there is something to say, and what a POST says goes along.
pub(crate) async fn poll(Shared(api): Shared<Api>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, limits::CLIENT_MESSAGE_BYTES)
        .collect()
        .await
        .map_err(|_| Problem::new(Code::BodyTooLarge, "the body is over maxPayload, or broke off"))?;
    pass(&api, Request::from_parts(parts, Body::empty()), &body.to_bytes(), POLL_TIMEOUT).await
}

async fn pass(
    api: &Api,
    mut request: Request,
    body: &[u8],
    answer_timeout: Duration,
) -> Result<Response, Problem> {
    let tunnel = api.tunnel.as_ref().ok_or_else(|| Problem::new(Code::Misdirected, NO_GATEWAY))?;
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let peer = request.extensions().get::<Peer>().map_or(nowhere, |peer| peer.address);
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let mut bytes = head(&request);
    bytes.extend_from_slice(body);
    let stream = tunnel(bytes, peer).map_err(|error| {
        tracing::warn!(%error, "the gateway took no connection");
        Problem::new(Code::Overloaded, "no room for one more connection now")
    })?;
    stream.set_nonblocking(true).map_err(Problem::internal)?;
    let stream = UnixStream::from_std(stream).map_err(Problem::internal)?;
    let guard = Counted::by(&api.metrics.tunnels);
    match tokio::time::timeout(answer_timeout, answer_head(stream)).await {
        Ok(answer) => pass_on(answer?, upgrade, guard),
        Err(_) => Err(Problem::new(Code::Overloaded, "the gateway did not answer in time")),
    }
}

/// What the gateway answered, and what it has said since.
struct Answer {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    rest: Bytes,
    stream: UnixStream,
}

/// The head as the client sent it. A header that hyper accepted holds no line break.
fn head(request: &Request) -> Vec<u8> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let mut bytes = format!("{} {target} HTTP/1.1\r\n", request.method()).into_bytes();
    for (name, value) in request.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

async fn answer_head(mut stream: UnixStream) -> Result<Answer, Problem> {
    let mut read = BytesMut::new();
    loop {
        if let Some((status, headers, len)) = parse_head(&read)? {
            let rest = read.split_off(len).freeze();
            return Ok(Answer { status, headers, rest, stream });
        }
        if read.len() > limits::HEAD_BYTES {
            return Err(Problem::internal("the gateway's answer has too long a head"));
        }
        let count = stream.read_buf(&mut read).await.map_err(Problem::internal)?;
        if count == 0 {
            return Err(Problem::new(Code::Overloaded, "the gateway closed the connection"));
        }
    }
}

type Head = (StatusCode, Vec<(HeaderName, HeaderValue)>, usize);

fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Problem> {
    let mut fields = [httparse::EMPTY_HEADER; limits::HEADERS];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(len) = response.parse(bytes).map_err(Problem::internal)? else {
        return Ok(None);
    };
    let status = StatusCode::from_u16(response.code.unwrap_or(0)).map_err(Problem::internal)?;
    let mut headers = Vec::with_capacity(response.headers.len());
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(Problem::internal)?;
        headers.push((name, HeaderValue::from_bytes(field.value).map_err(Problem::internal)?));
    }
    Ok(Some((status, headers, len)))
}

fn pass_on(answer: Answer, upgrade: Option<OnUpgrade>, guard: Counted) -> Result<Response, Problem> {
    let Answer { status, headers, rest, stream } = answer;
    let switching = status == StatusCode::SWITCHING_PROTOCOLS;
    let body = match (switching, upgrade) {
        (true, Some(upgrade)) => {
            tokio::spawn(copy(upgrade, stream, rest, guard));
            Body::empty()
        }
        (true, None) => return Err(Problem::internal("the connection cannot be upgraded")),
        (false, _) => Body::from_stream(pieces(stream, rest, guard)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in headers {
        // RFC 9110 §7.6.1: framing is between us and the client; the upgrade itself is passed on.
        let framing = name == header::TRANSFER_ENCODING || (!switching && name == header::CONNECTION);
        if !framing {
            response.headers_mut().append(name, value);
        }
    }
    Ok(response)
}

/// Both ways until one side ends.
async fn copy(upgrade: OnUpgrade, mut stream: UnixStream, rest: Bytes, _guard: Counted) {
    let Ok(upgraded) = upgrade.await else { return };
    let mut client = TokioIo::new(upgraded);
    if client.write_all(&rest).await.is_ok() {
        // Either end's reset is how most of these end: the gateway tells why in its own log.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut stream).await;
    }
}

fn pieces(
    stream: UnixStream,
    rest: Bytes,
    guard: Counted,
) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold((stream, rest, guard), |(mut stream, mut rest, guard)| async move {
        if rest.is_empty() {
            let mut piece = BytesMut::with_capacity(PIECE_BYTES);
            stream.read_buf(&mut piece).await?;
            rest = piece.freeze();
        }
        let piece = std::mem::take(&mut rest);
        Ok((!piece.is_empty()).then_some((piece, (stream, rest, guard))))
    })
}
