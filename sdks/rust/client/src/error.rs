//! Errors.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::protocol::Response;
pub use crate::types::Code;

/// The cause of an error.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Every error of this library. Its [code](Self::code) is stable: of this library, of an error frame, or of a problem document.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    message: String,
    topic: Option<String>,
    reason: Option<String>,
    status: Option<u16>,
    field: Option<String>,
    request_id: Option<String>,
    retry_after: Option<Duration>,
    cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            topic: None,
            reason: None,
            status: None,
            field: None,
            request_id: None,
            retry_after: None,
            cause: None,
        }))
    }

    pub(crate) fn caused_by(mut self, cause: BoxError) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    pub(crate) fn about_topic(mut self, topic: String, reason: String) -> Self {
        self.0.topic = Some(topic);
        self.0.reason = Some(reason);
        self
    }

    /// Of an answer that is not a success: a problem document (RFC 9457), or the page of a proxy.
    pub(crate) fn problem(response: Response) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Problem {
            code: Option<String>,
            title: Option<String>,
            detail: Option<String>,
            field: Option<String>,
        }
        let problem: Problem = serde_json::from_slice(&response.body).unwrap_or_default();
        let code = problem.code.unwrap_or_else(|| format!("http_{}", response.status));
        let text = problem.detail.or(problem.title).unwrap_or_else(|| format!("status {}", response.status));
        let mut error = Self::new(Code::from(code.as_str()), text);
        error.0.status = Some(response.status);
        error.0.field = problem.field;
        error.0.request_id = response.request_id;
        error.0.retry_after = response.retry_after;
        error
    }

    /// The kind of error. Stable.
    pub fn code(&self) -> &Code {
        &self.0.code
    }

    /// For people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The topic that the error is about.
    pub fn topic(&self) -> Option<&str> {
        self.0.topic.as_deref()
    }

    /// Why the topic was refused.
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.as_deref()
    }

    /// The HTTP status of a problem document.
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The wrong field or parameter of a request.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// The id of the request in the logs of the service.
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// The time to wait before another attempt, if the service stated it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)?;
        match &self.0.request_id {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { code, message, topic, reason, status, field, request_id, retry_after, cause } = &*self.0;
        f.debug_struct("Error")
            .field("code", code)
            .field("message", message)
            .field("topic", topic)
            .field("reason", reason)
            .field("status", status)
            .field("field", field)
            .field("request_id", request_id)
            .field("retry_after", retry_after)
            .field("cause", cause)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as &(dyn StdError + 'static))
    }
}
