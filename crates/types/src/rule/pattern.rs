//! The pattern of a topic rule.
//!
//! Patterns are matched level by level; levels are separated by `/`, so a name without `/` is one level.
//!
//! | in a pattern | matches |
//! |---|---|
//! | text | exactly itself, byte by byte |
//! | `+` as a whole level | any single level, including an empty one |
//! | `#` as the last level | any number of further levels, including none: `a/#` also matches `a` |
//! | `*`, once in a level | one or more characters, never `/` |
//! | `{user}`, `{device}`, `{claim:name}`, once in a level | the device's value, verbatim |
//!
//! A level contains at most one `*` or variable. With two, a device could choose values with ambiguous
//! boundaries: `{user}-{claim:team}` would give user `a-b` of team `c` the topics of user `a` of team `b-c`.
//!
//! Values are compared, not parsed: `+`, `#` and `*` in them are literal. A value matches within one level
//! only, so a value that contains `/` or is empty matches nothing.

use std::fmt;

use super::claims::ClaimName;
use super::{Claims, Subject};
use crate::Invalid;
use crate::topic::{fits, is_server_topic};

/// A valid pattern, with its original text.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    levels: Box<[Level]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    /// Text without variables.
    Literal(Box<str>),
    /// `+`
    Any,
    /// `#`
    Rest,
    /// A variable part between two literals.
    Hole { before: Box<str>, what: Variable, after: Box<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Variable {
    /// `*`
    Some,
    User,
    Device,
    Claim(ClaimName),
}

/// A pattern error. The position counts bytes from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (at byte {at})")]
pub struct PatternError {
    pub at: usize,
    pub reason: &'static str,
}

impl From<PatternError> for Invalid {
    fn from(error: PatternError) -> Self {
        Invalid::new(error.to_string())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if !fits(text) {
            return Err(PatternError {
                at: 0,
                reason: "a pattern must be 1 to 255 bytes long, unless the operator allows more",
            });
        }
        if is_server_topic(text) {
            return Err(PatternError { at: 0, reason: "rules do not apply to the service's own topics" });
        }
        if let Some(at) = text.find(char::is_control) {
            return Err(PatternError { at, reason: "a pattern must not contain control characters" });
        }
        let mut levels = Vec::new();
        let mut at = 0;
        for level in text.split('/') {
            let is_last = at + level.len() == text.len();
            levels.push(
                Level::parse(level, is_last)
                    .map_err(|(offset, reason)| PatternError { at: at + offset, reason })?,
            );
            at += level.len() + 1;
        }
        if text.starts_with('$') && !matches!(levels[0], Level::Literal(_)) {
            return Err(PatternError {
                at: 0,
                reason: "a first level that starts with \"$\" must be plain text",
            });
        }
        Ok(Self { text: text.into(), levels: levels.into() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn names_user(&self) -> bool {
        self.holes().any(|what| *what == Variable::User)
    }

    /// The claims that it contains.
    pub fn claims(&self) -> impl Iterator<Item = &ClaimName> {
        self.holes().filter_map(|what| match what {
            Variable::Claim(name) => Some(name),
            Variable::Some | Variable::User | Variable::Device => None,
        })
    }

    fn holes(&self) -> impl Iterator<Item = &Variable> {
        self.levels.iter().filter_map(|level| match level {
            Level::Hole { what, .. } => Some(what),
            Level::Literal(_) | Level::Any | Level::Rest => None,
        })
    }

    /// MQTT 5 §4.7.2: leading wildcards do not match names that start with `$`. Neither do variables.
    fn is_apart_from(&self, name: &str) -> bool {
        name.starts_with('$') != self.text.starts_with('$')
    }

    /// Whether it matches a topic for a device.
    pub fn matches(&self, topic: &str, subject: Subject<'_>) -> bool {
        if self.is_apart_from(topic) {
            return false;
        }
        let mut named = topic.split('/');
        for level in &self.levels {
            if *level == Level::Rest {
                return true;
            }
            match named.next() {
                Some(name) if level.matches(name, subject) => {}
                _ => return false,
            }
        }
        named.next().is_none()
    }

    /// Whether it matches every topic that an MQTT filter matches.
    pub fn covers(&self, filter: &str, subject: Subject<'_>) -> bool {
        if self.is_apart_from(filter) {
            return false;
        }
        let mut wanted = filter.split('/');
        for level in &self.levels {
            if *level == Level::Rest {
                return true;
            }
            match (wanted.next(), level) {
                (None | Some("#"), _) => return false,
                (Some("+"), Level::Any) => {}
                (Some("+"), _) => return false,
                (Some(name), level) if level.matches(name, subject) => {}
                (Some(_), _) => return false,
            }
        }
        // `a/#` also matches `a/b`, which a pattern that ends here does not.
        wanted.next().is_none()
    }

    /// Whether it matches any topic that an MQTT filter matches.
    pub fn overlaps(&self, filter: &str, subject: Subject<'_>) -> bool {
        if self.is_apart_from(filter) {
            return false;
        }
        let mut wanted = filter.split('/');
        for level in &self.levels {
            match (wanted.next(), level) {
                // The open part of the filter must be possible for this device.
                (Some("#"), _) => return self.is_possible(subject),
                (_, Level::Rest) => return true,
                (None, _) => return false,
                (Some("+"), level) if level.is_possible(subject) => {}
                (Some(name), level) if level.matches(name, subject) => {}
                (Some(_), _) => return false,
            }
        }
        matches!(wanted.next(), None | Some("#"))
    }

    fn is_possible(&self, subject: Subject<'_>) -> bool {
        self.levels.iter().all(|level| level.is_possible(subject))
    }
}

impl Level {
    /// The error contains the byte offset within the level.
    fn parse(text: &str, is_last: bool) -> Result<Self, (usize, &'static str)> {
        match text {
            "+" => return Ok(Level::Any),
            "#" if is_last => return Ok(Level::Rest),
            "#" => return Err((0, "\"#\" must be the last level of a pattern")),
            _ => {}
        }
        if let Some(at) = text.find(['+', '#']) {
            return Err((at, "\"+\" and \"#\" must be whole levels"));
        }
        let Some(begin) = text.find(['*', '{', '}']) else { return Ok(Level::Literal(text.into())) };
        let (what, len) = Variable::parse(&text[begin..]).map_err(|(at, reason)| (begin + at, reason))?;
        let after = &text[begin + len..];
        if let Some(at) = after.find(['*', '{', '}']) {
            return Err((begin + len + at, "a level may contain at most one \"*\" or variable"));
        }
        Ok(Level::Hole { before: text[..begin].into(), what, after: after.into() })
    }

    fn matches(&self, name: &str, subject: Subject<'_>) -> bool {
        match self {
            Level::Literal(text) => **text == *name,
            Level::Any | Level::Rest => true,
            Level::Hole { before, what, after } => {
                let inner = name.strip_prefix(&**before).and_then(|rest| rest.strip_suffix(&**after));
                inner.is_some_and(|inner| !inner.is_empty() && what.matches(inner, subject))
            }
        }
    }

    /// Whether any name can match.
    fn is_possible(&self, subject: Subject<'_>) -> bool {
        match self {
            Level::Hole { what, .. } => what.is_possible(subject),
            Level::Literal(_) | Level::Any | Level::Rest => true,
        }
    }
}

impl Variable {
    /// Also returns the number of bytes parsed.
    fn parse(text: &str) -> Result<(Self, usize), (usize, &'static str)> {
        if text.starts_with('*') {
            return Ok((Variable::Some, 1));
        }
        let Some(inner) = text.strip_prefix('{') else { return Err((0, "a \"}\" without a matching \"{\"")) };
        let Some(end) = inner.find('}') else { return Err((0, "a \"{\" is not closed within its level")) };
        let what = match &inner[..end] {
            "user" => Variable::User,
            "device" => Variable::Device,
            variable => match variable.strip_prefix("claim:") {
                Some(name) => Variable::Claim(ClaimName::parse(name).map_err(|reason| (7, reason))?),
                None => return Err((1, "a variable must be {user}, {device} or {claim:name}")),
            },
        };
        Ok((what, end + 2))
    }

    /// `inner` lies within a level, so it contains no `/`.
    fn matches(&self, inner: &str, subject: Subject<'_>) -> bool {
        match self {
            Variable::Some => true,
            Variable::User => subject.user.is_some_and(|user| user.as_str() == inner),
            Variable::Device => subject.device.as_str() == inner,
            Variable::Claim(name) => values(name, subject).any(|value| value == inner),
        }
    }

    /// Whether a level can have the value. Topics do not contain `+` and `#`.
    fn is_possible(&self, subject: Subject<'_>) -> bool {
        let fits = |value: &str| !value.is_empty() && !value.contains(['/', '+', '#']);
        match self {
            Variable::Some => true,
            Variable::User => subject.user.is_some_and(|user| fits(user.as_str())),
            Variable::Device => fits(subject.device.as_str()),
            Variable::Claim(name) => values(name, subject).any(fits),
        }
    }
}

fn values<'a>(name: &ClaimName, subject: Subject<'a>) -> impl Iterator<Item = &'a str> {
    subject.claims.into_iter().flat_map(move |claims: &Claims| claims.values(name))
}
