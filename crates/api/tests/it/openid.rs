//! Log-in with an OpenID provider, against a strict fake: what people may do, and every way to trick the console.

mod fake;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, header};
use noroshi_api::router::CONSOLE_API;
use noroshi_console::{AppRef, AuthorizationResponse, Client, OpenIdOutcome, Provider};
use noroshi_store::{AuditFilter, NewPerson, Person, PersonChange};
use noroshi_types::{Role, Timestamp};
use serde_json::{Value, json};

use crate::service::{Answer, NOW, Service, answer, console_of};
use fake::{Fake, Signer};

async fn visit(service: &Service, path: &str, cookies: &str) -> Answer {
    let request = Request::builder().uri(format!("{CONSOLE_API}{path}")).header(header::COOKIE, cookies);
    let request = request.header("sec-fetch-site", "cross-site").body(Body::empty()).expect("a request");
    answer(service.console.clone(), request).await
}

/// The value of a cookie that an answer sets.
fn cookie(answer: &Answer, name: &str) -> Option<String> {
    let prefix = format!("{name}=");
    let set = answer.headers.get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = set.filter_map(|text| text.strip_prefix(&prefix)?.split(';').next());
    values.find(|value| !value.is_empty()).map(str::to_owned)
}

/// A browser on its way to the provider.
struct Started {
    location: String,
    cookie: String,
}

async fn start_with(service: &Service, fake: &Fake, query: &str, cookies: &str) -> Started {
    let answer = visit(service, &format!("/v1/session/oidc/{}{query}", fake.name), cookies).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let location = answer.header("location").expect("a location").to_owned();
    assert!(location.starts_with(&fake.issuer), "{location}");
    let attributes = "; Path=/console/api/v1/session/oidc; HttpOnly; SameSite=Lax; Max-Age=600";
    assert!(answer.header("set-cookie").is_some_and(|text| text.ends_with(attributes)));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let cookie = cookie(&answer, "noroshi_oidc").expect("a cookie");
    Started { location, cookie: format!("noroshi_oidc={cookie}") }
}

async fn start(service: &Service, fake: &Fake) -> Started {
    start_with(service, fake, "", "").await
}

async fn call_back(service: &Service, fake: &Fake, query: &str, cookies: &str) -> Answer {
    visit(service, &format!("/v1/session/oidc/{}/callback?{query}", fake.name), cookies).await
}

async fn log_in(service: &Service, fake: &Fake, claims: &Value) -> Answer {
    let Started { location, cookie } = start(service, fake).await;
    call_back(service, fake, &fake.authorize(&location, claims), &cookie).await
}

/// The reason that an answer leads to. No session begins.
#[track_caller]
fn reason(answer: &Answer) -> String {
    assert_eq!(answer.status, 303, "{}", answer.text);
    assert_eq!(cookie(answer, "noroshi_session"), None);
    let location = answer.header("location").expect("a location");
    let query =
        location.strip_prefix("/console/").and_then(|rest| rest.split_once("?log_in=")).expect("a reason");
    query.1.split_once("&provider=").expect("a provider").0.to_owned()
}

async fn refused(service: &Service, fake: &Fake, claims: &Value) -> String {
    reason(&log_in(service, fake, claims).await)
}

/// The session of an answer.
async fn session(service: &Service, answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{:?} {}", answer.headers, answer.text);
    let cookie = cookie(answer, "noroshi_session").expect("a session");
    visit(service, "/v1/session", &format!("noroshi_session={cookie}")).await.json()
}

fn ann(groups: &[&str]) -> Value {
    json!({"sub": "ann-1", "email": "Ann@Example.com", "email_verified": true, "name": "Ann", "groups": groups})
}

async fn with_fake(change: impl FnOnce(&mut Provider)) -> (Service, Fake) {
    let fake = Fake::start("corp").await;
    let mut provider = fake.provider();
    change(&mut provider);
    (Service::with_openid(vec![provider]).await, fake)
}

