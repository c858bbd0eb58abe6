//! A request for the gateway, such as a WebSocket upgrade, on a connection that the API serves: the connection goes back
//! to the gateway with the request as the client sent it.
//!
//! Rare: the gateway itself reads the first request of each connection.

use futures_util::FutureExt;
use http::{Request, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use noroshi_protocol::device_path::DevicePath;

/// Whether the gateway serves this path, on a node that has one.
pub(super) fn is_for_gateway<B>(request: &Request<B>) -> bool {
    DevicePath::of(request.method().as_str(), request.uri().path()).is_some()
}

/// A request for the gateway.
pub(super) struct GatewayRequest {
    head: Vec<u8>,
    body: Incoming,
}

impl GatewayRequest {
    pub(super) fn new(request: Request<Incoming>) -> Self {
        Self { head: head_bytes(&request), body: request.into_body() }
    }

    /// The bytes read so far. Called when the connection reads no more.
    ///
    /// The gateway accepts only bodies with `Content-Length`, whose bytes are those on the wire.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let Self { head: mut bytes, mut body } = self;
        while let Some(Some(Ok(frame))) = body.frame().now_or_never() {
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        bytes
    }
}

/// The head as an HTTP/1.1 client sends it. A header value of `http` contains no line break.
pub(super) fn head_bytes<B>(request: &Request<B>) -> Vec<u8> {
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
