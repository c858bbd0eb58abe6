//! People of the console, and invitations. Owners of all apps manage all people; owners of an app manage who works on it.

use std::time::Duration;

use axum::extract::State as Shared;
use http::StatusCode;
use noroshi_auth::Auth;
use noroshi_console::{Invitation, check_email, check_name};
use noroshi_store::{Error, PersonChange, PersonLogin, Ticket, TicketPurpose};
use noroshi_types::{AppId, PersonId, Role};
use serde::Serialize;
use serde_json::{Value, json};

use crate::audit::Trail;
use crate::body::person::{AppInvitation, Named, NewInvitation, NewRole, PersonChanges, RoleInApp};
use crate::error::{Code, Problem};
use crate::json;
use crate::request::access::Operator;
use crate::request::body::JsonBody;
use crate::request::page::{Page, next, not_a_position};
use crate::request::parameter::{Path, Query};
use crate::request::session::{Desk, Person};
use crate::respond::{self, Answer};

/// Stands for all apps where an app has its name.
pub(super) const ALL_APPS: &str = "*";

#[derive(Serialize)]
pub(super) struct PersonBody {
    id: String,
    email: String,
    name: String,
    password: bool,
    totp: bool,
    /// How the person logs in with a provider.
    openid: Option<OpenIdBody>,
    created_at: String,
    disabled_at: Option<String>,
    roles: Value,
}

/// How a person logs in without a password of this console.
#[derive(Serialize)]
pub(super) struct OpenIdBody {
    /// Of the provider. `None`: it is no longer configured.
    name: Option<String>,
    /// Without a configured provider, its issuer.
    title: String,
}

pub(super) fn openid_body(desk: &Desk, login: &PersonLogin) -> Option<OpenIdBody> {
    let openid = login.openid.as_ref()?;
    let provider = desk.console.openid_providers().find(|provider| provider.issuer == openid.issuer);
    Some(OpenIdBody {
        name: provider.map(|provider| provider.name.clone()),
        title: provider.map_or_else(|| openid.issuer.clone(), |provider| provider.title.clone()),
    })
}

pub(super) fn person_body(desk: &Desk, person: &noroshi_store::Person) -> PersonBody {
    PersonBody {
        id: person.id.0.to_string(),
        email: person.email.clone(),
        name: person.name.clone(),
        password: person.login.password.is_some(),
        totp: person.login.totp_is_on,
        openid: openid_body(desk, &person.login),
        created_at: person.created_at.to_string(),
        disabled_at: person.disabled_at.map(|at| at.to_string()),
        roles: roles_body(&desk.auth, &person.roles, &person.mapped),
    }
}

/// `mapped`: the apps whose role an OpenID provider's groups gave.
pub(super) fn roles_body(auth: &Auth, roles: &[(Option<AppId>, Role)], mapped: &[Option<AppId>]) -> Value {
    let apps = auth.apps();
    let name_of = |id: AppId| apps.iter().find(|app| app.id == id).map(|app| app.name.to_string());
    let role = |(app, role): &(Option<AppId>, Role)| {
        let name = app.map_or(Some(ALL_APPS.to_owned()), name_of)?;
        Some(match mapped.contains(app) {
            true => json!({"app": name, "role": role.as_str(), "mapped": true}),
            false => json!({"app": name, "role": role.as_str()}),
        })
    };
    roles.iter().filter_map(role).collect()
}

