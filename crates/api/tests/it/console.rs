//! The console: how people log in, what each role may do on every route, and the audit log.

use axum::body::Body;
use http::{Method, Request, header};
use noroshi_api::Needed;
use noroshi_api::router::{CONSOLE_API, console_paths};
use noroshi_console::Client;
use noroshi_store::{AuditFilter, PersonChange};
use noroshi_types::{AppId, Permission, PersonId, Role, Timestamp};
use serde_json::{Value, json};

use crate::service::{Answer, NOW, OPERATOR, Service, answer};

pub(crate) const PASSWORD: &str = "correct horse battery";

/// A browser in which a person is logged in.
pub(crate) struct Browser {
    pub(crate) id: PersonId,
    pub(crate) cookie: String,
    csrf: String,
    app: &'static str,
}

impl Browser {
    pub(crate) async fn call(&self, service: &Service, method: Method, path: &str, body: &str) -> Answer {
        self.call_with(
            service,
            method,
            path,
            body,
            &[("noroshi-csrf", &self.csrf), ("noroshi-app", self.app)],
        )
        .await
    }

    pub(crate) async fn call_with(
        &self,
        service: &Service,
        method: Method,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("{CONSOLE_API}{path}"));
        request = request.header(header::COOKIE, format!("other=1; noroshi_session={}", self.cookie));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        answer(service.console.clone(), request).await
    }
}

/// Without a session.
async fn visit(service: &Service, method: Method, path: &str, body: &str) -> Answer {
    let request = Request::builder().method(method).uri(format!("{CONSOLE_API}{path}"));
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    answer(service.console.clone(), request).await
}

fn session_of(answer: &Answer, app: &'static str) -> Browser {
    let set = answer.header("set-cookie").expect("a cookie");
    let value = set.strip_prefix("noroshi_session=").and_then(|rest| rest.split_once(';'));
    let body = answer.json();
    Browser {
        id: PersonId(body["person"]["id"].as_str().and_then(|id| id.parse().ok()).expect("an id")),
        cookie: value.expect("the session").0.to_owned(),
        csrf: body["csrf"].as_str().expect("a value").to_owned(),
        app,
    }
}

