//! The push services. A new one adds its folder with `mod` in `lib.rs`, an arm here, its name in
//! `noroshi_types::PushService`, and a field of its own in `noroshi_types::Push` and in `fields::Fields`. The compiler then
//! names most other places. It does not name the store's column lists, the stored form of campaigns
//! (`delivery::campaign::spec`), `api::body::push_token`, the command `push add`, the fake in `testkit`, and the well-known
//! hosts in `egress::resolve`.

use noroshi_types::PushService;

use crate::fields::{Fields, InvalidContent};
use crate::service::Service;
use crate::{apns, fcm, webpush};

pub(crate) fn service(service: PushService) -> &'static Service {
    match service {
        PushService::Apns => &apns::SERVICE,
        PushService::Fcm => &fcm::SERVICE,
        PushService::WebPush => &webpush::SERVICE,
    }
}

/// Whether these services would accept the message, as far as this is known beforehand. The value of
/// `notification_id` does not matter: all ids have the same length.
pub fn check_content(fields: &Fields, services: &[PushService]) -> Result<(), InvalidContent> {
    services.iter().try_for_each(|name| (service(*name).check)(fields))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::tests::{fields, json_text};

    #[test]
    fn only_the_named_services_are_checked() {
        let large = Fields { data: json_text(&json!({"x": "y".repeat(3_940)})), ..fields() };
        assert_eq!(check_content(&large, &[PushService::Apns]), Ok(()));
        assert!(matches!(
            check_content(&large, &PushService::ALL),
            Err(InvalidContent::TooLarge { service: PushService::WebPush, bytes_max: 3_993, .. })
        ));
    }
}
