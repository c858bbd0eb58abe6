//! How people log in to the console, and what they change about themselves.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use noroshi_console::{Caller, LoggedIn, Proof, Refused, Step, csrf_of};
use noroshi_store::PersonSession;
use noroshi_types::{Permissions, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::openid::buttons;
use super::person::{ALL_APPS, openid_body, person_body, roles_body};
use crate::audit::Trail;
use crate::body::person::{Acceptance, Confirmation, Link, LogIn, NewPassword, SecondStep, TotpCode};
use crate::error::Problem;
use crate::request::body::SmallJson;
use crate::request::parameter::Path;
use crate::request::session::{Desk, Person, Visitor, cookie};
use crate::respond::{self, Answer};

#[derive(Serialize)]
struct SessionBody {
    id: String,
    created_at: String,
    last_seen_at: String,
    expires_at: String,
    address: String,
    agent: String,
    /// It is that of the request.
    current: bool,
}

/// Who is logged in, and what they may do.
fn session_body(desk: &Desk, caller: &Caller, token: &str) -> Value {
    let person = &caller.person;
    let apps = desk.auth.apps();
    let permissions = apps.iter().filter_map(|app| {
        let permissions = caller.permissions(Some(app.id));
        (!permissions.is_empty()).then(|| (app.name.to_string(), names_of(permissions)))
    });
    let readable = apps.iter().filter(|app| !caller.permissions(Some(app.id)).is_empty());
    let readable = readable.map(|app| app.name.as_str());
    let all = caller.permissions(None);
    let on_node = (!all.is_empty()).then(|| (ALL_APPS.to_owned(), names_of(all)));
    json!({
        "front": desk.front,
        "person": {
            "id": person.id.0.to_string(),
            "email": person.email,
            "name": person.name,
            "password": person.login.password.is_some(),
            "totp": person.login.totp_is_on,
            "openid": openid_body(desk, &person.login),
        },
        "roles": roles_body(&desk.auth, &person.roles, &person.mapped),
        "apps": readable.collect::<Value>(),
        "permissions": permissions.chain(on_node).collect::<Map<_, _>>(),
        "csrf": csrf_of(token),
        "confirmed_until": caller.confirmed_until().to_string(),
        "expires_at": caller.session.expires_at.to_string(),
    })
}

fn names_of(permissions: Permissions) -> Value {
    permissions.iter().map(|permission| permission.as_str()).collect()
}

/// Counts a log-in. A right password that needs a code counts as `ok` too; the code counts for itself.
fn counted<T>(visitor: &Visitor, method: &'static str, result: Result<T, Refused>) -> Result<T, Refused> {
    visitor.desk.metrics.log_in(method, result.as_ref().map_or_else(Refused::label, |_| "ok"));
    result
}

/// A new session: its cookie and its person. The log-in leaves an entry in the audit log.
fn begun(visitor: &Visitor, trail: &Trail, logged_in: &LoggedIn, now: Timestamp) -> Answer {
    let LoggedIn { token, caller } = logged_in;
    trail.by_person(&caller.person, None);
    let seconds = caller.session.expires_at.saturating_since(now).as_secs();
    let mut response = respond::ok(&session_body(&visitor.desk, caller, token))?;
    let headers = response.headers_mut();
    headers.insert(header::SET_COOKIE, cookie(token, seconds, visitor.is_secure));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    Ok(response)
}

/// `GET /v1/session/methods`
pub(crate) async fn methods(visitor: Visitor) -> Answer {
    respond::ok(&json!({"password": true, "oidc": buttons(&visitor.desk)}))
}

/// `GET /v1/session`
pub(crate) async fn show(person: Person) -> Answer {
    let mut response = respond::ok(&session_body(&person.desk, &person.caller, &person.token))?;
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    Ok(response)
}

/// `POST /v1/session`
pub(crate) async fn log_in(visitor: Visitor, trail: Trail, SmallJson(body): SmallJson<LogIn>) -> Answer {
    let now = visitor.desk.now();
    let step = visitor.desk.console.log_in(&body.email, body.password, &visitor.client, now).await;
    match counted(&visitor, "password", step)? {
        Step::LoggedIn(logged_in) => begun(&visitor, &trail, &logged_in, now),
        Step::Code { ticket } => respond::ok(&json!({"next": "totp", "ticket": ticket})),
    }
}

/// `POST /v1/session/totp`
pub(crate) async fn log_in_with_code(
    visitor: Visitor,
    trail: Trail,
    SmallJson(body): SmallJson<SecondStep>,
) -> Answer {
    let now = visitor.desk.now();
    let logged_in = visitor.desk.console.log_in_with_code(&body.ticket, &body.code, &visitor.client, now);
    begun(&visitor, &trail, &counted(&visitor, "code", logged_in.await)?, now)
}

/// `POST /v1/session/link`
pub(crate) async fn log_in_with_link(
    visitor: Visitor,
    trail: Trail,
    SmallJson(body): SmallJson<Link>,
) -> Answer {
    let now = visitor.desk.now();
    let logged_in = visitor.desk.console.log_in_with_link(&body.token, &visitor.client, now).await;
    begun(&visitor, &trail, &counted(&visitor, "link", logged_in)?, now)
}

/// `POST /v1/invitations/accept`
pub(crate) async fn accept_invitation(
    visitor: Visitor,
    trail: Trail,
    SmallJson(body): SmallJson<Acceptance>,
) -> Answer {
    let now = visitor.desk.now();
    let Acceptance { token, name, password } = body;
    let console = &visitor.desk.console;
    let logged_in = console.accept_invitation(&token, &name, password, &visitor.client, now).await;
    let logged_in = counted(&visitor, "invitation", logged_in)?;
    trail.after(&person_body(&visitor.desk, &logged_in.caller.person));
    begun(&visitor, &trail, &logged_in, now)
}

/// `DELETE /v1/session`
pub(crate) async fn log_out(person: Person) -> Result<Response, Problem> {
    person.desk.console.log_out(&person.caller).await?;
    let mut headers = HeaderMap::new();
    headers.insert(header::SET_COOKIE, cookie("", 0, false));
    Ok((StatusCode::NO_CONTENT, headers).into_response())
}

/// `POST /v1/session/confirm`
pub(crate) async fn confirm(mut person: Person, SmallJson(body): SmallJson<Confirmation>) -> Answer {
    let proof = match (body.password, body.code) {
        (Some(password), None) => Proof::Password(password),
        (None, Some(code)) => Proof::Code(code),
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::field("password", "give either `password` or `code`"));
        }
    };
    let now = person.desk.now();
    let console = person.desk.console.clone();
    console.confirm(&mut person.caller, proof, &person.client, now).await?;
    show(person).await
}

