//! Requests: each is sent when it is awaited, and repeated within limits.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt, Full, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, Inner};
use crate::error::{BoxError, Error, Problem};
use crate::http::{address, escape};
use crate::{retry, retry_after};

/// A larger answer is not from the service.
const ANSWER_MAX: usize = 256 << 20;
const AGENT: &str = concat!("noroshi-rust/", env!("CARGO_PKG_VERSION"));
const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What is sent, in each attempt.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Escaped.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    content_type: Option<&'static str>,
    accept: Option<&'static str>,
    /// Another attempt changes nothing: the method is idempotent, or there is a key.
    pub(crate) can_repeat: bool,
    pub(crate) idempotency_key: Option<String>,
    traceparent: Option<String>,
}

impl Call {
    pub(crate) fn new(method: Method, path: String) -> Self {
        let can_repeat = !matches!(method, Method::POST | Method::PATCH);
        Self {
            method,
            path,
            query: Vec::new(),
            body: Bytes::new(),
            content_type: None,
            accept: None,
            can_repeat,
            idempotency_key: None,
            traceparent: None,
        }
    }

    pub(crate) fn ndjson(mut self, body: Bytes) -> Self {
        self.body = body;
        (self.content_type, self.accept) = (Some(NDJSON), Some(NDJSON));
        self
    }
}

type Read<T> = fn(&[u8]) -> Result<T, serde_json::Error>;

/// A request, which is sent when it is awaited.
///
/// After a network error, and after the statuses 408, 425, 429, 500, 502, 503 and 504, it is repeated: after a random part of a
/// backoff that doubles, and not before the `Retry-After` of the answer, within the limits of the [`Builder`](crate::Builder). A
/// request that must not happen twice and takes no idempotency key is repeated only if the service has certainly not processed it.
#[must_use = "a request is sent when it is awaited"]
pub struct Request<T> {
    client: Client,
    call: Result<Call, Error>,
    read: Read<T>,
}

impl<T> Request<T> {
    /// Sets the W3C trace context of this request.
    pub fn traceparent(mut self, value: impl Into<String>) -> Self {
        if let Ok(call) = &mut self.call {
            call.traceparent = Some(value.into());
        }
        self
    }

    /// Sets the `Idempotency-Key`: for 24 hours, a request with the same key and the same content returns the first answer and does
    /// nothing again. Use the id of what causes the notification, so that repeating your own work publishes once. The default is a
    /// random key for each request.
    ///
    /// For requests that publish or create campaigns, Live Activities and broadcasts. Other requests ignore it.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        if let Ok(call) = &mut self.call {
            if call.idempotency_key.is_some() {
                call.idempotency_key = Some(key.into());
            }
        }
        self
    }

    /// Another attempt changes nothing.
    pub(crate) fn repeatable(mut self) -> Self {
        if let Ok(call) = &mut self.call {
            call.can_repeat = true;
        }
        self
    }

    /// Takes an idempotency key.
    pub(crate) fn keyed(mut self) -> Self {
        if let Ok(call) = &mut self.call {
            match retry::key() {
                Some(key) => {
                    call.can_repeat = true;
                    call.idempotency_key = Some(key);
                }
                None => {
                    self.call =
                        Err(Error::Invalid("the operating system returned no random bytes".to_owned()))
                }
            }
        }
        self
    }

    pub(crate) fn query(mut self, pairs: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        if let Ok(call) = &mut self.call {
            call.query.extend(pairs);
        }
        self
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        if let Ok(call) = &mut self.call {
            match serde_json::to_vec(body) {
                Ok(json) => {
                    call.body = json.into();
                    call.content_type = Some(JSON);
                }
                Err(error) => self.call = Err(Error::Invalid(error.to_string())),
            }
        }
        self
    }
}

impl<T: Send + 'static> IntoFuture for Request<T> {
    type Output = Result<T, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { client, call, read } = self;
            client.inner.send(&call?, read).await
        })
    }
}

impl<T> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("call", &self.call).finish_non_exhaustive()
    }
}

/// A path with escaped segments in place of `{}`.
pub(crate) fn path(template: &str, segments: &[&str]) -> Result<String, Error> {
    let mut parts = template.split("{}");
    let mut path = parts.next().unwrap_or_default().to_owned();
    for (part, segment) in parts.zip(segments) {
        if matches!(*segment, "" | "." | "..") {
            return Err(Error::Invalid(format!("{template}: {segment:?} cannot be a part of the path")));
        }
        path += &escape(segment);
        path += part;
    }
    Ok(path)
}

impl Client {
    fn request<T>(&self, method: Method, template: &str, segments: &[&str], read: Read<T>) -> Request<T> {
        let call = path(template, segments).map(|path| Call::new(method, path));
        Request { client: self.clone(), call, read }
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, template: &str, segments: &[&str]) -> Request<T> {
        self.request(Method::GET, template, segments, |body| serde_json::from_slice(body))
    }

    /// Creates or replaces something, and reads its new state.
    pub(crate) fn put<T: DeserializeOwned>(&self, template: &str, segments: &[&str]) -> Request<T> {
        self.request(Method::PUT, template, segments, |body| serde_json::from_slice(body))
    }

    /// Not repeated if the service may have processed it, unless it is `repeatable` or `keyed`.
    pub(crate) fn post<T: DeserializeOwned>(&self, template: &str, segments: &[&str]) -> Request<T> {
        self.request(Method::POST, template, segments, |body| serde_json::from_slice(body))
    }

