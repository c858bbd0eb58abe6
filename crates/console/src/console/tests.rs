//! Against a real SQLite store.

use noroshi_store::{AppSettings, Options, Sqlite};
use noroshi_types::AppName;
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const PASSWORD: &str = "correct horse battery";

async fn fresh() -> (TempDir, Console) {
    let folder = TempDir::new().expect("folder");
    let store = Sqlite::open(folder.path(), Options::default(), &mut Registry::default()).expect("store");
    let console = Console::open(Arc::new(store), Config::default(), Some([7; 32])).await.expect("opened");
    (folder, console)
}

fn client() -> Client {
    Client { address: "192.0.2.1".to_owned(), network: "192.0.2.1".to_owned(), agent: "Browser".to_owned() }
}

fn later(duration: Duration) -> Timestamp {
    NOW.saturating_add(duration)
}

/// Invites a person and accepts.
async fn owner(console: &Console) -> LoggedIn {
    let roles = vec![(None, Role::Owner)];
    let invitation = console.invite(None, "Ann@Example.com", roles, NOW).await.expect("invited");
    let (name, password, client) = (" Ann ", PASSWORD.to_owned(), client());
    console.accept_invitation(&invitation.token, name, password, &client, NOW).await.expect("accepted")
}

async fn log_in(console: &Console, password: &str, now: Timestamp) -> Result<Step, Refused> {
    console.log_in("ANN@example.com", password.to_owned(), &client(), now).await
}

#[tokio::test]
async fn an_invitation_makes_one_person() {
    let (_folder, console) = fresh().await;
    let invitation = console.invite(None, "ann@example.com", Vec::new(), NOW).await.expect("invited");
    let accept = async |name: &str, password: &str| {
        console.accept_invitation(&invitation.token, name, password.to_owned(), &client(), NOW).await
    };
    for (name, password) in
        [("Ann", "short"), ("", PASSWORD), ("Ann", "aaaaaaaaaaaaaaaaaaa"), ("Ann", "ann@example.com")]
    {
        let refused = accept(name, password).await;
        assert!(matches!(refused, Err(Refused::Invalid { .. })), "{name} {password}: {refused:?}");
    }
    let ann = accept("Ann", PASSWORD).await.expect("a mistake does not use the invitation up");
    assert_eq!(
        (ann.caller.person.email.as_str(), ann.caller.person.name.as_str()),
        ("ann@example.com", "Ann")
    );
    let again = accept("Ann", PASSWORD).await;
    assert!(matches!(again, Err(Refused::Link)), "{again:?}");
    let again = console.invite(None, "ANN@example.com", Vec::new(), NOW).await;
    assert!(matches!(again, Err(Refused::Store(Error::Exists))), "{again:?}");
    let expired = console.invite(None, "bob@example.com", Vec::new(), NOW).await.expect("invited");
    let late = later(INVITATION_LIFETIME);
    let late = console.accept_invitation(&expired.token, "Bob", PASSWORD.to_owned(), &client(), late).await;
    assert!(matches!(late, Err(Refused::Link)), "{late:?}");
    for email in ["", "ann", "@example.com", "ann@", "a b@example.com", &format!("{}@e.com", "a".repeat(260))]
    {
        assert!(matches!(check_email(email), Err(Refused::Invalid { .. })), "{email}");
    }
}

