//! What is to be shown or carried, the same for every device of a batch: rendered once for each service
//! and shared.

use std::sync::OnceLock;

use bytes::Bytes;
use noroshi_types::{JsonText, NotificationId, Timestamp, Urgency};

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
