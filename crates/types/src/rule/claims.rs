//! The claims that a session keeps of its JWT: those that the rules of its app use.

use super::Needs;
use crate::limits;

/// Values per claim; more are dropped.
pub const VALUES_MAX: usize = 64;
/// A longer value cannot occur in a topic.
pub const VALUE_BYTES_MAX: usize = limits::TOPIC_BYTES_MAX;
const NAME_BYTES_MAX: usize = 64;

/// The name of a claim in a rule: letters, digits, `_`, `-`, `.` and `:`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimName(Box<str>);

impl ClaimName {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        match (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
            true => Ok(Self(text.into())),
            false => Err("a claim name must be 1 to 64 letters, digits, '_', '-', '.' or ':'"),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The claims of one JWT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claims {
    /// The claim `topics`: names, and MQTT filters.
    topics: Box<[Box<str>]>,
    values: Box<[(ClaimName, Box<str>)]>,
    /// The needs of the rules for which the claims were kept.
    needs: Needs,
}

impl Claims {
    pub fn new(topics: Vec<Box<str>>, values: Vec<(ClaimName, Box<str>)>) -> Self {
        Self { topics: topics.into(), values: values.into(), needs: Needs::default() }
    }

    /// Records the needs for which the claims were kept.
    pub fn kept_for(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    pub(super) fn values(&self, name: &ClaimName) -> impl Iterator<Item = &str> {
        self.values.iter().filter(move |(named, _)| named == name).map(|(_, value)| &**value)
    }

    /// Whether the claim `topics` lists a topic.
    pub fn lists(&self, topic: &str) -> bool {
        self.covers(topic)
    }

    /// Whether an entry of the claim `topics` covers everything that a filter matches.
    pub fn covers(&self, filter: &str) -> bool {
        // MQTT 5 §4.7.2: wildcards do not match `$`, and no entry starts with it.
        !filter.starts_with('$') && self.topics.iter().any(|listed| filter_covers(listed, filter))
    }
}

/// Whether an entry of the claim `topics` is an MQTT filter (MQTT 5 §4.7.1).
pub fn is_filter(text: &str) -> bool {
    let levels = text.split('/').count();
    let is_level = |(index, level): (usize, &str)| {
        level == "+" || (level == "#" && index + 1 == levels) || !level.contains(['+', '#'])
    };
    crate::topic::fits(text)
        && !text.starts_with('$')
        && !text.contains(char::is_control)
        && text.split('/').enumerate().all(is_level)
}

/// Whether an MQTT filter matches every topic that another filter matches (MQTT 5 §4.7.1).
pub fn filter_covers(outer: &str, inner: &str) -> bool {
    let (mut outer, mut inner) = (outer.split('/'), inner.split('/'));
    loop {
        match (outer.next(), inner.next()) {
            (Some("#"), _) => return true,
            (None, None) => return true,
            (None, Some(_)) | (Some(_), None | Some("#")) => return false,
            (Some("+"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            (Some(_), Some(_)) => return false,
        }
    }
}
