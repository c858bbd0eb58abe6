//! Checks push tokens before the store takes them: every node must know their push service, and a device may register
//! only tokens that it could not abuse.
//!
//! A token of a provider behind a webhook may be the e-mail address or phone number of another person, to whom the
//! provider would then write. So a device registers such a token only if the provider's credential allows it
//! (`device_tokens`); keys of the app's servers always may.

use noroshi_delivery::Delivery;
use noroshi_push::provider_of;
use noroshi_store::{NewToken, Registration, TokenChange};
use noroshi_types::{AppId, PushService, PushToken};
use serde::Deserialize;

use crate::error::{Code, Problem};

/// Tokens with their paths in the request.
type Tokens<'a> = Vec<(&'a PushToken, String)>;

pub(crate) fn of_registration(registration: &Registration) -> Tokens<'_> {
    let main = registration.push_token.iter().map(|token| (token, "push_token".to_owned()));
    let others = registration.push_tokens.iter().enumerate();
    main.chain(others.map(|(index, new)| (&new.token, format!("push_tokens[{index}]")))).collect()
}

pub(crate) fn of_change(change: &TokenChange) -> Tokens<'_> {
    match change {
        TokenChange::Set(NewToken { token, .. }) => vec![(token, String::new())],
        TokenChange::Remove(_) => Vec::new(),
    }
}

/// Tokens that a provider's key sets.
pub(crate) fn by_provider(delivery: &Delivery, tokens: &Tokens<'_>) -> Result<(), Problem> {
    for (token, field) in tokens {
        let known = delivery.nodes.require_push_service("service", token.service);
        known.map_err(|error| Problem::from(error).at(within(field, "service")))?;
    }
    Ok(())
}

/// Tokens that a device sets for itself.
pub(crate) async fn by_device(delivery: &Delivery, app: AppId, tokens: &Tokens<'_>) -> Result<(), Problem> {
    by_provider(delivery, tokens)?;
    for (token, field) in tokens.iter().filter(|(token, _)| token.service == PushService::Webhook) {
        let provider = provider_of(token).unwrap_or_default();
        if !takes_device_tokens(delivery, app, &provider).await? {
            let detail = "a device cannot register tokens of this provider; register them with an API key";
            return Err(Problem::new(Code::Forbidden, detail).at(within(field, "provider")));
        }
    }
    Ok(())
}

async fn takes_device_tokens(delivery: &Delivery, app: AppId, provider: &str) -> Result<bool, Problem> {
    #[derive(Deserialize)]
    struct Settings {
        #[serde(default)]
        device_tokens: bool,
    }
    let credentials = delivery.push.list_credentials(app).await?;
    let found = credentials
        .iter()
        .find(|credential| credential.service == PushService::Webhook && credential.provider == provider);
    let settings = found.and_then(|found| serde_json::from_str::<Settings>(found.shown.as_str()).ok());
    Ok(settings.is_some_and(|settings| settings.device_tokens))
}

fn within(field: &str, name: &str) -> String {
    if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") }
}
