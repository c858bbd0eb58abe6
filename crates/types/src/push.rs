//! Push services, and a device's address at one.
//!
//! The format of tokens is defined in the push service's folder in `push`; here tokens are opaque, with the
//! attributes that the store and decisions need.

use crate::JsonText;

/// A service that reaches devices without a connection. The values are stored and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PushService {
    Apns = 1,
    Fcm = 2,
    WebPush = 3,
}

impl PushService {
    pub const ALL: [PushService; 3] = [PushService::Apns, PushService::Fcm, PushService::WebPush];

    /// The name in the API, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            PushService::Apns => "apns",
            PushService::Fcm => "fcm",
            PushService::WebPush => "webpush",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.as_str() == text)
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|service| *service as u8 == code)
    }
}

/// APNs' environment of a token; other services only have `Production`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum PushEnvironment {
    #[default]
    Production = 1,
    Sandbox = 2,
}

impl PushEnvironment {
    pub const ALL: [PushEnvironment; 2] = [PushEnvironment::Production, PushEnvironment::Sandbox];

    pub fn as_str(self) -> &'static str {
        match self {
            PushEnvironment::Production => "production",
            PushEnvironment::Sandbox => "sandbox",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|environment| environment.as_str() == text)
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|environment| *environment as u8 == code)
    }
}

/// A device's address at a push service: the JSON object from the API, validated there and stored verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushToken {
    pub service: PushService,
    pub environment: PushEnvironment,
    pub json: JsonText,
}

/// The priority of a push batch. A higher lane overtakes a lower one between batches, never within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lane {
    /// A campaign that cannot wait: breaking news.
    Extra = 1,
    /// A single notification with a push section.
    Direct = 2,
    Campaign = 3,
}

impl Lane {
    pub const ALL: [Lane; 3] = [Lane::Extra, Lane::Direct, Lane::Campaign];

    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Extra => "extra",
            Lane::Direct => "direct",
            Lane::Campaign => "campaign",
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| *lane as u8 == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for service in PushService::ALL {
            assert_eq!(PushService::parse(service.as_str()), Some(service));
            assert_eq!(PushService::from_code(service as u8), Some(service));
        }
        for environment in PushEnvironment::ALL {
            assert_eq!(PushEnvironment::parse(environment.as_str()), Some(environment));
            assert_eq!(PushEnvironment::from_code(environment as u8), Some(environment));
        }
        for lane in Lane::ALL {
            assert_eq!(Lane::from_code(lane as u8), Some(lane));
        }
        assert_eq!((PushService::from_code(0), PushService::parse("gcm")), (None, None));
    }
}