/// Invites a person, who accepts.
pub(crate) async fn person(service: &Service, email: &str, roles: Vec<(Option<AppId>, Role)>) -> Browser {
    let invited = service.state.console.invite(None, email, roles, NOW).await.expect("invited");
    let body = json!({"token": invited.token, "name": "Ann", "password": PASSWORD}).to_string();
    let answer = visit(service, Method::POST, "/v1/invitations/accept", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    session_of(&answer, "dev")
}

/// The path with values for its parameters.
fn path_of(route: &str) -> String {
    route
        .replace("{app}", "dev")
        .replace("{role_app}", "dev")
        .replace("{kind}", "alert")
        .replace("{device}", "d9")
        .replace("{user}", "u9")
        .replace("{topic}", "t9")
        .replace("{name}", "n9")
        .replace("{key}", "99")
        .replace("{id}", "00000000-0000-7000-8000-000000000000")
}

/// Whether the route was refused because of the caller.
fn is_refused(answer: &Answer) -> bool {
    let lacks = || answer.json()["detail"].as_str().is_some_and(|detail| detail.contains("lacks"));
    answer.status == 401 || (answer.status == 403 && lacks())
}

#[tokio::test]
async fn every_role_may_do_what_its_permissions_say_and_nothing_else() {
    let service = Service::start().await;
    let app = Some(service.app());
    for role in Role::ALL {
        for of in [app, None] {
            let email = format!("{}-{}@example.com", role.as_str(), of.is_some());
            let browser = person(&service, &email, vec![(of, role)]).await;
            for (method, route, needed) in console_paths() {
                // It would end the session, the app or the profile's time.
                let ends = [
                    ("DELETE", "/v1/session"),
                    ("DELETE", "/v1/apps/{app}"),
                    ("GET", "/debug/pprof/profile"),
                    // It does not end; `series` tests who may open it.
                    ("GET", "/v1/live"),
                    ("GET", "/v1/apps/{app}/live"),
                    // Likewise, and `tail` does.
                    ("GET", "/v1/tail"),
                ];
                if ends.contains(&(method.as_str(), route)) {
                    continue;
                }
                let allowed = match needed {
                    Needed::Nothing | Needed::Person => continue,
                    Needed::InApp(permission) => role.permissions().contains(permission),
                    Needed::OnNode(permission) => of.is_none() && role.permissions().contains(permission),
                };
                let answer = browser.call(&service, method.clone(), &path_of(route), "").await;
                let what = format!("{} ({of:?}): {method} {route}: {}", role.as_str(), answer.text);
                assert_eq!(is_refused(&answer), !allowed, "{what}");
                assert!(answer.status != 500, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn strangers_get_nothing() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let ann = person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    let forged = Browser { cookie: "A".repeat(43), csrf: String::new(), ..ann };
    for (method, route, needed) in console_paths() {
        if needed == Needed::Nothing {
            continue;
        }
        let path = path_of(route);
        let nobody = visit(&service, method.clone(), &path, "").await;
        assert_eq!(nobody.status, 401, "{method} {route}: {}", nobody.text);
        assert_eq!(nobody.header("www-authenticate"), None, "no browser asks for a password itself");
        assert_eq!(forged.call(&service, method.clone(), &path, "").await.status, 401, "{method} {route}");
        for bearer in [&service.key, OPERATOR, &token] {
            let request =
                crate::service::request(method.clone(), &format!("{CONSOLE_API}{path}"), bearer, "");
            let other = answer(service.console.clone(), request).await;
            assert_eq!(other.status, 401, "{method} {route}: {}", other.text);
        }
    }
    // A session is worth nothing elsewhere.
    for router in [service.public.clone(), service.admin.clone()] {
        let request = Request::get("/v1/apps/dev/keys")
            .header(header::COOKIE, format!("noroshi_session={}", ann.cookie));
        let answer = answer(router, request.body(Body::empty()).expect("a request")).await;
        assert_eq!(answer.status, 401);
    }
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    let publish = r#"{"to": {"users": ["u1"]}, "data": 1}"#;
    let post = async |headers: &[(&str, &str)]| {
        ann.call_with(&service, Method::POST, "/v1/notifications", publish, headers).await
    };
    let csrf = ann.csrf.as_str();
    post(&[("noroshi-app", "dev")]).await.problem(403, "csrf");
    post(&[("noroshi-app", "dev"), ("noroshi-csrf", "wrong")]).await.problem(403, "csrf");
    for site in ["cross-site", "same-site", "none"] {
        post(&[("noroshi-app", "dev"), ("noroshi-csrf", csrf), ("sec-fetch-site", site)])
            .await
            .problem(403, "csrf");
    }
    let own =
        post(&[("noroshi-app", "dev"), ("noroshi-csrf", csrf), ("sec-fetch-site", "same-origin")]).await;
    assert_eq!(own.status, 202, "{}", own.text);
    post(&[("noroshi-csrf", csrf)]).await.problem(400, "invalid_parameter");
    // Not even a log-in.
    let request = Request::post(format!("{CONSOLE_API}/v1/session")).header("sec-fetch-site", "cross-site");
    let request = request.body(Body::from(r#"{"email":"a@b","password":"x"}"#)).expect("a request");
    answer(service.console.clone(), request).await.problem(403, "csrf");
}

#[tokio::test]
async fn an_app_without_a_role_does_not_exist() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(Some(service.app()), Role::Owner)]).await;
    let elsewhere = Browser { app: "other", cookie: ann.cookie.clone(), csrf: ann.csrf.clone(), ..ann };
    for path in ["/v1/devices", "/v1/apps/other/keys", "/v1/apps/none/keys", "/v1/apps/other/people"] {
        elsewhere.call(&service, Method::GET, path, "").await.problem(404, "not_found");
    }
    ann.call(&service, Method::GET, "/v1/apps", "").await.problem(403, "forbidden");
    assert_eq!(ann.call(&service, Method::GET, "/v1/apps/dev/keys", "").await.status, 200);
    // The header does not override the path.
    assert_eq!(elsewhere.call(&service, Method::GET, "/v1/apps/dev/keys", "").await.status, 200);
    let session = ann.call(&service, Method::GET, "/v1/session", "").await.json();
    assert_eq!(session["roles"], json!([{"app": "dev", "role": "owner"}]));
    assert_eq!(session["permissions"].as_object().map(|apps| apps.len()), Some(1));
}

#[tokio::test]
async fn a_session_ends_with_its_person() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    let bob = person(&service, "bob@example.com", vec![(None, Role::Viewer)]).await;
    let log_in = json!({"email": "bob@example.com", "password": PASSWORD}).to_string();
    let again = visit(&service, Method::POST, "/v1/session", &log_in).await;
    let cookie = again.header("set-cookie").expect("a cookie");
    for part in ["Path=/console", "HttpOnly", "SameSite=Strict"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "the request came over plain HTTP");
    let other = session_of(&again, "dev");
    let sessions = bob.call(&service, Method::GET, "/v1/sessions", "").await.json();
    let ids: Vec<_> = sessions["sessions"].as_array().expect("a list").iter().collect();
    assert_eq!(ids.iter().map(|one| one["current"] == true).collect::<Vec<_>>(), [false, true]);
    let newest = ids[0]["id"].as_str().expect("an id");
    let foreign = ann.call(&service, Method::DELETE, &format!("/v1/sessions/{newest}"), "").await;
    foreign.problem(404, "not_found");
    assert_eq!(bob.call(&service, Method::DELETE, &format!("/v1/sessions/{newest}"), "").await.status, 204);
    other.call(&service, Method::GET, "/v1/session", "").await.problem(401, "unauthorized");

    let path = format!("/v1/people/{}", bob.id.0);
    let disabled = ann.call(&service, Method::PATCH, &path, r#"{"disabled": true}"#).await;
    assert!(disabled.json()["disabled_at"].is_string(), "{}", disabled.text);
    bob.call(&service, Method::GET, "/v1/session", "").await.problem(401, "unauthorized");
    visit(&service, Method::POST, "/v1/session", &log_in).await.problem(401, "unauthorized");
    let own = format!("/v1/people/{}", ann.id.0);
    ann.call(&service, Method::PATCH, &own, r#"{"disabled": true}"#).await.problem(409, "wrong_state");
    ann.call(&service, Method::DELETE, &own, "").await.problem(409, "wrong_state");
    assert_eq!(ann.call(&service, Method::DELETE, "/v1/session", "").await.status, 204);
    ann.call(&service, Method::GET, "/v1/session", "").await.problem(401, "unauthorized");
}

#[tokio::test]
async fn a_dangerous_action_needs_a_recent_log_in() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    let create = r#"{"name": "k", "scopes": ["read"]}"#;
    let keys = "/v1/apps/dev/keys";
    assert_eq!(ann.call(&service, Method::POST, keys, create).await.status, 201);
    service.clock.set(Timestamp(NOW.0 + 600_000));
    ann.call(&service, Method::POST, keys, create).await.problem(403, "confirm_log_in");
    ann.call(&service, Method::DELETE, "/v1/apps/dev", "").await.problem(403, "confirm_log_in");
    assert_eq!(ann.call(&service, Method::GET, keys, "").await.status, 200);
    let confirm =
        async |body: Value| ann.call(&service, Method::POST, "/v1/session/confirm", &body.to_string()).await;
    confirm(json!({"password": "wrong"})).await.problem(401, "unauthorized");
    confirm(json!({})).await.problem(400, "invalid_field");
    assert_eq!(confirm(json!({"password": PASSWORD})).await.status, 200);
    assert_eq!(ann.call(&service, Method::POST, keys, create).await.status, 201);
}

#[tokio::test]
async fn owners_of_an_app_manage_its_people() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(Some(service.app()), Role::Owner)]).await;
    let bob = person(&service, "bob@example.com", vec![(None, Role::Viewer)]).await;
    let add = async |email: &str, role: &str| {
        let body = json!({"email": email, "role": role}).to_string();
        ann.call(&service, Method::POST, "/v1/apps/dev/people", &body).await
    };
    assert_eq!(add("bob@example.com", "author").await.json()["role"], "author");
    let invited = add("new@example.com", "support").await;
    assert_eq!(invited.status, 201, "{}", invited.text);
    let link = invited.json()["link"].as_str().expect("a link").to_owned();
    assert!(link.starts_with("/console/invitation#token="), "{link}");
    add("new@example.com", "king").await.problem(400, "invalid_field");
    add("no address", "author").await.problem(400, "invalid_field");
    let listed = ann.call(&service, Method::GET, "/v1/apps/dev/people", "").await.json();
    let emails: Vec<_> =
        listed["people"].as_array().expect("a list").iter().map(|one| &one["email"]).collect();
    assert_eq!(emails, ["ann@example.com", "bob@example.com"]);
    let remove = |id: PersonId| format!("/v1/apps/dev/people/{}", id.0);
    assert_eq!(ann.call(&service, Method::DELETE, &remove(bob.id), "").await.status, 204);
    ann.call(&service, Method::DELETE, &remove(bob.id), "").await.problem(404, "not_found");
    assert_eq!(
        bob.call(&service, Method::GET, "/v1/devices", "").await.status,
        200,
        "still a viewer of all apps"
    );
    bob.call(&service, Method::POST, "/v1/notifications", "{}").await.problem(403, "forbidden");
}

#[tokio::test]
async fn support_sends_tests_to_few() {
    let service = Service::start().await;
    let sue = person(&service, "sue@example.com", vec![(Some(service.app()), Role::Support)]).await;
    let test = async |to: Value| {
        let body = json!({"to": to, "data": 1}).to_string();
        sue.call(&service, Method::POST, "/v1/test-notifications", &body).await
    };
    assert_eq!(test(json!({"users": ["u1"]})).await.status, 202);
    assert_eq!(test(json!({"devices": ["d1", "d2"]})).await.status, 202);
    let many: Vec<_> = (0..11).map(|number| format!("u{number}")).collect();
    for to in [json!({"users": many}), json!({"topic": "news"}), json!({"everyone": true})] {
        assert_eq!(test(to).await.problem(400, "invalid_field")["field"], "to");
    }
    let publish = r#"{"to": {"users": ["u1"]}, "data": 1}"#;
    sue.call(&service, Method::POST, "/v1/notifications", publish).await.problem(403, "forbidden");
}

#[tokio::test]
async fn changes_are_recorded_without_secrets() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    const EXPIRING: &str = r#"{"name": "k", "scopes": ["read"], "expires_at": "2028-01-15T08:00:00Z"}"#;
    let made = ann.call(&service, Method::POST, "/v1/apps/dev/keys", EXPIRING).await;
    let secret = made.json()["key"].as_str().expect("a key").to_owned();
    ann.call(&service, Method::POST, "/v1/apps/dev/keys", "{}").await.problem(400, "invalid_field");
    ann.call(&service, Method::POST, "/v1/presence", r#"{"users": ["u1"]}"#).await;
    service.operate(Method::PATCH, "/v1/apps/dev", OPERATOR, r#"{"audience": "them"}"#).await;
    let by_key = r#"{"essential_categories": ["alarm"]}"#;
    assert_eq!(service.call(Method::PATCH, "/v1/apps/dev", &service.key, by_key).await.status, 200);
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    let entries = ann.call(&service, Method::GET, "/v1/audit", "").await;
    assert!(!entries.text.contains(&secret), "{}", entries.text);
    let entries = entries.json()["entries"].clone();
    let shown: Vec<_> = entries
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["by"].as_str().unwrap_or_default(), one["action"].as_str().unwrap_or_default()))
        .collect();
    let patch = "PATCH /v1/apps/{app}";
    let expected = [
        ("key", patch),
        ("operator_token", patch),
        ("person", "POST /v1/apps/{app}/keys"),
        ("person", "POST /v1/invitations/accept"),
    ];
    assert_eq!(shown, expected);
    assert_eq!((&entries[0]["key"], &entries[0]["app"]), (&json!("all"), &json!("dev")));
    assert_eq!(entries[0]["before"]["essential_categories"], json!([]));
    assert_eq!(entries[0]["after"]["essential_categories"], json!(["alarm"]));
    assert_eq!(entries[2]["person"]["email"], "ann@example.com");
    assert_eq!((&entries[2]["after"]["name"], &entries[2]["app"]), (&json!("k"), &json!("dev")));
    assert_eq!(entries[2]["after"]["expires_at"], "2028-01-15T08:00:00.000Z");
    let of_app = ann.call(&service, Method::GET, "/v1/apps/other/audit", "").await.json();
    assert_eq!(of_app["entries"], json!([]));
    let page = ann.call(&service, Method::GET, "/v1/audit?limit=2", "").await.json();
    let next = page["next"].as_str().expect("a position");
    let rest = ann.call(&service, Method::GET, &format!("/v1/audit?after={next}"), "").await.json();
    assert_eq!(rest["entries"].as_array().map(Vec::len), Some(2));
    for query in ["after=x", "person=x", "since=yesterday", "other=1", "limit=0"] {
        ann.call(&service, Method::GET, &format!("/v1/audit?{query}"), "")
            .await
            .problem(400, "invalid_parameter");
    }
}

