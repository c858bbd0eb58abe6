//! One attempt at a push: the request and the response, for the record that operators read later.
//!
//! A push selects which of its attempts are reported. If all of them are, the pool keeps the request until the response
//! arrives. If only failures are, it builds the request of a failed attempt a second time, for the same moment. Only
//! authorization and encryption differ, and the report has neither: it has the content before encryption.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use noroshi_types::Timestamp;

/// Responses of push services are a few hundred bytes.
const RESPONSE_BYTES_MAX: usize = 1 << 10;

/// Which attempts at a push are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Record {
    #[default]
    Nothing,
    /// Those that the push service did not accept.
    Failures,
    All,
}

impl Record {
    /// `reason`: why the push service did not accept the push; `None`: it did.
    pub(crate) fn wants(self, reason: Option<&'static str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Failures => reason.is_some(),
            Self::All => true,
        }
    }
}

/// One attempt.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub sent_at: Timestamp,
    /// Until the response, or until the pool gave up.
    pub took: Duration,
    /// Scheme, host and port.
    pub origin: Arc<str>,
    pub path: String,
    /// Without the authorization. Names in lower case.
    pub headers: Vec<(&'static str, Bytes)>,
    /// Before encryption, where the service has one.
    pub body: Bytes,
    pub response: Option<Received>,
    /// Why the push service did not accept it, or why there is no response.
    pub reason: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub status: u16,
    /// At most 1,024 bytes.
    pub body: Bytes,
}

impl Received {
    pub(crate) fn new(status: u16, body: &[u8]) -> Self {
        Self { status, body: Bytes::copy_from_slice(&body[..body.len().min(RESPONSE_BYTES_MAX)]) }
    }
}
