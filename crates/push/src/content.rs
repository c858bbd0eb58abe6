//! The content of a notification: the provider's fields, and the payload each push service makes of them. All
//! devices of a batch share one `Content`, so each service renders it once, on first use.
//!
//! Knows no particular service: a service's folder implements `Payload`.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use noroshi_types::{OwnFields, PushService, Timestamp, Urgency};

use crate::fields::{Fields, InvalidContent};
use crate::shown::Shown;

/// What a service sends that does not depend on the device.
pub(crate) trait Payload: Any + Send + Sync + Sized {
    const SERVICE: PushService;

    /// `shown`: the parsed `notification` of the fields, without fields if there is none.
    fn render(fields: &Fields, shown: &Shown) -> Result<Self, InvalidContent>;

    fn new(fields: &Fields) -> Result<Self, InvalidContent> {
        Self::render(fields, &fields.shown().unwrap_or_default())
    }
}

type Rendered = Result<Box<dyn Any + Send + Sync>, InvalidContent>;

/// A broadcast to a channel of APNs instead of a push to a device. Its payload was rendered when it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToChannel {
    pub bundle: String,
    /// Apple's id of the channel.
    pub channel: String,
    pub payload: Bytes,
    /// 1, 5 or 10.
    pub priority: u8,
    /// Whether Apple keeps the last broadcast for devices that are offline.
    pub is_stored: bool,
    pub expires_at: Timestamp,
}

/// The fields, and the payloads rendered so far.
pub struct Content {
    fields: Fields,
    to_channel: Option<Box<ToChannel>>,
    /// By service, in the order of [`PushService::ALL`].
    payloads: [OnceLock<Rendered>; PushService::ALL.len()],
    counts_unread: OnceLock<bool>,
}

impl Content {
    pub fn new(fields: Fields) -> Self {
        Self { fields, to_channel: None, payloads: Default::default(), counts_unread: OnceLock::new() }
    }

    pub fn broadcast(to: ToChannel) -> Self {
        let fields = Fields {
            notification_id: None,
            notification: None,
            data: None,
            urgency: Urgency::Normal,
            collapse_key: None,
            expires_at: to.expires_at,
            kind: None,
            unread: None,
            own: OwnFields::default(),
        };
        Self { to_channel: Some(Box::new(to)), ..Self::new(fields) }
    }

    /// None: a push to a device.
    pub fn to_channel(&self) -> Option<&ToChannel> {
        self.to_channel.as_deref()
    }

    /// Whether the badge counts the unread items of each user ([`Self::with_unread`]).
    pub fn counts_unread(&self) -> bool {
        *self.counts_unread.get_or_init(|| self.fields.counts_unread())
    }

    /// The same for a user with this many unread items.
    #[must_use]
    pub fn with_unread(&self, unread: Option<u32>) -> Self {
        Self::new(Fields { unread, ..self.fields.clone() })
    }

    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Renders on the first call, then returns the same payload to every caller.
    pub(crate) fn payload<P: Payload>(&self) -> Result<&P, &InvalidContent> {
        let payload = self.payloads[P::SERVICE as usize - 1].get_or_init(|| {
            P::new(&self.fields).map(|payload| Box::new(payload) as Box<dyn Any + Send + Sync>)
        });
        let payload = payload.as_ref()?;
        Ok(payload.downcast_ref().expect("a service has one type of payload"))
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("fields", &self.fields).finish_non_exhaustive()
    }
}