#[tokio::test]
async fn too_many_requests_are_refused_on_the_public_address_only() {
    let service = Service::with(|state| state.config.requests_max = 0).await;
    let methods = || {
        let request = Request::get(format!("{CONSOLE_API}/v1/session/methods"));
        request.body(Body::empty()).expect("a request")
    };
    let public = noroshi_api::console_router(service.state.clone(), true);
    answer(public, methods()).await.problem(503, "overloaded");
    assert_eq!(answer(service.console.clone(), methods()).await.status, 200);
}

#[tokio::test]
async fn a_replaced_definition_is_recorded_as_it_was() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    let experiment = |weight: u32| {
        json!({"variants": [{"name": "a", "weight": weight}, {"name": "b", "weight": 1}]}).to_string()
    };
    let path = "/v1/apps/dev/experiments/checkout";
    for weight in [1, 2] {
        assert_eq!(ann.call(&service, Method::PUT, path, &experiment(weight)).await.status, 200);
    }
    let entries = ann.call(&service, Method::GET, "/v1/audit", "").await.json()["entries"].clone();
    assert_eq!(entries[0]["before"]["variants"][0]["weight"], 1);
    assert_eq!(entries[0]["after"]["variants"][0]["weight"], 2);
    assert_eq!((&entries[1]["before"], &entries[1]["after"]["name"]), (&Value::Null, &json!("checkout")));
}

