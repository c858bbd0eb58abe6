//! Push services, and a device's address at one.
//!
//! The format of tokens is defined in the push service's folder in `push`; here tokens are opaque, with the
//! attributes that the store and decisions need.

use std::fmt;

use crate::{Invalid, JsonText, limits};

crate::names! {
    /// A service that reaches devices without a connection. The numbers are stored and never
    /// change; the names are those in the API, metrics and logs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum PushService {
        Apns = 1 => "apns",
        Fcm = 2 => "fcm",
        WebPush = 3 => "webpush",
        /// Providers of the operator's choice, each behind a signed webhook.
        Webhook = 4 => "webhook",
        /// Huawei Push Kit.
        Hms = 5 => "hms",
        /// Windows Push Notification Services.
        Wns = 6 => "wns",
    }
}

impl PushService {
    /// Whether every program with this store knows the service. Programs before the announcement of services
    /// (`NodeInfo::push_services`) know these.
    pub fn is_known_to_all(self) -> bool {
        matches!(self, Self::Apns | Self::Fcm | Self::WebPush)
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
    /// What a push token is for. A device has at most one token for each kind and name. The numbers are stored and
    /// never change; the names are those in the API. A new kind is a row here and an arm of each function below; the
    /// compiler then asks for the push type in `push::apns` if the kind is one of APNs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum TokenKind {
        /// Notifications over APNs.
        Alert = 1 => "alert",
        WebPush = 2 => "webpush",
        Fcm = 3 => "fcm",
        /// Incoming calls.
        Voip = 4 => "voip",
        /// Complications of a watch face.
        Complication = 5 => "complication",
        /// Changes in a file provider's domain.
        FileProvider = 6 => "fileprovider",
        Widgets = 7 => "widgets",
        Controls = 8 => "controls",
        /// Starts Live Activities.
        LiveActivityStart = 9 => "live-activity-start",
        /// Updates and ends one Live Activity, whose id is the token's name.
        LiveActivity = 10 => "live-activity",
        /// An address of a provider behind a webhook. The one without a name receives ordinary pushes; those with a name
        /// are reached only by pushes that name them.
        Webhook = 11 => "webhook",
        Hms = 12 => "hms",
        Wns = 13 => "wns",
    }
}

impl TokenKind {
    /// The service that issues tokens of this kind.
    pub fn service(self) -> PushService {
        match self {
            Self::WebPush => PushService::WebPush,
            Self::Fcm => PushService::Fcm,
            Self::Webhook => PushService::Webhook,
            Self::Hms => PushService::Hms,
            Self::Wns => PushService::Wns,
            Self::Alert
            | Self::Voip
            | Self::Complication
            | Self::FileProvider
            | Self::Widgets
            | Self::Controls
            | Self::LiveActivityStart
            | Self::LiveActivity => PushService::Apns,
        }
    }

    /// The kind of a service's tokens that receive ordinary pushes.
    pub fn of_messages(service: PushService) -> Self {
        match service {
            PushService::Apns => Self::Alert,
            PushService::Fcm => Self::Fcm,
            PushService::WebPush => Self::WebPush,
            PushService::Webhook => Self::Webhook,
            PushService::Hms => Self::Hms,
            PushService::Wns => Self::Wns,
        }
    }

    /// Whether a token of this kind without a name receives ordinary pushes.
    pub fn is_message(self) -> bool {
        self == Self::of_messages(self.service())
    }

    /// Whether each token of this kind must have a name.
    pub fn needs_name(self) -> bool {
        self == Self::LiveActivity
    }

    fn may_have_name(self) -> bool {
        !self.is_message() || self == Self::Webhook
    }
}

/// The kind and the name of one of a device's push tokens; in text `kind` or `kind/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenKey {
    kind: TokenKind,
    name: Box<str>,
}

impl TokenKey {
    /// An empty name is no name.
    pub fn new(kind: TokenKind, name: &str) -> Result<Self, Invalid> {
        if !kind.may_have_name() && !name.is_empty() {
            return Err(Invalid::new(format!("a token of the kind \"{}\" has no name", kind.as_str())));
        }
        if kind.needs_name() && name.is_empty() {
            return Err(Invalid::new(format!("a token of the kind \"{}\" needs a name", kind.as_str())));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.len() > limits::PUSH_TOKEN_NAME_BYTES_MAX || !name.bytes().all(allowed) {
            return Err(Invalid::new(format!(
                "the name of a push token has 1 to {} letters, digits and `.`, `_`, `-`",
                limits::PUSH_TOKEN_NAME_BYTES_MAX
            )));
        }
        Ok(Self { kind, name: name.into() })
    }

    /// The token of a service to which ordinary pushes may go.
    pub fn of_messages(service: PushService) -> Self {
        Self { kind: TokenKind::of_messages(service), name: "".into() }
    }

    /// Reads `kind` or `kind/name`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (kind, name) = match text.split_once('/') {
            Some((_, "")) => return Err(Invalid::new("a name must follow the `/`")),
            Some(parts) => parts,
            None => (text, ""),
        };
        Self::new(TokenKind::parse(kind)?, name)
    }

    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    /// Whether the token receives ordinary pushes. A device has at most one of each kind, which does not expire.
    pub fn is_message(&self) -> bool {
        self.kind.is_message() && self.name.is_empty()
    }

    /// Empty without a name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        if self.name.is_empty() { Ok(()) } else { write!(f, "/{}", self.name) }
    }
}

impl TokenKind {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::named(text).ok_or_else(|| {
            let names = Self::ALL.map(|kind| format!(" \"{}\"", kind.as_str())).concat();
            Invalid::new(format!("the kind of a push token must be one of{names}"))
        })
    }
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
        for kind in TokenKind::ALL {
            assert_eq!(TokenKind::from_code(kind as u8), Some(kind));
            assert_eq!(TokenKind::parse(kind.as_str()), Ok(kind));
            assert_eq!(kind.is_message(), TokenKey::of_messages(kind.service()).kind() == kind);
        }
        assert_eq!((PushService::from_code(0), PushService::named("gcm")), (None, None));
    }

    #[test]
    fn a_token_is_named_by_kind_and_name() {
        for text in ["alert", "voip", "controls/lamp", "live-activity/E5A1-4.b_c", "webhook", "webhook/mail"]
        {
            assert_eq!(TokenKey::parse(text).expect(text).to_string(), text);
        }
        let is_message = |text: &str| TokenKey::parse(text).expect(text).is_message();
        assert!(is_message("alert") && is_message("webhook") && is_message("wns"));
        assert!(!is_message("voip") && !is_message("webhook/mail"));
        let longest = format!("widgets/{}", "x".repeat(64));
        assert!(TokenKey::parse(&longest).is_ok());
        for text in [
            "",
            "pager",
            "voip/",
            "/x",
            "fcm/x",
            "hms/x",
            "wns/x",
            "webhook/",
            "webhook/a b",
            "live-activity",
            "voip/a b",
            "voip/a/b",
            "voip/é",
        ] {
            assert!(TokenKey::parse(text).is_err(), "{text}");
        }
        assert!(TokenKey::parse(&format!("{longest}x")).is_err());
    }
}
