//! Topics and positions in a topic's log.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Invalid, limits};

/// A pub-sub address: UTF-8 without control characters and without the wildcards `+` and `#`, so every topic
/// is a valid MQTT topic name (MQTT 5 §4.7). Names that start with `$` are reserved for the service or
/// require a topic rule. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

/// The first levels of names that are reserved for the service or MQTT.
const SERVICE_LEVELS: [&str; 6] =
    [limits::EVERYONE_TOPIC, limits::MAINTENANCE_TOPIC, "$noroshi", "$share", "$queue", "$SYS"];

impl Topic {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.starts_with('$') {
            return Err(Invalid::new("a topic must not start with '$', which is reserved"));
        }
        Self::check(text)
    }

    /// Parses any possible topic, including names with `$` that an app's topic rules may open to its devices.
    pub fn parse_any(text: &str) -> Result<Self, Invalid> {
        match text.starts_with('$') && !needs_rule(text) {
            true => Self::parse_subscription(text),
            false => Self::check(text),
        }
    }

    fn check(text: &str) -> Result<Self, Invalid> {
        if !fits(text) {
            let rule = format!("a topic must be 1 to {} bytes long, got {}", bytes_max(), text.len());
            return Err(Invalid::new(rule));
        }
        if text.chars().any(|c| c.is_control() || c == '+' || c == '#') {
            return Err(Invalid::new("a topic must not contain control characters, '+' or '#'"));
        }
        Ok(Self(text.into()))
    }

    /// Parses a topic to subscribe to, including the service's topics that are open to every device.
    pub fn parse_subscription(text: &str) -> Result<Self, Invalid> {
        match text == limits::MAINTENANCE_TOPIC {
            true => Ok(Self::maintenance()),
            false => Self::parse(text),
        }
    }

    /// The topic of an app's maintenance notices, to which only the service publishes.
    pub fn maintenance() -> Self {
        Self(limits::MAINTENANCE_TOPIC.into())
    }

    /// The topic that every device of an app subscribes to durably.
    pub fn everyone() -> Self {
        Self(limits::EVERYONE_TOPIC.into())
    }

    pub fn is_everyone(&self) -> bool {
        &*self.0 == limits::EVERYONE_TOPIC
    }

    /// For names from the store, which contains valid ones only.
    pub fn from_trusted(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The operator's limit for the whole node: all protocols, the API, rules and the store accept the same
/// names.
static BYTES_MAX: AtomicUsize = AtomicUsize::new(limits::TOPIC_BYTES_MAX);

/// The limit of topic names, filters and patterns.
pub fn bytes_max() -> usize {
    BYTES_MAX.load(Ordering::Relaxed)
}

/// Changes the limit, to [`limits::TOPIC_BYTES_CEILING`] at most. Must be called before the node parses its
/// first name.
pub fn set_bytes_max(bytes_max: usize) {
    BYTES_MAX.store(bytes_max.min(limits::TOPIC_BYTES_CEILING), Ordering::Relaxed);
}

/// Whether a name has a valid length.
pub fn fits(name: &str) -> bool {
    (1..=bytes_max()).contains(&name.len())
}

/// Whether a topic or topic filter is reserved for the service, so that no rule applies to it.
pub fn is_server_topic(name: &str) -> bool {
    name.starts_with('$') && SERVICE_LEVELS.contains(&name.split('/').next().unwrap_or_default())
}

/// Whether a topic or topic filter is only open to devices that a topic rule allows (MQTT 5 §4.7.2 leaves
/// names that start with `$` to the server).
pub fn needs_rule(name: &str) -> bool {
    name.starts_with('$') && !is_server_topic(name)
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The incarnation of a topic's log, random at first use. Offsets of different epochs are not comparable: a
/// client with another epoch has missed everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u32);

impl Epoch {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let wrong = || Invalid::new("an epoch must be 8 hex digits");
        if text.len() != 8 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u32::from_str_radix(text, 16).map(Self).map_err(|_| wrong())
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A position in a topic's log: everything up to and including `offset` lies before it. Offsets start at 1,
/// so offset 0 is the position before the first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    pub epoch: Epoch,
    pub offset: u64,
}

/// From where a subscription reads the log of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Behind this position.
    Position(Position),
    /// From the end of the log: the client learns the position.
    Now,
}

/// What a client gets that named a position in the log of a topic, or asked for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub topic: Topic,
    /// Whether no message is missing.
    pub complete: bool,
    /// The client has received everything up to here.
    pub position: Option<Position>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_limited() {
        assert!(Topic::parse("news/日本").is_ok());
        for bad in ["", "$everyone", "a+b", "a/#", "a\0b", &"x".repeat(256)] {
            assert!(Topic::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Topic::parse(&"x".repeat(255)).is_ok());
        assert!(Topic::parse("$maintenance").is_err(), "to publish to");
        assert_eq!(Topic::parse_subscription("$maintenance"), Ok(Topic::maintenance()));
        assert!(Topic::parse_subscription("$everyone").is_err() && Topic::parse_subscription("a").is_ok());
    }

    #[test]
    fn names_with_a_dollar_are_reserved_or_need_a_rule() {
        for name in ["$app/state", "$", "$noroshi2", "$Share/a"] {
            assert!(needs_rule(name) && !is_server_topic(name), "{name}");
            assert!(Topic::parse(name).is_err() && Topic::parse_subscription(name).is_err(), "{name}");
            assert!(Topic::parse_any(name).is_ok(), "{name}");
        }
        for name in ["$everyone", "$noroshi/inbox", "$noroshi", "$SYS/x", "$share/g/t", "$queue/t"] {
            assert!(is_server_topic(name) && !needs_rule(name) && Topic::parse_any(name).is_err(), "{name}");
        }
        assert!(!is_server_topic("a/$SYS") && !needs_rule("a/$x"));
        assert!(Topic::parse_any("$maintenance").is_ok() && Topic::parse_any("$a/+").is_err());
    }

    #[test]
    fn epoch_is_eight_hex_digits() {
        assert_eq!(Epoch::parse("0000002a"), Ok(Epoch(42)));
        assert_eq!(Epoch(42).to_string(), "0000002a");
        for bad in ["", "2a", "+000002a", "0000002g", "0000002a0"] {
            assert!(Epoch::parse(bad).is_err(), "{bad}");
        }
    }
}