#[tokio::test]
async fn an_invitation_outlives_a_deleted_app() {
    let (_folder, console) = fresh().await;
    let app = async |name: &str| {
        let name = AppName::parse(name).expect("a name");
        console.store.create_app(name, AppSettings::default(), NOW).await.expect("created").id
    };
    let (kept, gone) = (app("kept").await, app("gone").await);
    let invite = async |email: &str, roles: &[(Option<AppId>, Role)]| {
        console.invite(None, email, roles.to_vec(), NOW).await.expect("invited").token
    };
    let ann = invite("ann@example.com", &[(Some(kept), Role::Viewer), (Some(gone), Role::Owner)]).await;
    let ben = invite("ben@example.com", &[(Some(gone), Role::Owner)]).await;
    console.store.delete_app(gone).await.expect("deleted");
    let accept = async |token: &str| {
        console.accept_invitation(token, "Name", PASSWORD.to_owned(), &client(), NOW).await
    };
    let ann = accept(&ann).await.expect("accepted");
    assert_eq!(ann.caller.person.roles, [(Some(kept), Role::Viewer)]);
    let ben = accept(&ben).await;
    assert!(matches!(ben, Err(Refused::Link)), "nothing remains of it: {ben:?}");
}

#[tokio::test]
async fn a_session_lasts_as_configured() {
    let (_folder, console) = fresh().await;
    let LoggedIn { token, .. } = owner(&console).await;
    let Config { session_idle, session_max, .. } = Config::default();
    let caller =
        async |now| console.caller(&token, Made::ByPerson, now).await.map(|caller| caller.person.email);
    assert_eq!(caller(NOW).await.expect("logged in"), "ann@example.com");
    assert!(matches!(caller(later(session_idle)).await, Err(Refused::Session)), "idle");
    // Used every few hours.
    let step = session_idle / 2;
    let mut at = Duration::ZERO;
    while at + step < session_max {
        at += step;
        caller(later(at)).await.expect("in use");
    }
    assert!(matches!(caller(later(session_max)).await, Err(Refused::Session)), "expired");
    for token in ["", "x", &"A".repeat(43)] {
        assert!(matches!(console.caller(token, Made::ByPerson, NOW).await, Err(Refused::Session)));
    }
    let again = console.caller(&token, Made::ByPerson, NOW).await.expect("at its time");
    console.log_out(&again).await.expect("logged out");
    assert!(matches!(caller(NOW).await, Err(Refused::Session)));
}

#[tokio::test]
async fn a_page_that_nobody_uses_becomes_idle() {
    let (_folder, console) = fresh().await;
    let LoggedIn { token, .. } = owner(&console).await;
    let idle = Config::default().session_idle;
    let half = later(idle / 2);
    console.caller(&token, Made::InBackground, half).await.expect("not yet idle");
    let refused = console.caller(&token, Made::InBackground, later(idle)).await;
    assert!(matches!(refused, Err(Refused::Session)));
    console.caller(&token, Made::ByPerson, half).await.expect("not yet idle");
    console.caller(&token, Made::InBackground, later(idle)).await.expect("used meanwhile");
}

#[tokio::test]
async fn wrong_passwords_are_limited_and_say_nothing() {
    let (_folder, console) = fresh().await;
    owner(&console).await;
    assert!(matches!(log_in(&console, PASSWORD, NOW).await, Ok(Step::LoggedIn(_))));
    let unknown = console.log_in("bob@example.com", PASSWORD.to_owned(), &client(), NOW).await;
    let wrong = log_in(&console, "wrong", NOW).await;
    assert_eq!(unknown.expect_err("unknown").to_string(), wrong.expect_err("wrong").to_string());
    for _ in 0..9 {
        assert!(matches!(log_in(&console, "wrong", NOW).await, Err(Refused::LogIn)));
    }
    let refused = log_in(&console, PASSWORD, NOW).await;
    assert!(matches!(refused, Err(Refused::TooMany { .. })), "{refused:?}");
    let elsewhere = Client { network: "198.51.100.1".to_owned(), ..client() };
    let elsewhere = console.log_in("ann@example.com", PASSWORD.to_owned(), &elsewhere, NOW).await;
    assert!(matches!(elsewhere, Ok(Step::LoggedIn(_))), "{elsewhere:?}");
    assert!(log_in(&console, PASSWORD, later(Duration::from_secs(90))).await.is_ok());
}