#[derive(Serialize)]
struct InvitationBody {
    id: String,
    email: String,
    roles: Value,
    created_at: String,
    expires_at: String,
    /// Path and fragment of the page that accepts it. Only in the response that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

fn invitation_body(auth: &Auth, ticket: Ticket, token: Option<&str>) -> Option<InvitationBody> {
    let TicketPurpose::Invitation { email, roles } = ticket.purpose else { return None };
    Some(InvitationBody {
        id: ticket.id.to_string(),
        email,
        roles: roles_body(auth, &roles, &[]),
        created_at: ticket.created_at.to_string(),
        expires_at: ticket.expires_at.to_string(),
        link: token.map(|token| format!("/console/invitation#token={token}")),
    })
}

/// For a person who asked for it just now.
const LINK_LIFETIME: Duration = Duration::from_secs(900);

/// `*`, or the name of an app.
fn app_of(auth: &Auth, name: &str) -> Result<Option<AppId>, Problem> {
    if name == ALL_APPS {
        return Ok(None);
    }
    auth.app(name).map(|app| Some(app.id)).ok_or_else(|| Problem::not_found("app"))
}

fn person_id(text: &str) -> Result<PersonId, Problem> {
    text.parse().map(PersonId).map_err(|_| Problem::not_found("person"))
}

/// Why the store refused a change of a person.
fn refused(error: Error) -> Problem {
    match error {
        Error::Conflict => Problem::new(
            Code::WrongState,
            "nobody else owns all apps: make another person an owner of all apps first",
        ),
        error => Problem::missing("person")(error),
    }
}

/// `GET /v1/people`
pub(crate) async fn list(caller: Person, Query(page): Query<Page>) -> Answer {
    let limit = page.limit()?;
    let after = page.after().map_or(Ok(0), |text| text.parse().map_err(|_| not_a_position()))?;
    let found = caller.desk.console.store().people(PersonId(after), limit).await?;
    let next = next(&found, limit, |last| last.id.0.to_string());
    let bodies = found.iter().map(|person| person_body(&caller.desk, person)).collect();
    respond::page("people", bodies, next)
}

/// `GET /v1/people/{id}`
pub(crate) async fn show(caller: Person, Path(id): Path<String>) -> Answer {
    let found = caller.desk.console.store().person(person_id(&id)?).await?;
    let found = found.ok_or_else(|| Problem::not_found("person"))?;
    respond::ok(&person_body(&caller.desk, &found))
}

/// `PATCH /v1/people/{id}`
pub(crate) async fn change(
    caller: Person,
    trail: Trail,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let PersonChanges { name, disabled } = json::parse(&body)?;
    let (id, store) = (person_id(&id)?, caller.desk.console.store());
    if id == caller.caller.person.id && disabled == Some(true) {
        return Err(Problem::new(Code::WrongState, "nobody can disable themselves"));
    }
    let name = name.map(|name| check_name(&name)).transpose()?;
    let before = store.person(id).await?.ok_or_else(|| Problem::not_found("person"))?;
    let change = PersonChange { name, is_disabled: disabled, ..PersonChange::default() };
    let after = store.change_person(id, change, caller.desk.now()).await.map_err(refused)?;
    changed(&caller, &trail, &before, &after)
}

fn changed(
    caller: &Person,
    trail: &Trail,
    before: &noroshi_store::Person,
    after: &noroshi_store::Person,
) -> Answer {
    let after = person_body(&caller.desk, after);
    trail.before(&person_body(&caller.desk, before));
    trail.after(&after);
    respond::ok(&after)
}

/// `DELETE /v1/people/{id}`
pub(crate) async fn delete(
    caller: Person,
    trail: Trail,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (id, store) = (person_id(&id)?, caller.desk.console.store());
    let before = store.person(id).await?.ok_or_else(|| Problem::not_found("person"))?;
    store.delete_person(id).await.map_err(refused)?;
    trail.before(&person_body(&caller.desk, &before));
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/people/{id}/link`: a link that logs the person in once, for a person who lost their password.
pub(crate) async fn link(caller: Person, Path(id): Path<String>) -> Answer {
    let by = Some(caller.caller.person.id);
    linked(&caller.desk, by, person_id(&id)?).await
}

async fn linked(desk: &Desk, by: Option<PersonId>, person: PersonId) -> Answer {
    let Invitation { ticket, token } = desk.console.link(by, person, LINK_LIFETIME, desk.now()).await?;
    let body =
        json!({"link": format!("/console/link#token={token}"), "expires_at": ticket.expires_at.to_string()});
    Ok(respond::json(StatusCode::CREATED, &body))
}

/// `POST /v1/console/links` of the admin listener: for a person who cannot log in, and nobody else can help.
pub(crate) async fn link_by_operator(
    _: Operator,
    Shared(desk): Shared<Desk>,
    trail: Trail,
    JsonBody(body): JsonBody,
) -> Answer {
    let Named { email } = json::parse(&body)?;
    let person = desk.console.store().person_with_email(&check_email(&email)?).await?;
    let person = person.ok_or_else(|| Problem::not_found("person"))?;
    trail.after(&json!({"id": person.id.0.to_string(), "email": person.email}));
    linked(&desk, None, person.id).await
}

/// `POST /v1/console/invitations` of the admin listener: how the first people come.
pub(crate) async fn invite_by_operator(
    _: Operator,
    Shared(desk): Shared<Desk>,
    trail: Trail,
    JsonBody(body): JsonBody,
) -> Answer {
    let NewInvitation { email, roles } = json::parse(&body)?;
    let roles = roles_of(&desk.auth, roles.all("roles")?)?;
    invited(&desk, None, &trail, &email, roles).await
}

/// `PUT /v1/people/{id}/roles/{role_app}`
pub(crate) async fn set_role(
    caller: Person,
    trail: Trail,
    Path((id, app)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let NewRole { role } = json::parse(&body)?;
    let app = app_of(&caller.desk.auth, &app)?;
    put_role(&caller, &trail, person_id(&id)?, app, Some(role.0)).await
}

/// `DELETE /v1/people/{id}/roles/{role_app}`
pub(crate) async fn remove_role(
    caller: Person,
    trail: Trail,
    Path((id, app)): Path<(String, String)>,
) -> Answer {
    let app = app_of(&caller.desk.auth, &app)?;
    put_role(&caller, &trail, person_id(&id)?, app, None).await
}

async fn put_role(
    caller: &Person,
    trail: &Trail,
    id: PersonId,
    app: Option<AppId>,
    role: Option<Role>,
) -> Answer {
    let store = caller.desk.console.store();
    let before = store.person(id).await?.ok_or_else(|| Problem::not_found("person"))?;
    let after = store.set_role(id, app, role).await.map_err(refused)?;
    changed(caller, trail, &before, &after)
}

/// `GET /v1/invitations`
pub(crate) async fn invitations(caller: Person) -> Answer {
    let found = caller.desk.console.store().invitations(caller.desk.now()).await?;
    let bodies = found.into_iter().filter_map(|ticket| invitation_body(&caller.desk.auth, ticket, None));
    respond::field("invitations", bodies.collect::<Vec<_>>())
}

/// `POST /v1/invitations`
pub(crate) async fn invite(caller: Person, trail: Trail, JsonBody(body): JsonBody) -> Answer {
    let NewInvitation { email, roles } = json::parse(&body)?;
    let roles = roles_of(&caller.desk.auth, roles.all("roles")?)?;
    invited(&caller.desk, Some(caller.caller.person.id), &trail, &email, roles).await
}

fn roles_of(auth: &Auth, roles: Vec<RoleInApp>) -> Result<Vec<(Option<AppId>, Role)>, Problem> {
    if roles.is_empty() {
        return Err(Problem::field("roles", "must have at least one role"));
    }
    let role = |(number, one): (usize, RoleInApp)| {
        let app = app_of(auth, &one.app).map_err(|problem| problem.at(format!("roles[{number}].app")))?;
        Ok((app, one.role.0))
    };
    roles.into_iter().enumerate().map(role).collect()
}

async fn invited(
    desk: &Desk,
    by: Option<PersonId>,
    trail: &Trail,
    email: &str,
    roles: Vec<(Option<AppId>, Role)>,
) -> Answer {
    let made = desk.console.invite(by, email, roles, desk.now()).await?;
    trail.after(&invitation_body(&desk.auth, made.ticket.clone(), None));
    Ok(respond::json(StatusCode::CREATED, &invitation_body(&desk.auth, made.ticket, Some(&made.token))))
}

/// `DELETE /v1/invitations/{id}`
pub(crate) async fn withdraw(
    caller: Person,
    trail: Trail,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let store = caller.desk.console.store();
    let found = store.invitations(caller.desk.now()).await?;
    let ticket = found.into_iter().find(|ticket| ticket.id.to_string() == id);
    let ticket = ticket.ok_or_else(|| Problem::not_found("invitation"))?;
    store.delete_ticket(ticket.id).await.map_err(Problem::missing("invitation"))?;
    trail.before(&invitation_body(&caller.desk.auth, ticket, None));
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/apps/{app}/people`: who has a role in the app.
pub(crate) async fn of_app(caller: Person, Query(page): Query<Page>) -> Answer {
    let (app, limit) = (caller.app_id()?, page.limit()?);
    let after = page.after().map_or(Ok(0), |text| text.parse().map_err(|_| not_a_position()))?;
    let found = caller.desk.console.store().people_of_app(app, PersonId(after), limit).await?;
    let next = next(&found, limit, |last| last.id.0.to_string());
    respond::page("people", found.iter().map(|person| member_body(person, Some(app))).collect(), next)
}

/// `POST /v1/apps/{app}/people`: invites a person to the app, or gives a person the role at once.
pub(crate) async fn add_to_app(caller: Person, trail: Trail, JsonBody(body): JsonBody) -> Answer {
    let AppInvitation { email, role } = json::parse(&body)?;
    let app = Some(caller.app_id()?);
    let found = caller.desk.console.store().person_with_email(&check_email(&email)?).await?;
    match found {
        Some(person) => put_role_in_app(&caller, &trail, &person, app, Some(role.0)).await,
        None => {
            let by = Some(caller.caller.person.id);
            invited(&caller.desk, by, &trail, &email, vec![(app, role.0)]).await
        }
    }
}

/// An open invitation, as an owner of one app sees it.
#[derive(Serialize)]
struct AppInvitationBody {
    id: String,
    email: String,
    role: &'static str,
    /// It also names other apps, so only owners of all apps can withdraw it.
    other_apps: bool,
    created_at: String,
    expires_at: String,
}

fn app_invitation_body(ticket: &Ticket, app: AppId) -> Option<AppInvitationBody> {
    let TicketPurpose::Invitation { email, roles } = &ticket.purpose else { return None };
    let (_, role) = roles.iter().find(|(of, _)| *of == Some(app))?;
    Some(AppInvitationBody {
        id: ticket.id.to_string(),
        email: email.clone(),
        role: role.as_str(),
        other_apps: roles.iter().any(|(of, _)| *of != Some(app)),
        created_at: ticket.created_at.to_string(),
        expires_at: ticket.expires_at.to_string(),
    })
}

/// `GET /v1/apps/{app}/invitations`: open invitations that name the app.
pub(crate) async fn invitations_of_app(caller: Person) -> Answer {
    let app = caller.app_id()?;
    let found = caller.desk.console.store().invitations(caller.desk.now()).await?;
    let bodies = found.iter().filter_map(|ticket| app_invitation_body(ticket, app));
    respond::field("invitations", bodies.collect::<Vec<_>>())
}

/// `DELETE /v1/apps/{app}/invitations/{id}`
pub(crate) async fn withdraw_from_app(
    caller: Person,
    trail: Trail,
    Path((_, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (app, store) = (caller.app_id()?, caller.desk.console.store());
    let found = store.invitations(caller.desk.now()).await?;
    let ticket = found.iter().find(|ticket| ticket.id.to_string() == id);
    let before = ticket.and_then(|ticket| app_invitation_body(ticket, app));
    let (Some(ticket), Some(before)) = (ticket, before) else { return Err(Problem::not_found("invitation")) };
    if before.other_apps {
        let detail = "the invitation also names other apps: an owner of all apps can withdraw it";
        return Err(Problem::new(Code::WrongState, detail));
    }
    store.delete_ticket(ticket.id).await.map_err(Problem::missing("invitation"))?;
    trail.before(&before);
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /v1/apps/{app}/people/{id}`: takes the person's role in the app.
pub(crate) async fn remove_from_app(
    caller: Person,
    trail: Trail,
    Path((_, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (app, id) = (caller.app_id()?, person_id(&id)?);
    let person = caller.desk.console.store().person(id).await?;
    // An owner of one app does not learn who else there is.
    let has_role = |person: &noroshi_store::Person| person.roles.iter().any(|(of, _)| *of == Some(app));
    let person = person.filter(has_role).ok_or_else(|| Problem::not_found("person"))?;
    put_role_in_app(&caller, &trail, &person, Some(app), None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A person as an owner of one app sees them: without other apps.
fn member_body(person: &noroshi_store::Person, app: Option<AppId>) -> Value {
    let role = person.roles.iter().find(|(of, _)| *of == app).map(|(_, role)| role.as_str());
    json!({"id": person.id.0.to_string(), "email": person.email, "name": person.name, "role": role})
}

async fn put_role_in_app(
    caller: &Person,
    trail: &Trail,
    before: &noroshi_store::Person,
    app: Option<AppId>,
    role: Option<Role>,
) -> Answer {
    let after = caller.desk.console.store().set_role(before.id, app, role).await.map_err(refused)?;
    trail.before(&member_body(before, app));
    let after = member_body(&after, app);
    trail.after(&after);
    respond::ok(&after)
}
