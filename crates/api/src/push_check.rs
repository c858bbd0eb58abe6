//! Checks before acceptance whether push services would accept a message. A message that is too large, or has a field that a
//! push service rejects, would fail on every device.
//!
//! Considers the push services that the app has credentials for, or all of them while it has none, so that a first attempt
//! shows the problem. Reads credentials only if a check fails, so a valid message costs no read.

use std::collections::BTreeMap;

use noroshi_delivery::Delivery;
use noroshi_delivery::Texts;
use noroshi_delivery::campaign::template::{Template, Variables};
use noroshi_delivery::campaign::{Spec, Treatment};
use noroshi_push::{Fields, InvalidContent, check_content};
use noroshi_types::{AppId, JsonText, NotificationId, Push, PushMode, PushService, Request};

use crate::error::{Code, Problem};

/// All ids have the same length.
const ANY_ID: [u8; 16] = [0xff; 16];

/// `POST /v1/notifications`, and each line of its batch.
pub(crate) async fn check_request(delivery: &Delivery, app: AppId, request: &Request) -> Result<(), Problem> {
    if request.push.mode == PushMode::Never {
        return Ok(());
    }
    let Push { apns, fcm, webpush, .. } = request.push.clone();
    let fields = Fields {
        notification_id: Some(NotificationId::from_bytes(ANY_ID)),
        notification: request.notification.clone(),
        data: request.data.clone(),
        urgency: request.urgency,
        collapse_key: request.collapse_key.clone(),
        expires_at: request.expires_at(delivery.clock().now()),
        apns,
        fcm,
        webpush,
    };
    check(delivery, app, &fields, "").await
}

/// Checks the message and each of its variants with the campaign's default variables. Variables of recipients are checked
/// when the message is sent.
pub(crate) async fn check_campaign(delivery: &Delivery, app: AppId, spec: &Spec) -> Result<(), Problem> {
    let message = &spec.message;
    if message.push.mode == PushMode::Never {
        return Ok(());
    }
    let Push { apns, fcm, webpush, .. } = message.push.clone();
    let whole = Fields {
        notification_id: Some(NotificationId::from_bytes(ANY_ID)),
        notification: filled(message.notification.as_ref(), &spec.variables),
        data: filled(message.data.as_ref(), &spec.variables),
        urgency: message.urgency,
        collapse_key: message.collapse_key.clone(),
        expires_at: delivery.clock().now().saturating_add(message.ttl.duration()),
        apns,
        fcm,
        webpush,
    };
    check(delivery, app, &whole, "message.").await?;
    let of = |whole: &Fields, variant: &Texts| {
        let own = |text: &Option<JsonText>| filled(text.as_ref(), &spec.variables);
        Fields {
            notification: own(&variant.notification).or_else(|| whole.notification.clone()),
            data: own(&variant.data).or_else(|| whole.data.clone()),
            ..whole.clone()
        }
    };
    let locales = spec.locales.iter().map(|(tag, variant)| (format!("locales.{tag}"), of(&whole, variant)));
    let mut varieties: Vec<(String, Fields)> = locales.collect();
    for (name, treatment) in spec.trial.iter().flat_map(|trial| &trial.treatments) {
        let Treatment::Own(message) = treatment else { continue };
        let (at, fields) = (format!("experiment.variants.{name}"), of(&whole, &message.content));
        let locale =
            |(tag, variant): (&String, &Texts)| (format!("{at}.locales.{tag}"), of(&fields, variant));
        varieties.extend(message.locales.iter().map(locale));
        varieties.push((at, fields));
    }
    for (at, fields) in varieties {
        check(delivery, app, &fields, "message.").await.map_err(|problem| problem.at(at))?;
    }
    Ok(())
}

/// `prefix`: the path of the message in the body.
async fn check(delivery: &Delivery, app: AppId, fields: &Fields, prefix: &str) -> Result<(), Problem> {
    if check_content(fields, &PushService::ALL).is_ok() {
        return Ok(());
    }
    let mut services: Vec<PushService> =
        delivery.push.list_credentials(app).await?.iter().map(|credential| credential.service).collect();
    services.sort_unstable();
    services.dedup();
    let services = if services.is_empty() { &PushService::ALL[..] } else { &services };
    check_content(fields, services).map_err(|unfit| refused(unfit, prefix))
}

fn refused(unfit: InvalidContent, prefix: &str) -> Problem {
    match unfit {
        InvalidContent::TooLarge { .. } => Problem::new(Code::PushPayloadTooLarge, unfit.to_string()),
        InvalidContent::Invalid { field, rule, .. } => Problem::field(format!("{prefix}{field}"), rule),
    }
}

/// The text itself if a variable has no default: uploaded recipients bring their own.
fn filled(text: Option<&JsonText>, defaults: &BTreeMap<String, String>) -> Option<JsonText> {
    let text = text?;
    let none = BTreeMap::new();
    let rendered = Template::parse(text.clone()).ok()?.render(Variables { own: &none, defaults });
    Some(rendered.unwrap_or_else(|_| text.clone()))
}