    /// As `post`.
    pub(crate) fn patch<T: DeserializeOwned>(&self, template: &str, segments: &[&str]) -> Request<T> {
        self.request(Method::PATCH, template, segments, |body| serde_json::from_slice(body))
    }

    pub(crate) fn delete<T: DeserializeOwned>(&self, template: &str, segments: &[&str]) -> Request<T> {
        self.request(Method::DELETE, template, segments, |body| serde_json::from_slice(body))
    }

    /// A request without an answer.
    pub(crate) fn act(&self, method: Method, template: &str, segments: &[&str]) -> Request<()> {
        self.request(method, template, segments, |_| Ok(()))
    }
}

/// A failure, and whether another attempt may help and does no harm.
struct Failure {
    error: Error,
    may_repeat: bool,
}

impl Inner {
    /// Sends a request until it succeeds or must not be repeated.
    pub(crate) async fn send<T>(
        &self,
        call: &Call,
        read: impl Fn(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<T, Error> {
        let headers = self.headers(call)?;
        let deadline = self.now() + self.limits.deadline;
        let mut attempt = 1;
        loop {
            let began = self.now();
            let Failure { mut error, may_repeat } = match self.attempt(call, &headers, &read, deadline).await
            {
                Ok(answer) => {
                    let took = began.elapsed();
                    tracing::debug!(method = %call.method, path = call.path, attempt, ?took, "noroshi request");
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            error.set_attempts(attempt);
            let retry_after = error.refused().and_then(|refused| refused.retry_after);
            let wait = retry::wait(attempt, self.random(), retry_after);
            let will_repeat = may_repeat && attempt < self.limits.attempts && self.now() + wait <= deadline;
            let retry_in = will_repeat.then_some(wait);
            tracing::warn!(method = %call.method, path = call.path, attempt, %error, ?retry_in, "noroshi request failed");
            if !will_repeat {
                return Err(error);
            }
            self.sleep(wait).await;
            attempt += 1;
        }
    }

    fn headers(&self, call: &Call) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, self.bearer.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let traceparent =
            call.traceparent.clone().or_else(|| self.traceparent.as_ref().and_then(|current| current()));
        for (name, value) in [
            (CONTENT_TYPE, call.content_type),
            (ACCEPT, call.accept),
            (IDEMPOTENCY_KEY, call.idempotency_key.as_deref()),
            (TRACEPARENT, traceparent.as_deref()),
        ] {
            let Some(value) = value else { continue };
            let value = HeaderValue::try_from(value)
                .map_err(|_| Error::Invalid(format!("the value of {name} must be printable ASCII")))?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    async fn attempt<T>(
        &self,
        call: &Call,
        headers: &HeaderMap,
        read: impl Fn(&[u8]) -> Result<T, serde_json::Error>,
        deadline: Instant,
    ) -> Result<T, Failure> {
        let no_answer = |is_timeout, may_repeat, cause| Failure {
            error: Error::no_answer(call.method.clone(), call.path.clone(), is_timeout, cause),
            may_repeat,
        };
        let uri = address(&self.base, &call.path, &call.query);
        let request =
            http::Request::builder().method(&call.method).uri(uri).body(Full::from(call.body.clone()));
        let mut request = request
            .map_err(|error| Failure { error: Error::Invalid(error.to_string()), may_repeat: false })?;
        *request.headers_mut() = headers.clone();
        let exchange = async {
            let response = self.pool.request(request).await.map_err(|error| {
                // Without a connection, nothing was sent.
                let may_repeat = call.can_repeat || error.is_connect();
                no_answer(false, may_repeat, error.into())
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await;
            let body = body.map_err(|error: BoxError| no_answer(false, call.can_repeat, error))?;
            Ok((head, body.to_bytes()))
        };
        let limit = (Instant::now() + self.limits.timeout).min(deadline);
        let is_last = limit == deadline;
        let (head, body) = match timeout_at(limit, exchange).await {
            Ok(result) => result?,
            Err(elapsed) => return Err(no_answer(true, call.can_repeat && !is_last, elapsed.into())),
        };
        let status = head.status.as_u16();
        if !head.status.is_success() {
            // The page of a proxy is no problem document.
            let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
            let mut refused = problem.refused(call.method.clone(), call.path.clone(), Some(status));
            let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
            refused.request_id = text("x-request-id").map(str::to_owned);
            refused.retry_after =
                text(RETRY_AFTER.as_str()).and_then(|value| retry_after::parse(value, SystemTime::now()));
            let may_repeat = retry::may_help(status, call.can_repeat);
            return Err(Failure { error: Error::Refused(Box::new(refused)), may_repeat });
        }
        // An answer that was cut off.
        read(&body).map_err(|error| no_answer(false, call.can_repeat, error.into()))
    }

    #[cfg(not(test))]
    fn now(&self) -> Instant {
        Instant::now()
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "tests have a clock in self")]
    fn random(&self) -> f64 {
        retry::random()
    }

    #[cfg(not(test))]
    async fn sleep(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }

    #[cfg(test)]
    fn now(&self) -> Instant {
        Instant::now() + self.clock.waited()
    }

    #[cfg(test)]
    fn random(&self) -> f64 {
        self.clock.random()
    }

    #[cfg(test)]
    async fn sleep(&self, wait: Duration) {
        self.clock.wait(wait);
    }
}