/// `PUT /v1/session/password`
pub(crate) async fn change_password(
    person: Person,
    SmallJson(body): SmallJson<NewPassword>,
) -> Result<StatusCode, Problem> {
    let Person { caller, desk, client, .. } = &person;
    desk.console.change_password(caller, body.current, body.new, client, desk.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/session/totp-secret`
pub(crate) async fn begin_totp(person: Person) -> Answer {
    let setup = person.desk.console.begin_totp(&person.caller, person.desk.now()).await?;
    respond::ok(&json!({"secret": setup.secret, "uri": setup.uri}))
}

/// `PUT /v1/session/totp-secret`
pub(crate) async fn turn_on_totp(person: Person, SmallJson(body): SmallJson<TotpCode>) -> Answer {
    let codes = person.desk.console.turn_on_totp(&person.caller, &body.code, person.desk.now()).await?;
    respond::field("recovery_codes", codes)
}

/// `DELETE /v1/session/totp-secret`
pub(crate) async fn turn_off_totp(person: Person) -> Result<StatusCode, Problem> {
    person.desk.console.turn_off_totp(&person.caller, person.desk.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/sessions`
pub(crate) async fn list(person: Person) -> Answer {
    let sessions = person.desk.console.sessions(&person.caller, person.desk.now()).await?;
    let current = person.caller.session.id;
    let body = |session: PersonSession| SessionBody {
        id: session.id.to_string(),
        created_at: session.created_at.to_string(),
        last_seen_at: session.seen_at.to_string(),
        expires_at: session.expires_at.to_string(),
        address: session.address,
        agent: session.agent,
        current: session.id == current,
    };
    respond::field("sessions", sessions.into_iter().map(body).collect::<Vec<_>>())
}

/// `DELETE /v1/sessions/{id}`
pub(crate) async fn end(person: Person, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    let id = id.parse().map_err(|_| Problem::not_found("session"))?;
    let ended = person.desk.console.store().end_session(person.caller.person.id, id).await;
    ended.map_err(Problem::missing("session"))?;
    Ok(StatusCode::NO_CONTENT)
}
