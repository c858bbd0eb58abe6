//! Opens a connection for a pool and then runs it: one task from the first attempt to the end.
//!
//! A connection is open when the peer has spoken: over HTTP/2, when its SETTINGS arrived. Before that it gets no push.

use std::sync::Arc;
use std::time::Instant;

use noroshi_egress::{Connected, Error, Tls};

use super::connection::Connection;
use super::growth::Attempt;
use super::{Pool, http1};
use crate::push::Reason;
use crate::service::Origins;

/// RFC 9113 §3.2
const H2: &[u8] = b"h2";
/// RFC 7301 §6
const HTTP_1_1: &[u8] = b"http/1.1";

struct Failure {
    reason: Reason,
    permanent: bool,
}

enum Open {
    Http2(Box<Connection>),
    Http1(http1::Connection),
}

/// However this task ends, the pool may connect again.
struct Connecting(Option<Arc<Pool>>);

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(pool) = self.0.take() {
            pool.not_connecting();
        }
    }
}

pub(super) async fn run(pool: Arc<Pool>) {
    let mut connecting = Connecting(Some(pool.clone()));
    loop {
        let Some(at) = pool.connect_at() else {
            connecting.0 = None;
            return;
        };
        if at > Instant::now() {
            tokio::time::sleep_until(at.into()).await;
            continue;
        }
        let failure = match open(&pool).await {
            Ok(open) => {
                let id = pool.connected();
                connecting.0 = None;
                match open {
                    Open::Http2(connection) => connection.run(id).await,
                    Open::Http1(connection) => connection.run(id).await,
                }
                return;
            }
            Err(failure) => failure,
        };
        connecting.0 = None;
        if pool.connect_failed(failure.reason, failure.permanent) == Attempt::GiveUp {
            return;
        }
        connecting.0 = Some(pool.clone());
    }
}

async fn open(pool: &Arc<Pool>) -> Result<Open, Failure> {
    let context = &pool.account.context;
    let opening = async {
        let connected = dial(pool).await.map_err(|error| {
            let (app, service) = (pool.account.app.0, pool.account.service.as_str());
            match pool.account.has_origins_from_devices() {
                // Failures are frequent.
                true => tracing::debug!(app, service, %error, "failed to connect to a push service"),
                false => tracing::warn!(app, service, %error, "failed to connect to a push service"),
            }
            Failure { reason: error.label(), permanent: error.is_permanent() }
        })?;
        if is_http2(pool, &connected)? {
            let mut connection = Box::new(Connection::new(pool.clone(), connected.stream));
            match connection.settings_received().await {
                Ok(()) => Ok(Open::Http2(connection)),
                Err(reason) => Err(Failure { reason, permanent: false }),
            }
        } else {
            let connection = http1::Connection::open(pool.clone(), connected.stream).await;
            connection.map(Open::Http1).map_err(|reason| Failure { reason, permanent: false })
        }
    };
    match tokio::time::timeout(context.config.connect_timeout, opening).await {
        Ok(result) => result,
        Err(_) => Err(Failure { reason: "timeout", permanent: false }),
    }
}

async fn dial(pool: &Pool) -> Result<Connected, Error> {
    let client = &pool.account.client;
    let mut tls = Tls::alpn(match pool.account.origins() {
        Origins::Service => &[H2],
        Origins::Credential => &[HTTP_1_1],
        Origins::Devices => &[H2, HTTP_1_1],
    });
    tls.identity = client.identity().map(Into::into);
    let target = &pool.target;
    let egress = pool.account.context.egress.for_app(pool.account.app.0);
    egress.connect(target.https, &target.host.to_string(), target.port, tls).await
}

/// Without TLS a test server of APNs or FCM speaks HTTP/2 with prior knowledge (RFC 9113 §3.3), and any other server
/// HTTP/1.1.
fn is_http2(pool: &Pool, connected: &Connected) -> Result<bool, Failure> {
    match (pool.account.origins(), connected.alpn.as_deref()) {
        (Origins::Credential, _) => Ok(false),
        (_, Some(H2)) => Ok(true),
        (Origins::Devices, _) => Ok(false),
        (Origins::Service, None) if !pool.target.https => Ok(true),
        (Origins::Service, _) => Err(Failure { reason: "no_http2", permanent: false }),
    }
}