async fn stored(service: &Service, email: &str) -> Option<Person> {
    service.store.person_with_email(email).await.expect("read")
}

async fn person(service: &Service, email: &str, roles: Vec<(Option<noroshi_types::AppId>, Role)>) -> Person {
    let new =
        NewPerson { email: email.to_owned(), name: "Old".to_owned(), password: None, openid: None, roles };
    service.store.create_person(new, NOW).await.expect("created")
}

#[tokio::test]
async fn a_first_log_in_creates_the_person_with_mapped_roles() {
    let (service, fake) = with_fake(|_| {}).await;
    let methods = visit(&service, "/v1/session/methods", "").await.json();
    assert_eq!(methods["oidc"], json!([{"name": "corp", "title": "The corp"}]));

    let answer = log_in(&service, &fake, &ann(&["helpers", "other"])).await;
    let session = session(&service, &answer).await;
    assert_eq!(session["person"]["email"], "ann@example.com");
    assert_eq!(session["person"]["name"], "Ann");
    assert_eq!(session["person"]["openid"], json!({"name": "corp", "title": "The corp"}));
    assert_eq!(session["person"]["password"], false);
    assert_eq!(session["roles"], json!([{"app": "dev", "role": "support", "mapped": true}]));
    assert_eq!(
        session["confirmed_until"], "1970-01-01T00:10:00.000Z",
        "the provider may have remembered the person"
    );

    // The page that continues is of this site and runs no script.
    assert!(answer.text.contains("content=\"0;url=/console/\""), "{}", answer.text);
    assert!(
        answer.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'"))
    );
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    let set: Vec<&str> =
        answer.headers.get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok()).collect();
    assert!(set[0].starts_with("noroshi_oidc=;") && set[0].contains("Max-Age=0"), "{set:?}");
    assert!(set[1].contains("SameSite=Strict; Max-Age=604800"), "{set:?}");

    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(
        metrics.contains("noroshi_console_log_ins_total{method=\"openid\",result=\"ok\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn roles_follow_the_groups_and_roles_by_hand_stay() {
    let (service, fake) = with_fake(|_| {}).await;
    log_in(&service, &fake, &ann(&["admins", "helpers"])).await;
    let created = stored(&service, "ann@example.com").await.expect("created");
    assert_eq!(created.roles, [(None, Role::Owner), (Some(service.app()), Role::Support)]);
    let other = service.state.auth.app("other").map(|app| app.id);
    service.store.set_role(created.id, other, Some(Role::Viewer)).await.expect("by hand");

    let again = log_in(&service, &fake, &ann(&["helpers"])).await;
    session(&service, &again).await;
    let person = stored(&service, "ann@example.com").await.expect("there");
    assert_eq!(person.id, created.id);
    assert_eq!(person.roles, [(Some(service.app()), Role::Support), (other, Role::Viewer)]);

    // Without groups the role by hand remains, and so the log-in.
    let answer = log_in(&service, &fake, &ann(&[])).await;
    session(&service, &answer).await;
    service.store.set_role(created.id, other, None).await.expect("removed");
    session(&service, &log_in(&service, &fake, &ann(&["helpers"])).await).await;
    assert_eq!(refused(&service, &fake, &ann(&[])).await, "no_role");
    assert_eq!(
        stored(&service, "ann@example.com").await.expect("there").roles,
        [],
        "the roles are gone all the same"
    );

    let entries =
        service.store.audit(AuditFilter { limit: 100, ..AuditFilter::default() }).await.expect("read");
    let roles = |text: Option<&String>| -> Value {
        let value: Value = text.map(|text| serde_json::from_str(text).expect("JSON")).unwrap_or_default();
        value["roles"]
            .as_array()
            .map(|roles| roles.iter().map(|role| role["role"].clone()).collect())
            .unwrap_or_default()
    };
    let log: Vec<(Value, Value)> = entries
        .iter()
        .map(|entry| (roles(entry.change.before.as_ref()), roles(entry.change.after.as_ref())))
        .collect();
    let expected = [
        (json!(["support"]), json!([])),
        (json!([]), json!(["support"])),
        (json!(["support", "viewer"]), json!(["viewer"])),
        (json!(["owner", "support", "viewer"]), json!(["support", "viewer"])),
        (Value::Null, json!(["owner", "support"])),
    ];
    assert_eq!(log, expected, "{entries:?}");
    assert!(entries.iter().all(|entry| entry.change.action == "GET /v1/session/oidc/{name}/callback"));
    assert!(entries.iter().all(|entry| !entry.change.target.contains("code")), "{entries:?}");
    // A log-in that changes nothing is recorded too.
    session(&service, &log_in(&service, &fake, &ann(&["helpers"])).await).await;
    session(&service, &log_in(&service, &fake, &ann(&["helpers"])).await).await;
    let entries =
        service.store.audit(AuditFilter { limit: 1, ..AuditFilter::default() }).await.expect("read");
    assert_eq!((&entries[0].change.before, &entries[0].change.after), (&None, &None));
}

#[tokio::test]
async fn people_without_permission_to_log_in_are_refused() {
    let (service, fake) = with_fake(|provider| provider.email_domains = vec!["example.com".to_owned()]).await;
    let with = |name: &str, value: Value| {
        let mut claims = ann(&["helpers"]);
        claims[name] = value;
        claims
    };
    let refusals = [
        (ann(&["unknown"]), "no_role"),
        (with("groups", Value::Null), "no_role"),
        (with("email", Value::Null), "no_email"),
        (with("email_verified", json!(false)), "unverified_email"),
        (with("email", json!("ann@evil.example")), "email_domain"),
    ];
    for (claims, expected) in refusals {
        assert_eq!(refused(&service, &fake, &claims).await, expected, "{claims}");
    }
    assert_eq!(stored(&service, "ann@example.com").await, None, "nobody was created");

    let Started { location, cookie } = start(&service, &fake).await;
    let state = fake.authorize(&location, &ann(&[])).split_once("&state=").expect("a state").1.to_owned();
    let answer = call_back(&service, &fake, &format!("error=access_denied&state={state}"), &cookie).await;
    assert_eq!(reason(&answer), "denied");
    let answer = call_back(&service, &fake, &format!("error=server_error&state={state}"), &cookie).await;
    assert_eq!(reason(&answer), "unavailable");

    session(&service, &log_in(&service, &fake, &ann(&["helpers"])).await).await;
    let id = stored(&service, "ann@example.com").await.expect("created").id;
    let disable = PersonChange { is_disabled: Some(true), ..PersonChange::default() };
    service.store.change_person(id, disable, NOW).await.expect("disabled");
    assert_eq!(refused(&service, &fake, &ann(&["helpers"])).await, "disabled");
    assert_eq!(visit(&service, "/v1/session/oidc/other", "").await.status, 404);
    assert_eq!(visit(&service, "/v1/session/oidc/other/callback", "").await.status, 404);
    for name in ["other", "a%0Ab", "%C3%A9"] {
        let path = format!("/v1/session/oidc/{name}?confirm=true");
        assert_eq!(visit(&service, &path, "").await.status, 404, "{name}");
    }
}

#[tokio::test]
async fn a_default_role_and_unverified_addresses_are_the_operators_choice() {
    let (service, fake) = with_fake(|provider| {
        provider.default_role = Some((AppRef::Named("dev".to_owned()), Role::Viewer));
        provider.accepts_unverified_email = true;
        provider.links_by_email = true;
    })
    .await;
    let claims = json!({"sub": "1", "email": "ann@example.com"});
    let session = session(&service, &log_in(&service, &fake, &claims).await).await;
    assert_eq!(session["roles"], json!([{"app": "dev", "role": "viewer", "mapped": true}]));
    assert_eq!(session["person"]["name"], "ann@example.com");
    // An address that is not verified takes nobody over.
    person(&service, "bob@example.com", vec![(None, Role::Owner)]).await;
    let claims = json!({"sub": "2", "email": "bob@example.com"});
    assert_eq!(refused(&service, &fake, &claims).await, "email_taken");
}

#[tokio::test]
async fn a_person_with_the_address_is_taken_over_only_if_configured() {
    let (service, fake) = with_fake(|_| {}).await;
    let old = person(&service, "ann@example.com", vec![(None, Role::Viewer)]).await;
    assert_eq!(refused(&service, &fake, &ann(&["admins"])).await, "email_taken");
    assert_eq!(stored(&service, "ann@example.com").await, Some(old));

    let (service, fake) = with_fake(|provider| provider.links_by_email = true).await;
    let old = person(&service, "ann@example.com", vec![(Some(service.app()), Role::Viewer)]).await;
    session(&service, &log_in(&service, &fake, &ann(&["admins"])).await).await;
    let linked = stored(&service, "ann@example.com").await.expect("there");
    assert_eq!((linked.id, linked.name.as_str()), (old.id, "Old"));
    assert_eq!(linked.roles, [(None, Role::Owner), (Some(service.app()), Role::Viewer)]);
    let entries =
        service.store.audit(AuditFilter { limit: 1, ..AuditFilter::default() }).await.expect("read");
    let openid = |text: Option<&String>| -> Value {
        let value: Value = text.map(|text| serde_json::from_str(text).expect("JSON")).unwrap_or_default();
        value["openid"]["name"].clone()
    };
    let change = &entries[0].change;
    let taken_over = (openid(change.before.as_ref()), openid(change.after.as_ref()));
    assert_eq!(taken_over, (Value::Null, json!("corp")), "{change:?}");
    // From now on the subject counts, and nobody else takes the person over.
    let mut other = ann(&["admins"]);
    other["sub"] = "mallory".into();
    assert_eq!(refused(&service, &fake, &other).await, "email_taken");
    let mut renamed = ann(&["admins"]);
    renamed["email"] = "ann@new.example".into();
    session(&service, &log_in(&service, &fake, &renamed).await).await;
    assert_eq!(stored(&service, "ann@new.example").await, None);

    let disabled = person(&service, "eve@example.com", vec![(None, Role::Owner)]).await;
    let disable = PersonChange { is_disabled: Some(true), ..PersonChange::default() };
    service.store.change_person(disabled.id, disable, NOW).await.expect("disabled");
    let claims =
        json!({"sub": "9", "email": "eve@example.com", "email_verified": true, "groups": ["admins"]});
    assert_eq!(refused(&service, &fake, &claims).await, "disabled");
    assert_eq!(stored(&service, "eve@example.com").await.expect("there").login.openid, None);
}

#[tokio::test]
async fn a_callback_belongs_to_the_browser_that_began_the_log_in() {
    let (one, two) = (Fake::start("one").await, Fake::start("two").await);
    let service = Service::with_openid(vec![one.provider(), two.provider()]).await;
    let Started { location, cookie } = start(&service, &one).await;
    let query = one.authorize(&location, &ann(&["admins"]));
    assert_eq!(reason(&call_back(&service, &one, &query, "").await), "expired", "another browser");
    let other = start(&service, &one).await;
    assert_eq!(reason(&call_back(&service, &one, &query, &other.cookie).await), "expired", "another log-in");
    let changed = query.replacen("&state=", "&state=A", 1);
    for wrong in
        [changed.as_str(), "code=x", "", &format!("{query}&{query}"), "state=", "error=access_denied"]
    {
        assert_eq!(reason(&call_back(&service, &one, wrong, &cookie).await), "expired", "{wrong}");
    }
    assert_eq!(reason(&call_back(&service, &one, &query, "noroshi_oidc=AAAA").await), "expired");
    // A response that is sent to the address of another provider.
    assert_eq!(reason(&call_back(&service, &two, &query, &cookie).await), "expired");
    assert_eq!(two.requests("/token"), 0);
    // Nothing of this has used the log-in up.
    session(&service, &call_back(&service, &one, &query, &cookie).await).await;
    // Repeated by a client that has the cookie: the code was used.
    assert_eq!(reason(&call_back(&service, &one, &query, &cookie).await), "invalid");

    let Started { location, cookie } = start(&service, &one).await;
    let query = one.authorize(&location, &ann(&["admins"]));
    service.clock.set(NOW.saturating_add(Duration::from_secs(600)));
    assert_eq!(reason(&call_back(&service, &one, &query, &cookie).await), "expired", "too late");
}

#[tokio::test]
async fn the_issuer_of_a_response_is_checked() {
    let (service, fake) = with_fake(|_| {}).await;
    let Started { location, cookie } = start(&service, &fake).await;
    let query = fake.authorize(&location, &ann(&["admins"]));
    let iss =
        format!("&iss={}", url::form_urlencoded::byte_serialize(fake.issuer.as_bytes()).collect::<String>());
    assert!(query.contains(&iss), "{query}");
    let without = query.replace(&iss, "");
    for wrong in [format!("{without}&iss=https%3A%2F%2Fevil.example"), without, format!("{query}{iss}")] {
        assert_eq!(reason(&call_back(&service, &fake, &wrong, &cookie).await), "invalid", "{wrong}");
    }
    assert_eq!(fake.requests("/token"), 0, "no code was sent anywhere");
    session(&service, &call_back(&service, &fake, &query, &cookie).await).await;
}

#[tokio::test]
async fn a_code_of_another_log_in_is_worth_nothing() {
    let (service, fake) = with_fake(|_| {}).await;
    // The attacker's own code, with the victim's state; and a stolen code, with the attacker's state.
    for checks_pkce in [true, false] {
        fake.set(|behaviour| behaviour.checks_pkce = checks_pkce);
        let (mine, theirs) = (start(&service, &fake).await, start(&service, &fake).await);
        let stolen = fake.authorize(&theirs.location, &ann(&["admins"]));
        let own = fake.authorize(&mine.location, &json!({"sub": "mallory"}));
        let (code, _) = stolen.split_once("&state=").expect("a state");
        let (_, state) = own.split_once("&state=").expect("a state");
        let injected = format!("{code}&state={state}");
        // A provider that does not check the verifier of PKCE: the nonce is another one.
        assert_eq!(
            reason(&call_back(&service, &fake, &injected, &mine.cookie).await),
            "invalid",
            "{checks_pkce}"
        );
    }
}

#[tokio::test]
async fn forged_id_tokens_are_refused() {
    type Forge = fn(&mut Value);
    let (service, fake) = with_fake(|_| {}).await;
    let claims = ann(&["admins"]);
    let forgeries: [(&str, Forge); 10] = [
        ("issuer", |claims| claims["iss"] = "https://evil.example".into()),
        ("audience", |claims| claims["aud"] = "other".into()),
        ("audiences", |claims| claims["aud"] = json!(["noroshi", "other"])),
        ("party", |claims| claims["azp"] = "other".into()),
        ("nonce", |claims| claims["nonce"] = "another".into()),
        ("no nonce", |claims| drop(claims.as_object_mut().expect("claims").remove("nonce"))),
        ("expired", |claims| claims["exp"] = (NOW.0 / 1_000 - 61).into()),
        ("issued early", |claims| claims["iat"] = (NOW.0 / 1_000 - 700).into()),
        ("issued later", |claims| claims["iat"] = (NOW.0 / 1_000 + 61).into()),
        ("no subject", |claims| claims["sub"] = "".into()),
    ];
    for (what, forge) in forgeries {
        fake.set(|behaviour| behaviour.forge = forge);
        assert_eq!(refused(&service, &fake, &claims).await, "invalid", "{what}");
    }
    fake.set(|behaviour| behaviour.forge = |_| {});
    for algorithm in ["none", "HS256", "RS256", "ES384"] {
        fake.set(|behaviour| behaviour.algorithm = algorithm);
        assert_eq!(refused(&service, &fake, &claims).await, "invalid", "{algorithm}");
    }
    fake.set(|behaviour| behaviour.algorithm = "ES256");
    let own = fake.behaviour.lock().signer.clone();
    fake.set(|behaviour| behaviour.signer = Arc::new(Signer::new()));
    assert_eq!(refused(&service, &fake, &claims).await, "invalid", "a key that the provider did not publish");
    assert_eq!(stored(&service, "ann@example.com").await, None, "nobody was created");
    fake.set(|behaviour| behaviour.signer = own);
    session(&service, &log_in(&service, &fake, &claims).await).await;
}

#[tokio::test]
async fn new_keys_are_fetched_at_once_and_not_for_every_token() {
    let (service, fake) = with_fake(|_| {}).await;
    session(&service, &log_in(&service, &fake, &ann(&["admins"])).await).await;
    session(&service, &log_in(&service, &fake, &ann(&["admins"])).await).await;
    assert_eq!((fake.requests("/jwks"), fake.requests("/.well-known/openid-configuration")), (1, 1));
    let next = Arc::new(Signer::new());
    fake.set(|behaviour| {
        behaviour.published.push(("second".to_owned(), next.clone()));
        (behaviour.kid, behaviour.signer) = ("second".to_owned(), next);
    });
    session(&service, &log_in(&service, &fake, &ann(&["admins"])).await).await;
    assert_eq!(fake.requests("/jwks"), 2);
    for _ in 0..3 {
        fake.set(|behaviour| behaviour.kid = "unknown".to_owned());
        assert_eq!(refused(&service, &fake, &ann(&["admins"])).await, "invalid");
    }
    assert_eq!(fake.requests("/jwks"), 2, "at most once in ten seconds");
}

#[tokio::test]
async fn claims_that_the_token_lacks_come_from_user_info() {
    let (service, fake) = with_fake(|_| {}).await;
    fake.set(|behaviour| behaviour.user_info = Some(ann(&["helpers"])));
    session(&service, &log_in(&service, &fake, &json!({"sub": "ann-1"})).await).await;
    assert_eq!(fake.requests("/me"), 1);
    session(&service, &log_in(&service, &fake, &ann(&["helpers"])).await).await;
    assert_eq!(fake.requests("/me"), 1, "the token has all claims");
    assert_eq!(
        refused(&service, &fake, &json!({"sub": "mallory"})).await,
        "invalid",
        "the info is of another person"
    );
    fake.set(|behaviour| behaviour.user_info = Some(json!([1])));
    assert_eq!(refused(&service, &fake, &json!({"sub": "ann-1"})).await, "invalid");
    // A token with an address and an info with another one, which is verified.
    fake.set(|behaviour| behaviour.user_info = Some(ann(&["helpers"])));
    let mixed = json!({"sub": "ann-1", "email": "boss@example.com"});
    assert_eq!(refused(&service, &fake, &mixed).await, "unverified_email");
}

#[tokio::test]
async fn the_secret_is_sent_as_the_provider_supports() {
    let (service, fake) = with_fake(|_| {}).await;
    fake.set(|behaviour| {
        behaviour.metadata =
            |metadata| metadata["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
    });
    session(&service, &log_in(&service, &fake, &ann(&["admins"])).await).await;
    let (service, fake) = with_fake(|provider| provider.client_secret = "wrong".to_owned()).await;
    assert_eq!(refused(&service, &fake, &ann(&["admins"])).await, "invalid");
}

#[tokio::test]
async fn a_provider_that_answers_nonsense_is_unavailable() {
    const REDIRECT: &str =
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
    const HUGE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n";
    const TEXT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]";
    const BROKEN: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
    const CONFIGURATION: &str = "/.well-known/openid-configuration";
    for answer in [REDIRECT, HUGE, TEXT, BROKEN] {
        let (service, fake) = with_fake(|_| {}).await;
        fake.set(|behaviour| behaviour.answers = Some((CONFIGURATION, answer)));
        let path = "/v1/session/oidc/corp";
        assert_eq!(reason(&visit(&service, path, "").await), "unavailable", "{answer}");
        assert_eq!(reason(&visit(&service, path, "").await), "unavailable");
        assert_eq!(fake.requests(CONFIGURATION), 1, "a failure is remembered for some seconds");
    }
    for (path, answer, expected) in [
        ("/jwks", REDIRECT, "unavailable"),
        ("/jwks", TEXT, "unavailable"),
        ("/token", REDIRECT, "unavailable"),
        ("/token", HUGE, "unavailable"),
        ("/token", TEXT, "invalid"),
        ("/token", BROKEN, "unavailable"),
        ("/me", BROKEN, "unavailable"),
    ] {
        let (service, fake) = with_fake(|_| {}).await;
        fake.set(|behaviour| {
            behaviour.user_info = Some(json!({}));
            behaviour.answers = Some((path, answer));
        });
        assert_eq!(refused(&service, &fake, &json!({"sub": "1"})).await, expected, "{path} {answer}");
    }
    // A provider that calls itself otherwise, or names addresses without encryption elsewhere.
    for change in
        [(|metadata| metadata["issuer"] = "https://evil.example".into()) as fn(&mut Value), |metadata| {
            metadata["token_endpoint"] = "ftp://127.0.0.1/".into()
        }]
    {
        let (service, fake) = with_fake(|_| {}).await;
        fake.set(|behaviour| behaviour.metadata = change);
        assert_eq!(reason(&visit(&service, "/v1/session/oidc/corp", "").await), "unavailable");
    }
}

#[tokio::test]
async fn a_slow_provider_delays_nobody_else() {
    let (slow, fast) = (Fake::start("slow").await, Fake::start("fast").await);
    let service = Arc::new(Service::with_openid(vec![slow.provider(), fast.provider()]).await);
    slow.set(|behaviour| behaviour.hangs_at = Some("/.well-known/openid-configuration"));
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { visit(&service, "/v1/session/oidc/slow", "").await })
        })
        .collect();
    while slow.requests("/.well-known/openid-configuration") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(reason(&visit(&service, "/v1/session/oidc/slow", "").await), "busy", "its slots are taken");
    session(&service, &log_in(&service, &fast, &ann(&["admins"])).await).await;
    assert!(waiting.iter().all(|start| !start.is_finished()), "they still wait");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_log_in_returns_to_the_page_where_it_began_and_nowhere_else() {
    let (service, fake) = with_fake(|_| {}).await;
    for (to, expected) in [
        ("%2Fconsole%2Fuser%3Fapp%3Ddev%26id%3Da%2540b", "/console/user?app=dev&amp;id=a%40b"),
        ("https%3A%2F%2Fevil.example%2F", "/console/"),
        ("%2F%2Fevil.example", "/console/"),
        ("%2Fconsole%2F..%2Fv1", "/console/"),
        ("%2Fconsole%2F%22%3E%3Cscript%3E", "/console/"),
    ] {
        let Started { location, cookie } = start_with(&service, &fake, &format!("?to={to}"), "").await;
        let query = fake.authorize(&location, &ann(&["admins"]));
        let answer = call_back(&service, &fake, &query, &cookie).await;
        assert!(answer.text.contains(&format!("content=\"0;url={expected}\"")), "{to}: {}", answer.text);
    }
}

