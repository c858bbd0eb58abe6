//! Push services, and where one finds a device.
//!
//! What a token looks like inside is the affair of the push service's own folder in `push`; here it is
//! carried with what the store and the decisions need to know of it.

use crate::JsonText;

/// Who reaches a device that is not connected. Values are the store's and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PushService {
    Apns = 1,
    Fcm = 2,
    WebPush = 3,
}

impl PushService {
    pub const ALL: [PushService; 3] = [PushService::Apns, PushService::Fcm, PushService::WebPush];

    /// The name in the API, in metrics and in logs.
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

/// Which of APNs' two worlds a token belongs to; the other services have `Production` alone.
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

/// A push service's address of a device: the JSON object of the API, checked there and kept as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushToken {
    pub service: PushService,
    pub environment: PushEnvironment,
    pub json: JsonText,
}

/// Who goes first. A higher lane overtakes a lower one at the next batch, never inside one.
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
    fn names_and_codes_read_back() {
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