/// The code of the secret at a time.
fn code(setup: &TotpSetup, now: Timestamp) -> String {
    let secret = totp_rs::Secret::try_from_base32(&setup.secret).expect("base32");
    totp_rs::Builder::new().with_secret(secret).build().expect("valid").generate(now.0 / 1_000).to_string()
}

#[tokio::test]
async fn an_authenticator_app_is_a_second_factor() {
    let (_folder, console) = fresh().await;
    let ann = owner(&console).await;
    let reload = async || console.caller(&ann.token, Made::ByPerson, NOW).await.expect("logged in");
    let setup = console.begin_totp(&ann.caller, NOW).await.expect("begun");
    assert!(matches!(log_in(&console, PASSWORD, NOW).await, Ok(Step::LoggedIn(_))), "it is off");
    let wrong = console.turn_on_totp(&reload().await, "000000", later(Duration::from_secs(600))).await;
    assert!(matches!(wrong, Err(Refused::Code)), "{wrong:?}");
    let recovery = console.turn_on_totp(&reload().await, &code(&setup, NOW), NOW).await.expect("on");

    let Ok(Step::Code { ticket }) = log_in(&console, PASSWORD, NOW).await else { panic!("no second step") };
    let enter = async |code: &str, now| console.log_in_with_code(&ticket, code, &client(), now).await;
    let used = enter(&code(&setup, NOW), NOW).await;
    assert!(matches!(used, Err(Refused::Code)), "a code works once: {used:?}");
    let next = later(Duration::from_secs(30));
    enter(&code(&setup, next), next).await.expect("logged in");
    enter(&recovery[0], next).await.expect("logged in");
    assert!(matches!(enter(&recovery[0], next).await, Err(Refused::Code)), "a recovery code works once");
    let late = enter(&recovery[1], later(TICKET_LIFETIME)).await;
    assert!(matches!(late, Err(Refused::Ticket)), "{late:?}");
    let new = "another long password".to_owned();
    let (caller, former) = (reload().await, Some(PASSWORD.to_owned()));
    console.change_password(&caller, former, new.clone(), &client(), NOW).await.expect("changed");
    let outdated = enter(&recovery[1], next).await;
    assert!(
        matches!(outdated, Err(Refused::Ticket)),
        "the password of the ticket is not theirs any more: {outdated:?}"
    );

    let again = console.begin_totp(&reload().await, NOW).await;
    assert!(matches!(again, Err(Refused::State(_))), "{again:?}");
    let stale = console.turn_off_totp(&reload().await, later(CONFIRMED_FOR)).await;
    assert!(matches!(stale, Err(Refused::NotConfirmed(_))), "{stale:?}");
    console.turn_off_totp(&reload().await, NOW).await.expect("off");
    assert!(matches!(log_in(&console, &new, NOW).await, Ok(Step::LoggedIn(_))));
}

#[tokio::test]
async fn without_a_key_there_is_no_second_factor() {
    let (_folder, console) = fresh().await;
    let ann = owner(&console).await;
    let without = Console { seal: None, ..console };
    let refused = without.begin_totp(&ann.caller, NOW).await;
    assert!(matches!(refused, Err(Refused::State(_))), "{refused:?}");
}

#[tokio::test]
async fn a_dangerous_action_needs_a_recent_log_in() {
    let (_folder, console) = fresh().await;
    let mut ann = owner(&console).await.caller;
    ann.require_confirmed(NOW).expect("just logged in");
    let now = later(CONFIRMED_FOR);
    assert!(matches!(ann.require_confirmed(now), Err(Refused::NotConfirmed(_))));
    for proof in [Proof::Password("wrong".to_owned()), Proof::Code("123456".to_owned())] {
        assert!(console.confirm(&mut ann, proof, &client(), now).await.is_err());
    }
    assert!(ann.require_confirmed(now).is_err());
    console.confirm(&mut ann, Proof::Password(PASSWORD.to_owned()), &client(), now).await.expect("confirmed");
    ann.require_confirmed(now).expect("confirmed");
}

