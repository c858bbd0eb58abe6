//! Why people are refused.

use std::time::Duration;

use noroshi_types::{Invalid, Permission};

/// Why a person is refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refused {
    /// Nobody learns which of the two was wrong.
    #[error("the e-mail address or the password is wrong")]
    LogIn,
    #[error("the code is wrong, or was used before")]
    Code,
    #[error("the link is not valid: it expired, was used before, or is incomplete")]
    Link,
    #[error("the log-in was not completed in time; start again")]
    Ticket,
    #[error("nobody is logged in: the session expired or was ended")]
    Session,
    #[error("too many log-ins failed; wait before the next one")]
    TooMany { retry_after: Duration },
    #[error("too many log-ins at once; try again")]
    Busy,
    #[error("this needs a log-in within the last {} minutes", .0.as_secs() / 60)]
    NotConfirmed(Duration),
    #[error("your role in this app lacks the permission \"{}\"", .0.as_str())]
    Lacks(Permission),
    #[error("{field}: {rule}")]
    Invalid { field: &'static str, rule: Invalid },
    /// The state of the person does not allow it.
    #[error("{0}")]
    State(&'static str),
    #[error(transparent)]
    Store(#[from] noroshi_store::Error),
}

impl Refused {
    /// For a metric.
    pub fn label(&self) -> &'static str {
        match self {
            Self::LogIn | Self::Code | Self::Link | Self::Ticket | Self::Session => "wrong",
            Self::TooMany { .. } => "too_many",
            Self::Busy => "busy",
            Self::NotConfirmed(_) | Self::Lacks(_) | Self::Invalid { .. } | Self::State(_) => "refused",
            Self::Store(_) => "failed",
        }
    }

    pub(crate) fn invalid(field: &'static str, rule: impl Into<String>) -> Self {
        Self::Invalid { field, rule: Invalid::new(rule.into()) }
    }
}
