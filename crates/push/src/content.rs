//! The content of a notification: the provider's fields, and the payload each push service makes of them. All
//! devices of a batch share one `Content`, so each service renders it once, on first use.
//!
//! Knows no particular service: a service's folder implements `Payload`.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

use noroshi_types::PushService;

use crate::fields::{Fields, InvalidContent};

/// What a service sends that does not depend on the device.
pub(crate) trait Payload: Any + Send + Sync + Sized {
    const SERVICE: PushService;

    fn new(fields: &Fields) -> Result<Self, InvalidContent>;
}

type Rendered = Result<Box<dyn Any + Send + Sync>, InvalidContent>;

/// The fields, and the payloads rendered so far.
pub struct Content {
    fields: Fields,
    /// By service, in the order of [`PushService::ALL`].
    payloads: [OnceLock<Rendered>; PushService::ALL.len()],
}

impl Content {
    pub fn new(fields: Fields) -> Self {
        Self { fields, payloads: Default::default() }
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