#[tokio::test]
async fn too_many_log_ins_of_a_network_are_refused() {
    let (service, fake) = with_fake(|_| {}).await;
    for _ in 0..300 {
        call_back(&service, &fake, "", "").await;
    }
    assert_eq!(reason(&visit(&service, "/v1/session/oidc/corp", "").await), "too_many");
    assert_eq!(reason(&call_back(&service, &fake, "", "").await), "too_many");
    assert_eq!(fake.requests("/.well-known/openid-configuration"), 0);
}

#[tokio::test]
async fn another_node_takes_the_callback() {
    let (service, fake) = with_fake(|_| {}).await;
    let Started { location, cookie } = start(&service, &fake).await;
    let query = fake.authorize(&location, &ann(&["helpers"]));
    let node = console_of(&service.store, vec![fake.provider()]).await;
    let parameter = |wanted: &str| {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    let response = AuthorizationResponse {
        code: parameter("code"),
        state: parameter("state"),
        iss: parameter("iss"),
        error: None,
    };
    let client = Client { address: String::new(), network: String::new(), agent: String::new() };
    let app_of = |name: &str| service.state.auth.app(name).map(|app| app.id);
    let cookie = cookie.strip_prefix("noroshi_oidc=");
    let finished =
        node.finish_openid("corp", cookie, response, (&app_of, &client), NOW).await.expect("a provider");
    assert!(matches!(finished.result, Ok(OpenIdOutcome::LoggedIn(_))), "{finished:?}");
}

#[tokio::test]
async fn a_person_confirms_a_dangerous_action_at_the_provider() {
    let (service, fake) = with_fake(|_| {}).await;
    let answer = log_in(&service, &fake, &ann(&["admins"])).await;
    let own = format!("noroshi_session={}", cookie(&answer, "noroshi_session").expect("a session"));
    let confirmed_until =
        async || visit(&service, "/v1/session", &own).await.json()["confirmed_until"].clone();
    let unconfirmed = confirmed_until().await;

    // Without a session there is nothing to confirm. Browsers send it with requests of this site only.
    let nobody = visit(&service, "/v1/session/oidc/corp?confirm=true", "").await;
    assert_eq!(reason(&nobody), "no_session");
    let confirm = async |claims: &Value| {
        let Started { location, cookie } = start_with(&service, &fake, "?confirm=true", &own).await;
        assert!(location.contains("&prompt=login&max_age=60"), "{location}");
        // The browser sends no `Strict` cookie.
        call_back(&service, &fake, &fake.authorize(&location, claims), &cookie).await
    };
    let at = |seconds: u64| {
        let mut claims = ann(&["admins"]);
        claims["auth_time"] = (NOW.0 / 1_000 - seconds).into();
        claims
    };
    assert_eq!(reason(&confirm(&ann(&["admins"])).await), "not_recent", "the provider does not say when");
    let earlier = confirm(&at(120)).await;
    assert_eq!(earlier.header("location"), Some("/console/confirmed?log_in=not_recent&provider=corp"));
    let mut other = at(0);
    other["sub"] = "bob".into();
    assert_eq!(reason(&confirm(&other).await), "other_person");
    assert_eq!(confirmed_until().await, unconfirmed);

    let confirmed = confirm(&at(0)).await;
    assert_eq!(confirmed.status, 200, "{:?}", confirmed.headers);
    assert!(confirmed.text.contains("url=/console/confirmed\""), "{}", confirmed.text);
    assert_eq!(cookie(&confirmed, "noroshi_session"), None, "the session stays the same");
    assert_eq!(confirmed_until().await, NOW.saturating_add(Duration::from_secs(600)).to_string());

    // The session that ended meanwhile.
    let Started { location, cookie: pending } = start_with(&service, &fake, "?confirm=true", &own).await;
    let id = stored(&service, "ann@example.com").await.expect("there").id;
    service.store.end_other_sessions(id, None).await.expect("ended");
    let query = fake.authorize(&location, &at(0));
    assert_eq!(reason(&call_back(&service, &fake, &query, &pending).await), "no_session");

    // A provider that reports a log-in just now confirms with the log-in itself.
    let session = session(&service, &log_in(&service, &fake, &at(30)).await).await;
    let until = Timestamp(NOW.0 - 30_000).saturating_add(Duration::from_secs(600));
    assert_eq!(session["confirmed_until"], until.to_string());
}

#[test]
fn the_document_lists_every_reason() {
    let document: Value = serde_json::from_str(include_str!("../../openapi-console.json")).expect("JSON");
    let reasons = noroshi_console::OpenIdFailure::ALL.map(noroshi_console::OpenIdFailure::as_str);
    assert_eq!(document["components"]["schemas"]["LogInFailure"]["enum"], json!(reasons));
}
