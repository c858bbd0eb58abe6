//! Checks before acceptance whether push services would accept a message, and lists what they would not show of it. A message
//! that is too large, or has a field that a push service rejects, would fail on every device.
//!
//! Errors consider the push services that the app has credentials for, or APNs, FCM and Web Push while it has none, so that
//! a first attempt shows the problem. Reads credentials only if a check fails, so a valid message costs no read. Warnings consider only
//! the services with credentials, which delivery remembers.

use std::collections::BTreeMap;

use noroshi_delivery::Delivery;
use noroshi_delivery::Texts;
use noroshi_delivery::campaign::template::{Template, Variables};
use noroshi_delivery::campaign::{Spec, Treatment};
use noroshi_push::{Checked, Fields, InvalidContent, Warning, check_content};
use noroshi_types::{
    AppId, JsonText, NotificationId, Push, PushMode, PushService, Request, TokenKey, limits,
};

use crate::error::{Code, Problem};

/// The services that count for an app without credentials.
const USUAL: [PushService; 3] = [PushService::Apns, PushService::Fcm, PushService::WebPush];

/// All ids have the same length.
const ANY_ID: [u8; 16] = [0xff; 16];

/// A badge that counts unread items is checked with as many digits as it can have (`store.item_rows` is at most 5,000).
const WIDEST_BADGE: u32 = 9_999;

/// What push services would not show of a message that they accept. Most messages have nothing to warn of.
#[derive(Debug)]
pub(crate) struct Unshown(Vec<Warning>);

impl Unshown {
    /// Warnings for the services that the app has credentials for. None if the store cannot say which: an advice is no
    /// reason to refuse a message.
    pub(crate) async fn warnings(self, delivery: &Delivery, app: AppId) -> Vec<Warning> {
        let mut warnings = self.0;
        if !warnings.is_empty() {
            let services = delivery.push.configured_services(app).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "no warnings: could not read which push services the app uses");
                Vec::new()
            });
            warnings.retain(|warning| services.contains(&warning.service));
            warnings.truncate(limits::WARNINGS_MAX);
        }
        warnings
    }
}

/// `POST /v1/notifications`, and each line of its batch.
pub(crate) async fn check_request(
    delivery: &Delivery,
    app: AppId,
    request: &Request,
) -> Result<Unshown, Problem> {
    if request.push.mode == PushMode::Never {
        return Ok(Unshown(Vec::new()));
    }
    let Push { token, own, .. } = request.push.clone();
    let fields = Fields {
        notification_id: Some(NotificationId::from_bytes(ANY_ID)),
        notification: request.notification.clone(),
        data: request.data.clone(),
        urgency: request.urgency,
        collapse_key: request.collapse_key.clone(),
        expires_at: request.expires_at(delivery.clock().now()),
        unread: Some(WIDEST_BADGE),
        kind: token.as_ref().map(TokenKey::kind),
        own,
    };
    let checked = check(delivery, app, &fields, "").await?;
    Ok(Unshown(checked.warnings(&fields, &PushService::ALL)))
}

/// `POST /v1/activities` and its changes: what each kind of device would get.
pub(crate) async fn check_fields(delivery: &Delivery, app: AppId, all: &[Fields]) -> Result<(), Problem> {
    for fields in all {
        check(delivery, app, fields, "").await?;
    }
    Ok(())
}

/// Checks the message and each of its variants with the campaign's default variables. Variables of recipients are checked
/// when the message is sent.
pub(crate) async fn check_campaign(delivery: &Delivery, app: AppId, spec: &Spec) -> Result<(), Problem> {
    for (at, fields) in varieties(delivery, spec) {
        check(delivery, app, &fields, "message.").await.map_err(|problem| match at {
            Some(at) => problem.at(at),
            None => problem,
        })?;
    }
    Ok(())
}

/// What push services would not show of an accepted campaign.
pub(crate) fn unshown_of_campaign(delivery: &Delivery, spec: &Spec) -> Unshown {
    let mut unshown: Vec<Warning> = Vec::new();
    for (at, fields) in varieties(delivery, spec) {
        let Ok(accepted) = check_content(&fields, &[]) else { continue };
        for warning in accepted.warnings(&fields, &PushService::ALL) {
            // A warning about the message covers its variants.
            let covers = |known: &Warning| {
                (known.service, known.warning) == (warning.service, warning.warning)
                    && known.field.strip_prefix("message.") == Some(&*warning.field)
            };
            if !unshown.iter().any(covers) {
                let field = format!("{}.{}", at.as_deref().unwrap_or("message"), warning.field);
                unshown.push(Warning { field, ..warning });
            }
        }
    }
    Unshown(unshown)
}

/// The message, and each of its variants with its path. None if no push service gets them.
fn varieties(delivery: &Delivery, spec: &Spec) -> Vec<(Option<String>, Fields)> {
    let message = &spec.message;
    if message.push.mode == PushMode::Never {
        return Vec::new();
    }
    let Push { token, own, .. } = message.push.clone();
    let whole = Fields {
        notification_id: Some(NotificationId::from_bytes(ANY_ID)),
        notification: filled(message.notification.as_ref(), &spec.variables),
        data: filled(message.data.as_ref(), &spec.variables),
        urgency: message.urgency,
        collapse_key: message.collapse_key.clone(),
        expires_at: delivery.clock().now().saturating_add(message.ttl.duration()),
        unread: Some(WIDEST_BADGE),
        kind: token.as_ref().map(TokenKey::kind),
        own,
    };
    let of = |whole: &Fields, variant: &Texts| {
        let filled = |text: &Option<JsonText>| filled(text.as_ref(), &spec.variables);
        Fields {
            notification: filled(&variant.notification).or_else(|| whole.notification.clone()),
            data: filled(&variant.data).or_else(|| whole.data.clone()),
            ..whole.clone()
        }
    };
    let mut varieties = vec![(None, whole.clone())];
    let locales = spec.locales.iter();
    varieties.extend(locales.map(|(tag, variant)| (Some(format!("locales.{tag}")), of(&whole, variant))));
    for (name, treatment) in spec.trial.iter().flat_map(|trial| &trial.treatments) {
        let Treatment::Own(message) = treatment else { continue };
        let (at, fields) = (format!("experiment.variants.{name}"), of(&whole, &message.content));
        let locale =
            |(tag, variant): (&String, &Texts)| (Some(format!("{at}.locales.{tag}")), of(&fields, variant));
        varieties.extend(message.locales.iter().map(locale));
        varieties.push((Some(at), fields));
    }
    varieties
}

/// `prefix`: the path of the message in the body.
async fn check(delivery: &Delivery, app: AppId, fields: &Fields, prefix: &str) -> Result<Checked, Problem> {
    if let Ok(checked) = check_content(fields, &PushService::ALL) {
        return Ok(checked);
    }
    let mut services: Vec<PushService> =
        delivery.push.list_credentials(app).await?.iter().map(|credential| credential.service).collect();
    services.sort_unstable();
    services.dedup();
    let services = if services.is_empty() { &USUAL[..] } else { &services };
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
