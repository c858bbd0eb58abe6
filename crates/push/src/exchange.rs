//! The border between the pools and the services' folders: a request as a service's folder makes it, and
//! a response as it reads it. Pools know HTTP and nothing of a service; folders know a service and no socket.
//!
//! A [`Client`] is one credential. It never waits: where an authorization must be fetched over the network
//! (OAuth2) the pool does so, one fetch at a time, and gives the answer back. All its methods may be called
//! by any thread, and none holds a lock while it signs for longer than one signature takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use noroshi_types::{PushService, PushToken, Timestamp};
use rustls::sign::CertifiedKey;

use crate::push::{Answer, Push, Reason};

/// One credential of one app at one push service.
pub trait Client: Send + Sync + fmt::Debug {
    fn service(&self) -> PushService;

    /// Scheme, host and port where this token is served: what connections are pooled by. The reason is why
    /// the token cannot be used at all.
    fn origin(&self, token: &PushToken) -> Result<Arc<str>, Reason>;

    /// A new connection carries one request until the first answer that was not an authorization's refusal
    /// (APNs with token authentication).
    fn one_until_authorised(&self) -> bool {
        false
    }

    /// Shown in the TLS handshake (APNs with a certificate).
    fn identity(&self) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn authorization(&self, origin: &str, now: Timestamp) -> Authorization;

    /// What to send to get an authorization, asked for after `Due` or `Missing`: makes a signature, so once for
    /// each fetch. None: this client's authorizations are not fetched.
    fn token_request(&self, now: Timestamp) -> Option<TokenRequest> {
        let _ = now;
        None
    }

    /// Reads and keeps the answer to [`Client::token_request`]. The error is `Broken` or `Overloaded`.
    fn authorized(&self, response: &Response<'_>) -> Result<(), Verdict> {
        let _ = response;
        Ok(())
    }

    /// After `Unauthorized` or `Wedged`: whether there is, or may be made now, another authorization than the
    /// one the push was sent with. Many pushes refused at once thus cause one renewal. False: treat as `Broken`.
    fn renew(&self, origin: &str, used: &Bytes, now: Timestamp) -> bool;

    /// The error is this push's answer: it cannot be made into a request.
    fn request(&self, push: &Push, authorization: Option<&Bytes>, now: Timestamp) -> Result<Request, Answer>;

    fn read(&self, response: &Response<'_>) -> Verdict;

    /// Why the peer ends a connection, from GOAWAY's debug data, for logs and for what was not processed.
    fn goaway(&self, debug: &[u8]) -> Reason {
        let _ = debug;
        "goaway"
    }

    fn quota(&self) -> Quota;
}

/// The value of the header `authorization`.
#[derive(Clone, PartialEq, Eq)]
pub enum Authorization {
    /// Authorized otherwise: by the connection's certificate.
    NotNeeded,
    Ready(Bytes),
    /// Still good; to be fetched anew meanwhile, without making any push wait.
    Due(Bytes),
    /// To be fetched before anything is sent.
    Missing,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotNeeded => "NotNeeded",
            Self::Ready(_) => "Ready",
            Self::Due(_) => "Due",
            Self::Missing => "Missing",
        })
    }
}

/// A POST to be sent to a token endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRequest {
    pub url: Arc<str>,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body is a signed assertion: whoever reads it can be the app for an hour.
        f.debug_struct("TokenRequest").field("url", &self.url).finish_non_exhaustive()
    }
}

/// What the push service lets one credential send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    /// Pushes a second over all connections; none: the service names no number.
    pub per_second: Option<f64>,
    /// Pushes that may be sent at once after a pause.
    pub burst: f64,
    /// The rate grows evenly from nothing to `per_second` over this time after a pause.
    pub ramp_up: Duration,
    /// What one device may be sent, each limit by itself.
    pub per_device: &'static [DeviceLimit],
}

impl Quota {
    pub const UNLIMITED: Self =
        Self { per_second: None, burst: 0.0, ramp_up: Duration::ZERO, per_device: &[] };

    /// The service's quota with an operator's rate instead of its own; the burst becomes one second's worth.
    pub(crate) fn with_rate(self, per_second: Option<f64>) -> Self {
        match per_second {
            Some(rate) => Self { per_second, burst: rate.max(1.0), ..self },
            None => self,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimit {
    pub pushes: u32,
    pub window: Duration,
}

/// One request, without the pseudo-headers that the pool adds (`:method POST`, `:scheme https`, `:authority`).
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub path: String,
    /// Names in lower case (RFC 9113 §8.2). `shared` values are the same for many requests and worth a
    /// place in HPACK's table.
    pub headers: Vec<Header>,
    pub body: Bytes,
}

#[derive(Clone)]
pub struct Header {
    pub name: &'static str,
    pub value: Bytes,
    pub shared: bool,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One of them is the authorization.
        f.debug_struct("Header").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A response, whole: bodies of push services are small and bounded by the pool.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// Nobody is believed who asks for more: the next answer may say so again.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);

impl Response<'_> {
    /// `Retry-After`, within bounds that no sum overflows.
    pub fn asked_to_wait(&self) -> Option<Duration> {
        self.retry_after.map(|after| after.min(WAIT_MAX))
    }
}

/// What a response means, by what the pool does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The answer for this push; the pool goes on.
    Answer(Answer),
    /// The authorization was not taken: make a new one (the pool asks once) and send this push again.
    Unauthorized { reason: Reason },
    /// As `Unauthorized`, and this connection is of no more use: what is on it ends, nothing new starts.
    Wedged { reason: Reason },
    /// The credential itself is bad: every push will fail until an operator acts. The pool stops asking for
    /// a while, raises the alarm and answers `Later`.
    Broken { reason: Reason },
    /// The service as a whole is busy or out of order: slow down for `after` (none: by back-off), try this again.
    Overloaded { reason: Reason, after: Option<Duration> },
}
