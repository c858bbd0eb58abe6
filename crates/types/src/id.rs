//! Identifiers, each with its own type, so that a user cannot be passed instead of a device. Text ids are
//! bounded, free of control characters and cheap to move. Numeric ids are assigned by the store; outside of
//! it, only device numbers are visible, in the event log (docs/events.md).

use std::fmt;

use crate::{Invalid, limits};

/// The store's number of an app (tenant).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppId(pub u32);

/// The store's number of a device, unique across apps and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNum(pub u64);

/// The store's number of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u64);

/// The store's number of a push service's credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CredentialId(pub u64);

/// The store's number of a Web Push endpoint, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u64);

/// The store's number of a person who uses the console, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PersonId(pub u64);

/// The store's number of a batch of push recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// A session, which outlives its connection: unique within one run of a node, displayed as 16 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub uuid::Uuid);

        impl $name {
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                let id = uuid::Uuid::try_parse(text);
                id.map(Self).map_err(|_| Invalid::new(concat!($what, " must be a UUID")))
            }

            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(uuid::Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks length and characters before allocating.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                let check: fn(&str) -> Result<(), &'static str> = $check;
                if text.is_empty() || text.len() > $max {
                    return Err(Invalid::new(format!("{} must be 1 to {} bytes long, got {}", $what, $max, text.len())));
                }
                check(text).map_err(|rule| Invalid::new(format!("{} {rule}", $what)))?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

fn no_control(text: &str) -> Result<(), &'static str> {
    match text.chars().any(char::is_control) {
        true => Err("must not contain control characters"),
        false => Ok(()),
    }
}

fn slug(text: &str) -> Result<(), &'static str> {
    match text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        true => Ok(()),
        false => Err("may only contain a-z, 0-9 and '-'"),
    }
}

/// The characters that [`crate::TokenKey`] allows in a name.
fn token_name(text: &str) -> Result<(), &'static str> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    match text.bytes().all(fits) {
        true => Ok(()),
        false => Err("may only contain letters, digits, '.', '_' and '-'"),
    }
}

fn label(text: &str) -> Result<(), &'static str> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    match text.bytes().all(fits) {
        true => Ok(()),
        false => Err("may only contain a-z, 0-9, '-', '_' and '.'"),
    }
}

uuid_id!(
    /// A campaign: a UUIDv7, generated at creation.
    CampaignId, "a campaign id"
);
uuid_id!(
    /// A broadcast to a channel: a random UUID, which Apple gets as `apns-request-id` of every attempt.
    BroadcastId, "a broadcast id"
);
uuid_id!(
    /// A notification: UUIDv7 (RFC 9562 §5.7), so ids sort by the time of acceptance.
    NotificationId, "a notification id"
);

text_id!(
    /// A Live Activity, named by the app or at random. Devices name their token of the activity with it.
    ActivityId, "an activity id", limits::PUSH_TOKEN_NAME_BYTES_MAX, token_name
);
text_id!(
    /// A person, identified by the app.
    UserId, "a user id", limits::USER_ID_BYTES_MAX, no_control
);
text_id!(
    /// One installation of an app.
    DeviceId, "a device id", limits::DEVICE_ID_BYTES_MAX, no_control
);
text_id!(
    /// A tenant's name, as typed by operators.
    AppName, "an app name", limits::APP_NAME_BYTES_MAX, slug
);
text_id!(
    /// The name of an experiment, variant or maintenance notice, used by operators and in apps' code.
    Label, "a name", limits::LABEL_BYTES_MAX, label
);

impl Label {
    /// Of a name that follows the rules.
    pub(crate) fn of(name: &'static str) -> Self {
        Self(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ids_are_bounded_and_without_control_characters() {
        assert!(UserId::parse("u1").is_ok());
        assert!(UserId::parse("日本").is_ok());
        assert!(UserId::parse("").is_err());
        assert!(UserId::parse(&"x".repeat(limits::USER_ID_BYTES_MAX + 1)).is_err());
        assert!(UserId::parse("a\nb").is_err());
        assert!(AppName::parse("my-app-2").is_ok());
        assert!(AppName::parse("My App").is_err());
        assert!(Label::parse("checkout_button.v2").is_ok());
        assert!(Label::parse("a/b").is_err());
    }

    #[test]
    fn notification_id_must_be_a_uuid() {
        let text = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(NotificationId::parse(text).map(|id| id.to_string()), Ok(text.to_owned()));
        assert!(NotificationId::parse("n1").is_err());
    }
}
