//! Requests to a provider: the address to which the browser goes, the exchange of the code, and user info. Answers are limited in
//! size and time, and redirects are not followed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use noroshi_egress::fetch::{Post, Response};
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::claims::Identity;
use super::discovery::{ClientAuth, Metadata};
use super::pending::{Pending, Purpose};
use super::{AuthorizationResponse, Failed, LIMITS, Live, OpenIdFailure};

/// Providers' codes have at most some hundred characters; Entra ID's have more than a thousand.
const CODE_BYTES_MAX: usize = 8 << 10;
/// `max_age` of a confirmation, in seconds. `prompt=login` asks for a new log-in; this makes the provider report its time.
const CONFIRM_MAX_AGE_S: &str = "60";
const FORM: &str = "application/x-www-form-urlencoded";
/// A provider's error code, for the log.
const ERROR_CHARS_MAX: usize = 64;

/// The address of the authorization request (OpenID Connect Core 1.0 §3.1.2.1, RFC 7636 §4.3).
pub(super) fn authorization(live: &Live, metadata: &Metadata, pending: &Pending) -> String {
    let provider = &live.provider;
    // Checked when the metadata was read.
    let Ok(mut url) = Url::parse(&metadata.authorization_endpoint) else { return String::new() };
    let mut query = url.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", &provider.client_id)
        .append_pair("redirect_uri", &live.redirect_uri)
        .append_pair("scope", &provider.scopes)
        .append_pair("state", &pending.state)
        .append_pair("nonce", &pending.nonce)
        .append_pair("code_challenge", &pending.challenge())
        .append_pair("code_challenge_method", "S256");
    if matches!(pending.purpose, Purpose::Confirm { .. }) {
        query.append_pair("prompt", "login").append_pair("max_age", CONFIRM_MAX_AGE_S);
    }
    drop(query);
    url.into()
}

/// The code of a response that the provider itself sent.
pub(super) fn code_of(
    live: &Live,
    metadata: &Metadata,
    response: AuthorizationResponse,
) -> Result<String, Failed> {
    let AuthorizationResponse { code, iss, error, .. } = response;
    // RFC 9207 §2.4: before anything else is believed, an error included.
    match iss {
        Some(iss) if iss != live.provider.issuer => {
            return Err(Failed::invalid("the response is of another issuer (iss)"));
        }
        None if metadata.authorization_response_iss_parameter_supported => {
            return Err(Failed::invalid("the response does not name its issuer (iss)"));
        }
        _ => {}
    }
    if let Some(error) = error {
        let failure = match error.as_str() {
            "access_denied" | "login_required" | "interaction_required" | "consent_required" => {
                OpenIdFailure::Denied
            }
            "server_error" | "temporarily_unavailable" => OpenIdFailure::Unavailable,
            _ => OpenIdFailure::Invalid,
        };
        return Err(Failed::new(failure, format!("the provider answered {:?}", shown(&error))));
    }
    code.filter(|code| (1..=CODE_BYTES_MAX).contains(&code.len()))
        .ok_or_else(|| Failed::invalid("the response has no code"))
}

fn shown(error: &str) -> String {
    error.chars().take(ERROR_CHARS_MAX).collect()
}

#[derive(Deserialize)]
pub(super) struct Tokens {
    pub id_token: String,
    access_token: String,
}

/// RFC 6749 §5.2.
#[derive(Deserialize)]
struct TokenError {
    error: String,
}

/// Exchanges the code (OpenID Connect Core 1.0 §3.1.3.1).
pub(super) async fn tokens(
    live: &Live,
    metadata: &Metadata,
    pending: &Pending,
    code: &str,
) -> Result<Tokens, Failed> {
    let (form, authorization) = token_request(live, metadata.client_auth()?, pending, code);
    let headers: Vec<(&str, &str)> =
        authorization.iter().map(|value| ("authorization", value.as_str())).collect();
    let post = Post { content_type: FORM, headers: &headers, body: form.into() };
    let answer = live.egress.post(&metadata.token_endpoint, post, LIMITS).await;
    let answer = answer.map_err(|error| Failed::unavailable(format!("token endpoint: {error}")))?;
    match answer.status {
        200 => serde_json::from_slice(&answer.body).map_err(|error| {
            Failed::invalid(format!("the answer of the token endpoint is invalid: {error}"))
        }),
        status => Err(token_error(status, &answer)),
    }
}

/// The form, and the header `Authorization` if the client authenticates with it.
fn token_request(live: &Live, auth: ClientAuth, pending: &Pending, code: &str) -> (String, Option<String>) {
    let provider = &live.provider;
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", code)
        .append_pair("redirect_uri", &live.redirect_uri)
        .append_pair("code_verifier", &pending.verifier);
    let authorization = match auth {
        ClientAuth::Basic => Some(basic(&provider.client_id, &provider.client_secret)),
        ClientAuth::Post => {
            form.append_pair("client_id", &provider.client_id);
            form.append_pair("client_secret", &provider.client_secret);
            None
        }
    };
    (form.finish(), authorization)
}

fn token_error(status: u16, answer: &Response) -> Failed {
    let error = serde_json::from_slice::<TokenError>(&answer.body).map(|error| shown(&error.error));
    let detail = match error {
        Ok(error) => format!("the token endpoint answered {status} {error:?}"),
        Err(_) => format!("the token endpoint answered {status}"),
    };
    match status {
        400..=499 if status != 429 => Failed::invalid(detail),
        _ => Failed::unavailable(detail),
    }
}

/// RFC 6749 §2.3.1: both parts are encoded as in a form first.
fn basic(id: &str, secret: &str) -> String {
    let part = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    format!("Basic {}", STANDARD.encode(format!("{}:{}", part(id), part(secret))))
}

/// Adds the claims of the user info endpoint (OpenID Connect Core 1.0 §5.3), if the provider has one.
pub(super) async fn add_user_info(
    live: &Live,
    metadata: &Metadata,
    tokens: &Tokens,
    identity: &mut Identity,
) -> Result<(), Failed> {
    let Some(url) = &metadata.userinfo_endpoint else { return Ok(()) };
    if !tokens.access_token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failed::invalid("the access token has characters that no header can have"));
    }
    let bearer = format!("Bearer {}", tokens.access_token);
    let answer = live.egress.get_with(url, &[("authorization", &bearer)], LIMITS).await;
    let answer = answer.map_err(|error| Failed::unavailable(format!("user info endpoint: {error}")))?;
    if answer.status != 200 {
        return Err(Failed::unavailable(format!("the user info endpoint answered {}", answer.status)));
    }
    let claims: Map<String, Value> = serde_json::from_slice(&answer.body)
        .map_err(|_| Failed::invalid("the answer of the user info endpoint is no JSON object"))?;
    // OpenID Connect Core 1.0 §5.3.2: else the claims may be those of another person.
    if claims.get("sub").and_then(Value::as_str) != Some(identity.subject.as_str()) {
        return Err(Failed::invalid("the user info is of another person than the ID token"));
    }
    identity.add(claims);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_encoded_twice() {
        let decoded = STANDARD.decode(basic("a:b", "p%+ ä").trim_start_matches("Basic ")).expect("base64");
        assert_eq!(decoded, b"a%3Ab:p%25%2B+%C3%A4");
    }
}
