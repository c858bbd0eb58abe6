//! The same over HTTP/1.1, which some senders of FCM, its token endpoint and Web Push use. Where HTTP/2 has
//! frames, the connection is closed instead.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::exchange::{Ending, Fake};
use crate::rules::ConnectionInfo;

/// Larger than any service accepts, so that each can report the excess itself.
pub(crate) const BODY_BYTES_MAX: usize = 2 << 20;

pub(crate) async fn serve(
    fake: &Arc<Fake>,
    info: ConnectionInfo,
    stream: TlsStream<TcpStream>,
) -> Result<(), ()> {
    let info = Arc::new(info);
    let service = service_fn(|request| answer(fake.clone(), info.clone(), request));
    let mut orders = fake.orders();
    let initial = *orders.borrow_and_update();
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    loop {
        tokio::select! {
            // A connection closed by the script is not a failure of the peer.
            _ = connection.as_mut() => return Ok(()),
            changed = orders.changed() => {
                let new = *orders.borrow_and_update();
                if changed.is_err() || new.disconnect != initial.disconnect {
                    return Ok(());
                }
                if new.go_away != initial.go_away {
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

async fn answer(
    fake: Arc<Fake>,
    info: Arc<ConnectionInfo>,
    request: http::Request<Incoming>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?;
    let decision = fake.decide(&info, &head, &body.to_bytes(), false);
    tokio::time::sleep(decision.after).await;
    match decision.ending {
        Ending::Reply(reply) => {
            let mut response = Response::builder().status(reply.status);
            for (name, value) in reply.headers {
                response = response.header(name, value);
            }
            response.body(Full::new(reply.body.into())).map_err(io::Error::other)
        }
        Ending::Silence => {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
        Ending::Refuse | Ending::GoAway | Ending::Reset | Ending::Disconnect => {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
}
