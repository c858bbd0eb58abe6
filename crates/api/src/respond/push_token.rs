//! A device's push tokens in responses: without what is needed to send to them in documents of devices, and as they were
//! registered in lists of tokens.

use noroshi_store::{Device, DeviceToken, Suspect};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::Problem;

#[derive(Serialize)]
pub(crate) struct TokenBody {
    kind: &'static str,
    name: String,
    service: &'static str,
    environment: &'static str,
    /// APNs: the bundle id of the token's app, if it differs from the credential's.
    topic: Option<String>,
    registered_at: String,
    expires_at: Option<String>,
    suspect: Option<SuspectBody>,
    /// Ordinary pushes go to this token.
    main: bool,
    /// As registered; only in lists of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Box<RawValue>>,
}

#[derive(Serialize)]
pub(super) struct SuspectBody {
    at: String,
    /// The push service's own reason.
    reason: String,
}

#[derive(Serialize)]
pub(crate) struct TokensBody {
    push_tokens: Vec<TokenBody>,
}

/// All tokens of the device as they were registered.
pub(crate) fn registered(device: &Device) -> Result<TokensBody, Problem> {
    Ok(TokensBody { push_tokens: list(device, true)? })
}

/// All tokens of the device, the main token first.
pub(crate) fn list(device: &Device, whole: bool) -> Result<Vec<TokenBody>, Problem> {
    let has_main = device.push_token.is_some();
    let tokens = device.all_push_tokens().into_iter().enumerate();
    tokens.map(|(index, token)| body(token, index == 0 && has_main, whole)).collect()
}

fn body(one: DeviceToken, main: bool, whole: bool) -> Result<TokenBody, Problem> {
    #[derive(serde::Deserialize)]
    struct Topic {
        topic: Option<String>,
    }
    let DeviceToken { key, token, registered_at, suspect, expires_at } = one;
    // Tokens of other services have no topic.
    let topic = serde_json::from_str::<Topic>(token.json.as_str()).ok().and_then(|read| read.topic);
    Ok(TokenBody {
        kind: key.kind().as_str(),
        name: key.name().to_owned(),
        service: token.service.as_str(),
        environment: token.environment.as_str(),
        topic,
        registered_at: registered_at.to_string(),
        expires_at: expires_at.map(|at| at.to_string()),
        suspect: suspect.map(SuspectBody::from),
        main,
        token: if whole { super::raw(Some(&token.json))? } else { None },
    })
}

impl From<Suspect> for SuspectBody {
    fn from(suspect: Suspect) -> Self {
        Self { at: suspect.at.to_string(), reason: suspect.reason }
    }
}