#[tokio::test]
async fn the_operator_lets_the_first_people_in() {
    let service = Service::start().await;
    let body = r#"{"email": "First@example.com", "roles": [{"app": "*", "role": "owner"}]}"#;
    let invite = async |bearer: &str, body: &str| {
        service.operate(Method::POST, "/v1/console/invitations", bearer, body).await
    };
    for bearer in ["", &service.key, "no_wrong"] {
        assert_eq!(invite(bearer, body).await.status, 401);
    }
    invite(OPERATOR, r#"{"email": "a@b", "roles": []}"#).await.problem(400, "invalid_field");
    invite(OPERATOR, r#"{"email": "a@b", "roles": [{"app": "none", "role": "owner"}]}"#)
        .await
        .problem(404, "not_found");
    let invited = invite(OPERATOR, body).await;
    assert_eq!((invited.status.as_u16(), &invited.json()["email"]), (201, &json!("first@example.com")));
    let link = async |email: &str| {
        let body = json!({"email": email}).to_string();
        service.operate(Method::POST, "/v1/console/links", OPERATOR, &body).await
    };
    link("first@example.com").await.problem(404, "not_found");
    let ann = person(&service, "ann@example.com", vec![(None, Role::Viewer)]).await;
    let made = link("ann@example.com").await.json();
    let token = made["link"].as_str().and_then(|link| link.strip_prefix("/console/link#token="));
    let body = json!({"token": token}).to_string();
    let answer = visit(&service, Method::POST, "/v1/session/link", &body).await;
    assert_eq!(session_of(&answer, "dev").id, ann.id);
    visit(&service, Method::POST, "/v1/session/link", &body).await.problem(401, "unauthorized");
    let entries = audit(&service).await;
    let after = |index: usize| entries[index].1["email"].as_str();
    assert_eq!(after(3), Some("first@example.com"), "{entries:?}");
    assert_eq!((after(2), after(1)), (Some("ann@example.com"), Some("ann@example.com")), "{entries:?}");
    let actions = ["session/link", "console/links", "invitations/accept", "console/invitations"];
    let actions = actions.map(|path| format!("POST /v1/{path}"));
    assert_eq!(entries.iter().map(|(action, ..)| action.clone()).collect::<Vec<_>>(), actions);
}

/// Actions and their values after the change and before it, the newest first.
async fn audit(service: &Service) -> Vec<(String, Value, Value)> {
    let entries = service.store.audit(AuditFilter { limit: 99, ..AuditFilter::default() }).await;
    let json =
        |text: Option<String>| text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("JSON"));
    let entry = |entry: noroshi_store::AuditEntry| {
        (entry.change.action, json(entry.change.after), json(entry.change.before))
    };
    entries.expect("read").into_iter().map(entry).collect()
}

#[tokio::test]
async fn each_log_in_and_each_role_in_an_app_is_recorded() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(Some(service.app()), Role::Owner)]).await;
    let ben = person(&service, "ben@example.com", vec![(Some(service.app()), Role::Viewer)]).await;
    for password in ["wrong", PASSWORD] {
        let body = json!({"email": "ben@example.com", "password": password}).to_string();
        visit(&service, Method::POST, "/v1/session", &body).await;
    }
    let promote = r#"{"email": "ben@example.com", "role": "author"}"#;
    assert_eq!(ann.call(&service, Method::POST, "/v1/apps/dev/people", promote).await.status, 200);
    let path = format!("/v1/apps/dev/people/{}", ben.id.0);
    assert_eq!(ann.call(&service, Method::DELETE, &path, "").await.status, 204);
    let eve = r#"{"email": "eve@example.com", "roles": [{"app": "*", "role": "owner"}]}"#;
    let owner = person(&service, "owner@example.com", vec![(None, Role::Owner)]).await;
    let invited = owner.call(&service, Method::POST, "/v1/invitations", eve).await.json();
    let path = format!("/v1/invitations/{}", invited["id"].as_str().expect("an id"));
    assert_eq!(owner.call(&service, Method::DELETE, &path, "").await.status, 204);
    owner.call(&service, Method::DELETE, &path, "").await.problem(404, "not_found");

    let entries = audit(&service).await;
    let find = |action: &str| {
        let found = entries.iter().find(|(of, ..)| of == action).expect(action);
        (found.1.clone(), found.2.clone())
    };
    assert_eq!(entries.iter().filter(|(of, ..)| of == "POST /v1/session").count(), 1, "only the right one");
    let (after, before) = find("POST /v1/apps/{app}/people");
    assert_eq!((&after["role"], &before["role"]), (&json!("author"), &json!("viewer")));
    let (after, before) = find("DELETE /v1/apps/{app}/people/{id}");
    assert_eq!((&after["role"], &before["role"]), (&Value::Null, &json!("author")));
    let (after, before) = find("DELETE /v1/invitations/{id}");
    assert_eq!((&after, &before["email"]), (&Value::Null, &json!("eve@example.com")));
}

