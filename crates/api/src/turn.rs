//! A connection that the API serves and whose next request is the gateway's, such as a WebSocket: the gateway gets
//! the socket, with the request as the client sent it.
//!
//! Most connections never come here, since the gateway looks at a connection's first request itself.

use futures_util::FutureExt;
use http::{Request, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use noroshi_protocol::device_path::DevicePath;

use crate::error::{Code, Problem};

/// It answers in place of the gateway.
const NO_GATEWAY: &str = "this node holds no devices: it does not have the role gateway";

/// Whether the gateway answers it, where there is one.
pub(crate) fn is_the_gateways<B>(request: &Request<B>) -> bool {
    DevicePath::of(request.method().as_str(), request.uri().path()).is_some()
}

/// `GET /v1/connect` and others, where there is no gateway.
pub(crate) async fn misdirected() -> Problem {
    Problem::new(Code::Misdirected, NO_GATEWAY)
}

/// A request for the gateway.
pub(crate) struct Turned {
    head: Vec<u8>,
    body: Incoming,
}

impl Turned {
    pub(crate) fn of(request: Request<Incoming>) -> Self {
        Self { head: head(&request), body: request.into_body() }
    }

    /// As far as it was read. Called when the connection reads no more.
    ///
    /// The gateway takes no body but one of a stated length, whose bytes are those on the wire.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let Self { head: mut bytes, mut body } = self;
        while let Some(Some(Ok(frame))) = body.frame().now_or_never() {
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        bytes
    }
}

/// The head as the client sent it; of HTTP/2, as an HTTP/1.1 client would. A header of `http` holds no line break.
pub(crate) fn head<B>(request: &Request<B>) -> Vec<u8> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let version = if request.version() == Version::HTTP_10 { "1.0" } else { "1.1" };
    let mut bytes = format!("{} {target} HTTP/{version}\r\n", request.method()).into_bytes();
    for (name, value) in request.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}
