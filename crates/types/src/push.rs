//! Push services, and a device's address at one.
//!
//! The format of tokens is defined in the push service's folder in `push`; here tokens are opaque, with the
//! attributes that the store and decisions need.

use crate::{JsonText, named};

named! {
    /// A service that reaches devices without a connection. The values are stored and never change.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum PushService {
        Apns(1) = "apns",
        Fcm(2) = "fcm",
        WebPush(3) = "webpush",
    }
}

impl PushService {
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.as_str() == text)
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|service| *service as u8 == code)
    }
}

named! {
    /// APNs' environment of a token; other services only have `Production`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    #[repr(u8)]
    pub enum PushEnvironment {
        #[default]
        Production(1) = "production",
        Sandbox(2) = "sandbox",
    }
}

impl PushEnvironment {
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

named! {
    /// The priority of a push batch. A higher lane overtakes a lower one between batches, never within one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Lane {
        /// A campaign that cannot wait: breaking news.
        Extra(1) = "extra",
        /// A single notification with a push section.
        Direct(2) = "direct",
        Campaign(3) = "campaign",
    }
}

impl Lane {
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