#[tokio::test]
async fn bad_log_ins_are_refused_before_they_cost_much() {
    let service = Service::start().await;
    person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    let log_in = async |body: &str| visit(&service, Method::POST, "/v1/session", body).await;
    log_in("").await.problem(400, "invalid_json");
    log_in(r#"{"email": "ann@example.com"}"#).await.problem(400, "invalid_field");
    log_in(r#"{"email": "a", "password": "b", "x": 1}"#).await.problem(400, "unknown_field");
    let large = json!({"email": "ann@example.com", "password": "x".repeat(5_000)}).to_string();
    log_in(&large).await.problem(413, "body_too_large");
    let wrong = json!({"email": "ann@example.com", "password": "wrong"}).to_string();
    for _ in 0..10 {
        log_in(&wrong).await.problem(401, "unauthorized");
    }
    let limited = log_in(&json!({"email": "ann@example.com", "password": PASSWORD}).to_string()).await;
    limited.problem(429, "too_many_requests");
    assert_eq!(limited.header("retry-after"), Some("91"));
}

#[tokio::test]
async fn a_second_factor_is_asked_for() {
    let service = Service::start().await;
    let ann = person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    let setup = ann.call(&service, Method::POST, "/v1/session/totp-secret", "").await.json();
    assert!(setup["uri"].as_str().is_some_and(|uri| uri.starts_with("otpauth://totp/")), "{setup}");
    let wrong = ann.call(&service, Method::PUT, "/v1/session/totp-secret", r#"{"code": "abc"}"#).await;
    wrong.problem(401, "unauthorized");
    // As an authenticator app would turn it on.
    let totp = noroshi_store::TotpChange::On { step: 1, recovery: Vec::new() };
    let change = PersonChange { totp: Some(totp), ..PersonChange::default() };
    service.store.change_person(ann.id, change, NOW).await.expect("on");
    let log_in = json!({"email": "ann@example.com", "password": PASSWORD}).to_string();
    let first = visit(&service, Method::POST, "/v1/session", &log_in).await;
    assert_eq!((first.header("set-cookie"), &first.json()["next"]), (None, &json!("totp")));
    let body = json!({"ticket": first.json()["ticket"], "code": "000000"}).to_string();
    visit(&service, Method::POST, "/v1/session/totp", &body).await.problem(401, "unauthorized");
    let body = json!({"ticket": "x", "code": "000000"}).to_string();
    visit(&service, Method::POST, "/v1/session/totp", &body).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn the_page_is_served_with_a_strict_policy() {
    let service = Service::start().await;
    let get = async |path: &str, headers: &[(header::HeaderName, &str)]| {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        answer(service.console.clone(), request.body(Body::empty()).expect("a request")).await
    };
    assert_eq!(get("/console", &[]).await.header("location"), Some("/console/"));
    let page = get("/console/", &[]).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(get("/console/users/u1", &[]).await.text, page.text);
    let etag = page.header("etag").expect("a tag");
    let fresh = get("/console/", &[(header::IF_NONE_MATCH, etag)]).await;
    assert_eq!((fresh.status.as_u16(), fresh.text.as_str()), (304, ""));
    for path in ["/console/none.js", "/console/%2e%2e/Cargo.toml", "/console/assets/"] {
        let answer = get(path, &[]).await;
        assert!(answer.status == 404 || answer.text == page.text, "{path}: {}", answer.text);
    }
    get("/console/api/none", &[]).await.problem(404, "not_found");
}

/// The limits count by network, which a request without a socket does not have.
#[tokio::test]
async fn a_person_is_limited_in_each_network_alone() {
    let service = Service::start().await;
    person(&service, "ann@example.com", vec![(None, Role::Owner)]).await;
    let log_in = async |network: &str, password: &str| {
        let client = Client { address: network.into(), network: network.into(), agent: String::new() };
        service.state.console.log_in("ann@example.com", password.to_owned(), &client, NOW).await.is_ok()
    };
    for _ in 0..11 {
        assert!(!log_in("192.0.2.1", "wrong").await);
    }
    assert!(!log_in("192.0.2.1", PASSWORD).await && log_in("192.0.2.2", PASSWORD).await);
}

#[tokio::test]
async fn an_owner_of_an_app_sees_and_withdraws_its_invitations_only() {
    let service = Service::start().await;
    let (app, other) = (service.app(), service.state.auth.app("other").expect("the app").id);
    let ann = person(&service, "ann@example.com", vec![(Some(app), Role::Owner)]).await;
    let invite = async |email: &str, roles: Vec<(Option<AppId>, Role)>| {
        service.state.console.invite(None, email, roles, NOW).await.expect("invited").ticket.id
    };
    let own = invite("own@example.com", vec![(Some(app), Role::Author)]).await;
    let both = invite("both@example.com", vec![(Some(app), Role::Viewer), (Some(other), Role::Owner)]).await;
    let theirs = invite("theirs@example.com", vec![(Some(other), Role::Viewer)]).await;
    let all = invite("all@example.com", vec![(None, Role::Viewer)]).await;
    let list = "/v1/apps/dev/invitations";
    let listed = ann.call(&service, Method::GET, list, "").await;
    let found = listed.json()["invitations"].as_array().cloned().expect("a list");
    let of = |email: &str| found.iter().find(|one| one["email"] == email).cloned().unwrap_or_default();
    assert_eq!(found.len(), 2, "{}", listed.text);
    assert_eq!(
        (&of("own@example.com")["role"], &of("own@example.com")["other_apps"]),
        (&json!("author"), &json!(false))
    );
    assert_eq!(
        (&of("both@example.com")["role"], &of("both@example.com")["other_apps"]),
        (&json!("viewer"), &json!(true))
    );
    assert!(!listed.text.contains("other\""), "no name of another app: {}", listed.text);

    let withdraw = async |id: u64| ann.call(&service, Method::DELETE, &format!("{list}/{id}"), "").await;
    withdraw(both).await.problem(409, "wrong_state");
    withdraw(theirs).await.problem(404, "not_found");
    withdraw(all).await.problem(404, "not_found");
    assert_eq!(withdraw(own).await.status, 204);
    withdraw(own).await.problem(404, "not_found");
    // A log-in link is no invitation.
    let link = service.state.console.link(None, ann.id, std::time::Duration::from_secs(60), NOW).await;
    withdraw(link.expect("a link").ticket.id).await.problem(404, "not_found");
    let audited = ann.call(&service, Method::GET, "/v1/apps/dev/audit", "").await;
    assert!(audited.text.contains("own@example.com"), "{}", audited.text);
}

#[tokio::test]
async fn permissions_of_routes_are_plausible() {
    for (method, route, needed) in console_paths() {
        let reads = matches!(needed, Needed::InApp(Permission::Read) | Needed::OnNode(Permission::Read));
        let is_read =
            method == Method::GET || ["/v1/presence", "/v1/campaigns/{id}/estimate"].contains(&route);
        let may_differ = matches!(needed, Needed::Nothing | Needed::Person)
            || route.contains("people")
            || route.contains("invitations")
            || route.contains("audit")
            // It names files and addresses.
            || route == "/v1/configuration"
            || route.starts_with("/debug");
        assert!(may_differ || reads == is_read, "{method} {route}: {needed:?}");
    }
}
