//! Log-in with an OpenID provider. Both routes are navigations of a browser, so failures lead to the page, which shows why.
//!
//! The callback comes from another site. Its cookie is `SameSite=Lax`, because browsers send no `Strict` cookie then. Its answer is
//! a page that opens the console, because browsers send the session's cookie only with requests that begin at this site.

use axum::extract::RawQuery;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use noroshi_console::{
    AuthorizationResponse, Finished, LoggedIn, Made, MappedRoles, OPENID_ROUTES, OpenIdFailure,
    OpenIdOutcome, PENDING_LIFETIME, Refused, StartFor,
};
use noroshi_types::AppId;
use serde::Deserialize;
use url::form_urlencoded;

use super::person::person_body;
use crate::audit::Trail;
use crate::error::Problem;
use crate::request::parameter::{Path, Query};
use crate::request::session::{Desk, Visitor, cookie, cookie_of, session_token};
use crate::respond::Answer;

const COOKIE: &str = "noroshi_oidc";
const METHOD: &str = "openid";

/// The page at which a confirmation ends.
const CONFIRMED: &str = "/console/confirmed";

/// A page without anything to load.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// The path of the page to return to.
    to: Option<String>,
    /// Confirms the session instead of beginning one.
    #[serde(default)]
    confirm: bool,
}

/// `GET /v1/session/oidc/{name}`
pub(crate) async fn start(
    visitor: Visitor,
    Path(name): Path<String>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Answer {
    let Visitor { desk, client, is_secure } = &visitor;
    let now = desk.now();
    // First: an address that contains another name is no header.
    if desk.console.openid_providers().all(|provider| provider.name != name) {
        return Err(Problem::not_found("provider"));
    }
    let wanted = match wanted.confirm {
        false => StartFor::LogIn { to: wanted.to },
        true => {
            let caller =
                desk.console.caller(session_token(&headers).unwrap_or_default(), Made::ByPerson, now).await;
            if matches!(caller, Err(Refused::Session)) {
                return Ok(failed(OpenIdFailure::NoSession, CONFIRMED, &name));
            }
            let caller = caller?;
            StartFor::Confirm { session: caller.session.id, person: caller.person.id }
        }
    };
    let started = desk.console.start_openid(&name, wanted, client, now).await;
    match started.ok_or_else(|| Problem::not_found("provider"))? {
        Ok(started) => {
            let mut response = redirect(&started.location);
            let lifetime_s = PENDING_LIFETIME.as_secs();
            set(&mut response, header::SET_COOKIE, pending_cookie(&started.cookie, lifetime_s, *is_secure));
            Ok(response)
        }
        Err((failure, to)) => {
            desk.metrics.log_in(METHOD, failure.as_str());
            Ok(failed(failure, to, &name))
        }
    }
}

/// `GET /v1/session/oidc/{name}/callback`
pub(crate) async fn finish(
    visitor: Visitor,
    trail: Trail,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let Visitor { desk, client, is_secure } = &visitor;
    let now = desk.now();
    let app_of = |app: &str| -> Option<AppId> { desk.auth.app(app).map(|app| app.id) };
    let response = response_of(query.as_deref().unwrap_or_default());
    let finished =
        desk.console.finish_openid(&name, cookie_of(&headers, COOKIE), response, (&app_of, client), now);
    let Finished { result, to, mapped } = finished.await.ok_or_else(|| Problem::not_found("provider"))?;
    desk.metrics.log_in(METHOD, result.as_ref().map_or_else(|failure| failure.as_str(), |_| "ok"));
    if let Some(mapped) = &mapped {
        record(&trail, desk, mapped);
    }
    let mut response = match &result {
        Ok(_) => continue_at(&to),
        Err(failure) => failed(*failure, &to, &name),
    };
    // A response that does not belong to the log-in in progress does not end it.
    if !matches!(result, Err(OpenIdFailure::Expired | OpenIdFailure::TooMany)) {
        response.headers_mut().append(header::SET_COOKIE, pending_cookie("", 0, *is_secure));
    }
    if let Ok(OpenIdOutcome::LoggedIn(logged_in)) = &result {
        let LoggedIn { token, caller } = &**logged_in;
        let lifetime_s = caller.session.expires_at.saturating_since(now).as_secs();
        response.headers_mut().append(header::SET_COOKIE, cookie(token, lifetime_s, *is_secure));
    }
    Ok(response)
}

/// The parameters that matter. Providers add others. A parameter that is repeated has no value (RFC 6749 §3.1).
fn response_of(query: &str) -> AuthorizationResponse {
    let parameter = |wanted: &str| {
        let mut values = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == wanted);
        let first = values.next()?.1.into_owned();
        values.next().is_none().then_some(first)
    };
    AuthorizationResponse {
        code: parameter("code"),
        state: parameter("state"),
        iss: parameter("iss"),
        error: parameter("error"),
    }
}

/// A log-in leaves an entry, with the state before and after if it created the person or changed roles. So does a log-in that
/// fails because its mapping took the last role.
fn record(trail: &Trail, desk: &Desk, mapped: &MappedRoles) {
    let MappedRoles { before, after } = mapped;
    let has_changed = before.as_ref() != Some(after);
    if after.roles.is_empty() && !has_changed {
        return;
    }
    trail.by_person(after, None);
    trail.keep();
    if has_changed {
        if let Some(before) = before {
            trail.before(&person_body(desk, before));
        }
        trail.after(&person_body(desk, after));
    }
}

fn set(response: &mut Response, name: HeaderName, value: HeaderValue) {
    response.headers_mut().insert(name, value);
}

/// Answers of these routes belong to one log-in, and their addresses contain codes.
fn private(mut response: Response) -> Response {
    set(&mut response, header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    set(&mut response, header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn redirect(location: &str) -> Response {
    match HeaderValue::from_str(location) {
        Ok(location) => private((StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()),
        Err(error) => Problem::internal(error).into_response(),
    }
}

/// `to` is a path of the page.
fn failed(failure: OpenIdFailure, to: &str, provider: &str) -> Response {
    redirect(&format!("{to}?log_in={}&provider={provider}", failure.as_str()))
}

/// `to` is a path of the page, in characters that end no attribute.
fn continue_at(to: &str) -> Response {
    let to = to.replace('&', "&amp;");
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"refresh\" content=\"0;url={to}\">\n<title>Noroshi</title>\n\
         <p><a href=\"{to}\">Noroshi</a></p>\n</html>\n"
    );
    let mut response =
        private((StatusCode::OK, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response());
    set(&mut response, header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    set(&mut response, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn pending_cookie(value: &str, max_age_s: u64, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!(
        "{COOKIE}={value}; Path={OPENID_ROUTES}; HttpOnly; SameSite=Lax; Max-Age={max_age_s}{secure}"
    );
    HeaderValue::from_str(&text).expect("the value is base64url")
}

/// `GET /v1/session/methods`
pub(crate) fn buttons(desk: &Desk) -> Vec<serde_json::Value> {
    let button = |provider: &noroshi_console::Provider| serde_json::json!({"name": provider.name, "title": provider.title});
    desk.console.openid_providers().map(button).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_parameter_has_no_value() {
        let response = response_of("code=a%2Bb&state=s&session_state=x&iss=https%3A%2F%2Fid.example");
        assert_eq!((response.code.as_deref(), response.state.as_deref()), (Some("a+b"), Some("s")));
        assert_eq!((response.iss.as_deref(), response.error), (Some("https://id.example"), None));
        let twice = response_of("code=a&code=b&state=s&state=s");
        assert_eq!((twice.code, twice.state), (None, None));
    }
}
