//! The push services, and what other crates ask about them. A new one adds its folder with `mod` in `lib.rs`, and an arm
//! here; ARCHITECTURE.md ("A new push service") lists its registrations in other crates.

use noroshi_types::{PushService, PushToken};

use crate::fields::{Fields, InvalidContent};
use crate::service::{Origins, Service};
use crate::shown::{Shown, Warning};
use crate::{apns, fcm, hms, webhook, webpush, wns};

pub(crate) fn service(service: PushService) -> &'static Service {
    match service {
        PushService::Apns => &apns::SERVICE,
        PushService::Fcm => &fcm::SERVICE,
        PushService::WebPush => &webpush::SERVICE,
        PushService::Webhook => &webhook::SERVICE,
        PushService::Hms => &hms::SERVICE,
        PushService::Wns => &wns::SERVICE,
    }
}

/// The provider that a token belongs to, if an app has several credentials of the service; otherwise empty. None: the
/// token names none.
pub fn provider_of(token: &PushToken) -> Option<String> {
    match service(token.service).provider {
        Some(provider) => provider(token),
        None => Some(String::new()),
    }
}

/// Whether a push of the service names its device and user ([`crate::Details::recipient`]).
pub fn names_recipients(name: PushService) -> bool {
    service(name).names_recipients
}

/// Whether an app's tokens of the service belong to several servers or providers, one of which may be slow while the
/// others have room.
pub fn has_many_pools(name: PushService) -> bool {
    let service = service(name);
    service.origins == Origins::Devices || service.provider.is_some()
}

/// A message that push services accept, as far as this is known beforehand.
#[derive(Debug)]
pub struct Checked {
    shown: Shown,
}

impl Checked {
    /// What these services do not show of the message, in their order. Empty for a notification of texts, an image and a URL.
    pub fn warnings(&self, fields: &Fields, services: &[PushService]) -> Vec<Warning> {
        if !self.shown.has_extras() {
            return Vec::new();
        }
        let of = |name: PushService| {
            let warnings = (service(name).warn)(fields, &self.shown).into_iter();
            warnings.map(move |(field, warning)| Warning { service: name, field: field.to_owned(), warning })
        };
        services.iter().copied().filter(|name| fields.goes_to(*name)).flat_map(of).collect()
    }
}

/// Whether these services would accept the message; only those whose tokens it goes to count. The value of
/// `notification_id` does not matter: all ids have the same length.
pub fn check_content(fields: &Fields, services: &[PushService]) -> Result<Checked, InvalidContent> {
    let shown = fields.shown().unwrap_or_default();
    let asked = services.iter().filter(|name| fields.goes_to(**name));
    asked.copied().try_for_each(|name| (service(name).check)(fields, &shown))?;
    Ok(Checked { shown })
}

#[cfg(test)]
mod tests;
