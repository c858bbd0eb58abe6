//! The same over HTTP/1.1, which senders of FCM, of its token endpoint and of Web Push are known to use. What is
//! said with frames over HTTP/2 is said here by closing the connection.

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

use crate::ask::Facts;
use crate::connection::BODY_BYTES_MAX;
use crate::exchange::{Ending, Fake};

pub(crate) async fn serve(fake: &Arc<Fake>, facts: Facts, stream: TlsStream<TcpStream>) -> Result<(), ()> {
    let facts = Arc::new(facts);
    let service = service_fn(|request| answer(fake.clone(), facts.clone(), request));
    let mut orders = fake.orders();
    let told = *orders.borrow_and_update();
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    loop {
        tokio::select! {
            // A connection that the script closed is no failure of the peer.
            _ = connection.as_mut() => return Ok(()),
            changed = orders.changed() => {
                let new = *orders.borrow_and_update();
                if changed.is_err() || new.disconnect != told.disconnect {
                    return Ok(());
                }
                if new.go_away != told.go_away {
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

async fn answer(
    fake: Arc<Fake>,
    facts: Arc<Facts>,
    request: http::Request<Incoming>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?;
    let decision = fake.decide(&facts, &head, &body.to_bytes(), false);
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