#[tokio::test]
async fn a_new_password_ends_the_other_sessions() {
    let (_folder, console) = fresh().await;
    let ann = owner(&console).await;
    let Ok(Step::LoggedIn(other)) = log_in(&console, PASSWORD, NOW).await else { panic!("not logged in") };
    const NEW: &str = "another long password";
    let change = async |current: Option<&str>, new: &str| {
        let current = current.map(str::to_owned);
        console.change_password(&ann.caller, current, new.to_owned(), &client(), NOW).await
    };
    assert!(matches!(change(None, NEW).await, Err(Refused::LogIn)));
    assert!(matches!(change(Some("wrong"), NEW).await, Err(Refused::LogIn)));
    assert!(matches!(change(Some(PASSWORD), "short").await, Err(Refused::Invalid { .. })));
    change(Some(PASSWORD), NEW).await.expect("changed");
    assert!(matches!(console.caller(&other.token, Made::ByPerson, NOW).await, Err(Refused::Session)));
    console.caller(&ann.token, Made::ByPerson, NOW).await.expect("this session stays");
    assert!(matches!(log_in(&console, PASSWORD, NOW).await, Err(Refused::LogIn)));
    assert!(log_in(&console, NEW, NOW).await.is_ok());
}

#[tokio::test]
async fn a_password_that_changes_during_the_log_in_is_worth_nothing() {
    let (_folder, console) = fresh().await;
    let ann = owner(&console).await;
    let former = console.store.person(ann.caller.person.id).await.expect("read").expect("there");
    let new = "another long password".to_owned();
    console
        .change_password(&ann.caller, Some(PASSWORD.to_owned()), new, &client(), NOW)
        .await
        .expect("changed");
    let late = console.begin_with_password(former, &client(), NOW).await.expect("checked");
    assert!(late.is_none());
    assert_eq!(console.sessions(&ann.caller, NOW).await.expect("listed").len(), 1, "the late session ended");
}

#[tokio::test]
async fn a_link_logs_in_once() {
    let (_folder, console) = fresh().await;
    let ann = owner(&console).await.caller.person.id;
    let link = console.link(None, ann, Duration::from_secs(60), NOW).await.expect("made");
    let invitation = console.invite(None, "bob@example.com", Vec::new(), NOW).await.expect("invited");
    let log_in = async |token: &str| console.log_in_with_link(token, &client(), NOW).await;
    assert_eq!(log_in(&link.token).await.expect("logged in").caller.person.id, ann);
    for token in [&link.token, &invitation.token, ""] {
        assert!(matches!(log_in(token).await, Err(Refused::Link)));
    }
    let ben = console.accept_invitation(&invitation.token, "Ben", PASSWORD.to_owned(), &client(), NOW).await;
    assert_eq!(ben.expect("the invitation was not used up").caller.person.email, "bob@example.com");
    let unknown = console.link(None, PersonId(99), Duration::from_secs(60), NOW).await;
    assert!(matches!(unknown, Err(Refused::Store(Error::NotFound))), "{unknown:?}");
}

#[tokio::test]
async fn permissions_are_those_of_the_roles() {
    let (_folder, console) = fresh().await;
    let mut caller = owner(&console).await.caller;
    caller.person.roles = vec![(None, Role::Viewer), (Some(AppId(1)), Role::Author)];
    let may = |app, permission| caller.permissions(app).contains(permission);
    assert!(may(Some(AppId(1)), Permission::Publish) && may(Some(AppId(1)), Permission::Read));
    assert!(may(Some(AppId(2)), Permission::Read) && !may(Some(AppId(2)), Permission::Publish));
    assert!(may(None, Permission::Read) && !may(None, Permission::Publish));
    let refused = caller.require(Some(AppId(2)), Permission::Publish).expect_err("a viewer");
    assert_eq!(refused.to_string(), "your role in this app lacks the permission \"publish\"");
}
