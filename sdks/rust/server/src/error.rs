//! Errors of requests.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use crate::types::Code;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a request did not succeed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The service answered with a problem document (RFC 9457).
    Refused(Box<Refused>),
    /// There was no answer, or one that is not what the API promises. The service may have processed the request.
    NoAnswer(Box<NoAnswer>),
    /// The request cannot be sent: a part of a path is empty, or a header is not printable ASCII.
    Invalid(String),
}

/// A problem document.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The HTTP status. In a line of a batch: the status that the line would have had as a request.
    pub status: u16,
    /// Stable; texts are not. An answer that is not from Noroshi, such as that of a proxy, has the code `http_STATUS`.
    pub code: Code,
    /// What the code means.
    pub title: Option<String>,
    /// For people.
    pub detail: Option<String>,
    /// The path of the wrong field, or the name of the wrong parameter.
    pub field: Option<String>,
    /// The id of the request in the logs of the service.
    pub request_id: Option<String>,
    /// The time to wait before another attempt, if the service stated it.
    pub retry_after: Option<Duration>,
    /// Of the request.
    pub method: http::Method,
    /// Of the request.
    pub path: String,
    /// How many requests were sent. 0 for a line of a batch.
    pub attempts: u32,
}

/// A request without an answer.
#[derive(Debug)]
#[non_exhaustive]
pub struct NoAnswer {
    /// Of the request.
    pub method: http::Method,
    /// Of the request.
    pub path: String,
    /// How many requests were sent.
    pub attempts: u32,
    /// Whether a timeout or the deadline ended it.
    pub is_timeout: bool,
    cause: BoxError,
}

impl Error {
    pub(crate) fn no_answer(method: http::Method, path: String, is_timeout: bool, cause: BoxError) -> Self {
        Self::NoAnswer(Box::new(NoAnswer { method, path, attempts: 1, is_timeout, cause }))
    }

    pub(crate) fn set_attempts(&mut self, count: u32) {
        match self {
            Self::Refused(refused) => refused.attempts = count,
            Self::NoAnswer(failed) => failed.attempts = count,
            Self::Invalid(_) => {}
        }
    }

    /// The stable code, if the service answered.
    pub fn code(&self) -> Option<&Code> {
        self.refused().map(|refused| &refused.code)
    }

    /// The HTTP status, if the service answered.
    pub fn status(&self) -> Option<u16> {
        self.refused().map(|refused| refused.status)
    }

    /// The problem document, if the service answered.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::NoAnswer(failed) => failed.fmt(f),
            Self::Invalid(text) => f.write_str(text),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::NoAnswer(failed) => Some(&*failed.cause),
            Self::Refused(_) | Self::Invalid(_) => None,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, status, code, .. } = self;
        write!(f, "{method} {path}: {status} {code}")?;
        if let Some(text) = self.detail.as_ref().or(self.title.as_ref()) {
            write!(f, ": {text}")?;
        }
        if let Some(field) = &self.field {
            write!(f, " (field {field})")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, " (request {id})")?;
        }
        Ok(())
    }
}

impl StdError for Refused {}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, attempts, .. } = self;
        write!(f, "{method} {path}: no usable answer in {attempts} attempts: {}", innermost(&*self.cause))
    }
}

/// The outer errors only add context.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// As the service writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Problem {
    status: Option<u16>,
    code: Option<Code>,
    title: Option<String>,
    detail: Option<String>,
    field: Option<String>,
}

impl Problem {
    /// `status`: of the answer; None for a line of a batch, whose problem has it.
    pub(crate) fn refused(self, method: http::Method, path: String, status: Option<u16>) -> Refused {
        let status = status.or(self.status).unwrap_or_default();
        Refused {
            status,
            code: self.code.unwrap_or_else(|| Code::from(format!("http_{status}").as_str())),
            title: self.title,
            detail: self.detail,
            field: self.field,
            request_id: None,
            retry_after: None,
            method,
            path,
            attempts: 0,
        }
    }
}
