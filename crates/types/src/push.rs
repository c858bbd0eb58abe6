//! Push services, and a device's address at one.
//!
//! The format of tokens is defined in the push service's folder in `push`; here tokens are opaque, with the
//! attributes that the store and decisions need.

use crate::JsonText;

crate::names! {
    /// A service that reaches devices without a connection. The numbers are stored and never
    /// change; the names are those in the API, metrics and logs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum PushService {
        Apns = 1 => "apns",
        Fcm = 2 => "fcm",
        WebPush = 3 => "webpush",
    }
}

crate::names! {
    /// APNs' environment of a token; other services only have `Production`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    pub enum PushEnvironment {
        #[default]
        Production = 1 => "production",
        Sandbox = 2 => "sandbox",
    }
}

/// A device's address at a push service: the JSON object from the API, validated there and stored verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushToken {
    pub service: PushService,
    pub environment: PushEnvironment,
    pub json: JsonText,
}

crate::names! {
    /// The priority of a push batch. A higher lane overtakes a lower one between batches, never within one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Lane {
        /// A campaign that cannot wait: breaking news.
        Extra = 1 => "extra",
        /// A single notification with a push section.
        Direct = 2 => "direct",
        Campaign = 3 => "campaign",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for service in PushService::ALL {
            assert_eq!(PushService::named(service.as_str()), Some(service));
            assert_eq!(PushService::from_code(service as u8), Some(service));
        }
        for environment in PushEnvironment::ALL {
            assert_eq!(PushEnvironment::named(environment.as_str()), Some(environment));
            assert_eq!(PushEnvironment::from_code(environment as u8), Some(environment));
        }
        for lane in Lane::ALL {
            assert_eq!(Lane::from_code(lane as u8), Some(lane));
        }
        assert_eq!((PushService::from_code(0), PushService::named("gcm")), (None, None));
    }
}
