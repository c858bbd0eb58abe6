//! Who writes a campaign: a person of the console, or an API key. Extracted after the credential was checked.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;

use crate::error::Problem;
use crate::request::access::{Authenticator, Listener};
use crate::request::session::{self, Person};

/// Precedes the name of an API key.
const KEY: &str = "key:";

pub(crate) enum Author {
    Person(Box<Person>),
    /// The key's name.
    Key(String),
}

impl Author {
    /// As campaigns keep it: no e-mail address begins with `key:`.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Person(person) => person.caller.person.email.clone(),
            Self::Key(name) => format!("{KEY}{name}"),
        }
    }

    /// For an action that needs a recent log-in of a person.
    pub(crate) fn require_confirmed(&self) -> Result<(), Problem> {
        match self {
            Self::Person(person) => Ok(person.caller.require_confirmed(person.desk.now())?),
            Self::Key(_) => Ok(()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Author
where
    Arc<Authenticator>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let authenticator = Arc::<Authenticator>::from_ref(state);
        if authenticator.listener == Listener::Console {
            return Ok(Self::Person(Box::new(session::person_of(parts)?.clone())));
        }
        let access = authenticator.key(parts)??;
        let key = authenticator.auth.keys(access.app).into_iter().find(|key| key.id == access.key);
        Ok(Self::Key(key.map(|key| key.name).unwrap_or_default()))
    }
}
