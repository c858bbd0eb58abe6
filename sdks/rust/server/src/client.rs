//! The client and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::app::App;
use crate::error::BoxError;
use crate::http::{Pool, base, pool};
use crate::retry::Limits;

type Traceparent = dyn Fn() -> Option<String> + Send + Sync;

/// Configures a [`Client`].
#[must_use]
pub struct Builder {
    url: String,
    key: String,
    limits: Limits,
    tls: Option<rustls::ClientConfig>,
    traceparent: Option<Box<Traceparent>>,
}

impl Builder {
    /// The timeout of each attempt. Default: 10 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.timeout = timeout;
        self
    }

    /// The deadline of a request with all its attempts and the waits between them. Default: 30 seconds.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.limits.deadline = deadline;
        self
    }

    /// How often a request is sent at most. 1 never repeats. Default: 4.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.limits.attempts = attempts.max(1);
        self
    }

    /// Settings of TLS, for instance with the certificate of a private authority. Default: the root certificates that the crate's
    /// features name.
    pub fn tls(mut self, config: rustls::ClientConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// The W3C trace context of a request, such as that of the current span. The service continues the trace of requests that
    /// publish.
    pub fn traceparent(mut self, current: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.traceparent = Some(Box::new(current));
        self
    }

    /// Fails if the address or the key is wrong. Does not connect.
    pub fn build(self) -> Result<Client, BoxError> {
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", self.key))
            .map_err(|_| "an API key is printable ASCII")?;
        if self.key.is_empty() {
            return Err("an API key is required".into());
        }
        // It must not appear in logs.
        bearer.set_sensitive(true);
        Ok(Client {
            inner: Arc::new(Inner {
                base: base(&self.url)?,
                bearer,
                limits: self.limits,
                pool: pool(self.tls)?,
                traceparent: self.traceparent,
                #[cfg(test)]
                clock: crate::tests::Clock::default(),
            }),
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("url", &self.url)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Sends requests with an API key. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// Without a slash at its end.
    pub(crate) base: String,
    pub(crate) bearer: HeaderValue,
    pub(crate) limits: Limits,
    pub(crate) pool: Pool,
    pub(crate) traceparent: Option<Box<Traceparent>>,
    #[cfg(test)]
    pub(crate) clock: crate::tests::Clock,
}

impl Client {
    /// A client for the public address of the service, such as `https://push.example.com`. The key belongs to one app and has
    /// scopes.
    pub fn new(url: impl Into<String>, key: impl Into<String>) -> Result<Self, BoxError> {
        Self::builder(url, key).build()
    }

    /// Like [`new`](Self::new), with settings.
    pub fn builder(url: impl Into<String>, key: impl Into<String>) -> Builder {
        let limits =
            Limits { timeout: Duration::from_secs(10), deadline: Duration::from_secs(30), attempts: 4 };
        Builder { url: url.into(), key: key.into(), limits, tls: None, traceparent: None }
    }

    /// The routes of an app. Most of them need a key of this app with the scope `admin`.
    pub fn app(&self, name: impl Into<String>) -> App {
        App { client: self.clone(), name: name.into() }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base", &self.inner.base).finish_non_exhaustive()
    }
}
