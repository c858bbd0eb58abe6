//! The interface between pools and services' folders: the request that a folder builds, and the response that it
//! interprets. Pools know HTTP and no service; folders know a service and no socket.
//!
//! A [`Client`] is one credential. It never waits: the pool fetches authorizations over the network (OAuth2), one fetch
//! at a time, and passes the response to the client. Any thread may call any method, and no method holds a lock for
//! longer than one signature takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use noroshi_types::{PushToken, Timestamp};
use rustls::sign::CertifiedKey;

use crate::push::{Answer, Push, Reason};

/// Where the channels of an app are managed, and for which bundle id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSite {
    pub origin: Arc<str>,
    pub bundle: String,
}

/// One credential of one app at one push service.
pub trait Client: Send + Sync + fmt::Debug {
    /// Scheme, host and port of the server for this token; connections are pooled by it. The error is the reason why
    /// the token is unusable.
    fn origin(&self, token: &PushToken) -> Result<Arc<str>, Reason>;

    /// The server for broadcasts to channels. None: the service has no channels.
    fn broadcast_origin(&self) -> Option<Arc<str>> {
        None
    }

    /// Where channels are managed. None: the service has none.
    fn channels(&self) -> Option<&ChannelSite> {
        None
    }

    /// Whether a new connection carries one request until the first answer that does not reject the authorization (APNs
    /// with token authentication).
    fn one_until_authorised(&self) -> bool {
        false
    }

    /// The client certificate of the TLS handshake (APNs with a certificate).
    fn identity(&self) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn authorization(&self, origin: &str, now: Timestamp) -> Authorization;

    /// The request for an authorization, after `Due` or `Missing`. Signs, so call it once for each fetch. None: this
    /// client fetches no authorizations.
    fn token_request(&self, now: Timestamp) -> Option<TokenRequest> {
        let _ = now;
        None
    }

    /// Reads and stores the response to [`Client::token_request`]. The error is `Broken` or `Overloaded`.
    fn authorized(&self, response: &Response<'_>) -> Result<(), Verdict> {
        let _ = response;
        Ok(())
    }

    /// After `Unauthorized` or `Wedged`: whether another authorization than `used` exists or may be made now. Many
    /// rejected pushes thus cause one renewal. False: treat the verdict as `Broken`.
    fn renew(&self, origin: &str, used: &Bytes, now: Timestamp) -> bool;

    /// For a service whose requests carry several pushes; the pool then calls neither `request` nor `read`.
    fn batches(&self) -> Option<&dyn Batches> {
        None
    }

    /// The error is the answer to a push that cannot become a request.
    fn request(&self, push: &Push, authorization: Option<&Bytes>, now: Timestamp) -> Result<Request, Answer>;

    /// A header of responses that decides with the status; its value is in [`Response::header`].
    fn answer_header(&self) -> Option<&'static str> {
        None
    }

    fn read(&self, response: &Response<'_>) -> Verdict;

    /// The reason in GOAWAY's debug data, for logs and for unprocessed pushes.
    fn goaway(&self, debug: &[u8]) -> Reason {
        let _ = debug;
        "goaway"
    }
}

/// A credential whose requests carry several pushes, with an answer for each.
pub trait Batches: Send + Sync {
    fn limits(&self) -> BatchLimits;

    /// The request for the first `count` pushes: as many as fit, at least one. `pushes` is not empty.
    fn request(&self, pushes: &[&Push], now: Timestamp) -> BatchRequest;

    /// `pushes`: those of the request, in their order.
    fn read(&self, pushes: &[&Push], response: &BatchResponse<'_>) -> BatchVerdict;
}

/// The operator's limits for requests of one credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    pub pushes_max: usize,
    /// Connections, each with one request at a time.
    pub connections_max: usize,
    pub timeout: Duration,
}

#[derive(Debug, Clone)]
pub struct BatchRequest {
    pub request: Request,
    pub count: usize,
}

/// A response to a request with several pushes.
#[derive(Debug, Clone, Copy)]
pub struct BatchResponse<'a> {
    pub status: u16,
    pub retry_after: Option<Duration>,
    /// None: it is too large, or ended too early.
    pub body: Option<&'a [u8]>,
}

/// The meaning of a response to a request with several pushes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchVerdict {
    /// In the order of the pushes, one for each.
    Each(Vec<Answer>),
    All(Verdict),
}

/// The value of the header `authorization`.
#[derive(Clone, PartialEq, Eq)]
pub enum Authorization {
    /// Authorized by other means: the connection's certificate.
    NotNeeded,
    Ready(Bytes),
    /// Valid, but due for renewal. No push waits for it.
    Due(Bytes),
    /// Must be fetched before anything is sent.
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

/// A POST for a token endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRequest {
    pub url: Arc<str>,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body is a signed assertion, which authorizes its bearer as the app for an hour.
        f.debug_struct("TokenRequest").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The rate that a push service allows one credential.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    /// Pushes per second over all connections; none: the service names no rate.
    pub per_second: Option<f64>,
    /// Pushes at once after a pause.
    pub burst: f64,
    /// After a pause the rate grows linearly from zero to `per_second` over this time.
    pub ramp_up: Duration,
    /// Limits for one device; each applies separately.
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
    /// Names in lower case (RFC 9113 §8.2). A `shared` value occurs in many requests and is worth an entry in HPACK's
    /// table.
    pub headers: Vec<Header>,
    pub body: Bytes,
    /// The content before encryption, if `body` is encrypted: for the record of what was sent.
    pub readable: Option<Bytes>,
}

#[derive(Clone)]
pub struct Header {
    pub name: &'static str,
    pub value: Bytes,
    pub shared: bool,
}

impl Header {
    /// Authorizes its bearer as the app.
    pub(crate) fn is_secret(&self) -> bool {
        self.name == "authorization"
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One of the values is the authorization.
        f.debug_struct("Header").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A complete response: bodies of push services are small, and the pool limits them.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    pub status: u16,
    pub retry_after: Option<Duration>,
    /// The value of [`Client::answer_header`]; empty without one.
    pub header: &'a [u8],
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// Longer waits are cut: the next answer may ask again.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);

impl Response<'_> {
    /// `Retry-After`, limited so that no sum overflows.
    pub fn asked_to_wait(&self) -> Option<Duration> {
        self.retry_after.map(|after| after.min(WAIT_MAX))
    }
}

impl BatchResponse<'_> {
    /// As [`Response::asked_to_wait`].
    pub fn asked_to_wait(&self) -> Option<Duration> {
        self.retry_after.map(|after| after.min(WAIT_MAX))
    }
}

/// The meaning of a response. The variants differ in what the pool does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The final answer for this push.
    Answer(Answer),
    /// The authorization was rejected: renew it (once for all pushes) and send this push again.
    Unauthorized { reason: Reason },
    /// As `Unauthorized`, and this connection is unusable: its pushes end, and no new one starts.
    Wedged { reason: Reason },
    /// The credential is invalid: every push fails until an operator acts. The pool stops sending for a while, reports
    /// it and answers `Later`.
    Broken { reason: Reason },
    /// The service as a whole is overloaded or failing: slow down for `after` (none: back off), and send this push
    /// again.
    Overloaded { reason: Reason, after: Option<Duration> },
}

impl Verdict {
    /// Why the service did not accept the push. `None`: it did.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Answer(answer) => answer.reason(),
            Self::Unauthorized { reason }
            | Self::Wedged { reason }
            | Self::Broken { reason }
            | Self::Overloaded { reason, .. } => Some(reason),
        }
    }
}
