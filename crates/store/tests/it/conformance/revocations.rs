//! Revocations of app JWTs of devices and users.

use noroshi_store::{Error, Issued, Login, LoginRefused, Registration, Store};
use noroshi_types::{AppId, Timestamp};

use super::fixture::*;

/// Some seconds after `NOW`.
fn after_s(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 / 1_000 * 1_000 + seconds * 1_000)
}

fn jwt(app: AppId, id: &str, of: &str, issued: Issued) -> Login {
    let (user, now) = (Some(user(of)), after_s(100));
    Login { user, create: true, token_version: None, issued, now, ..login(app, id) }
}

fn issued_at(app: AppId, id: &str, of: &str, seconds: u64) -> Login {
    jwt(app, id, of, Issued::At(after_s(seconds)))
}

async fn registers(store: &dyn Store, app: AppId, id: &str, of: &str, issued: Issued) -> bool {
    let registration =
        Registration { device: Some(device(id)), user: Some(user(of)), issued, ..Registration::default() };
    let answers = store.register(app, vec![registration], after_s(100)).await.expect("an answer");
    match &answers[0] {
        Ok(_) => true,
        Err(Error::Revoked) => false,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn an_old_jwt_does_not_recreate_a_deleted_device(store: &dyn Store) {
    let app = app(store, "shop").await;
    log_in(store, issued_at(app, "d1", "u1", 0)).await;
    store.delete_device(app, &device("d1"), after_s(10)).await.expect("deleted");
    for seconds in [0, 10] {
        let refused = try_log_in(store, issued_at(app, "d1", "u1", seconds)).await.err();
        assert_eq!(refused, Some(LoginRefused::Revoked), "{seconds}");
        assert!(!registers(store, app, "d1", "u1", Issued::At(after_s(seconds))).await, "{seconds}");
        assert_eq!(store.device(app, &device("d1")).await.expect("read"), None, "{seconds}");
    }
    log_in(store, issued_at(app, "d1", "u1", 11)).await;
    // Recreating the device does not make old tokens valid.
    assert_eq!(try_log_in(store, issued_at(app, "d1", "u1", 10)).await.err(), Some(LoginRefused::Revoked));
    let read = store.device(app, &device("d1")).await.expect("read").expect("created");
    assert_eq!((read.revoked.device, read.revoked.user), (Some(after_s(10)), None));
    // A provider may create it at any time.
    store.delete_device(app, &device("d1"), after_s(12)).await.expect("deleted");
    assert!(registers(store, app, "d1", "u1", Issued::Elsewhere).await);
}

pub(crate) async fn a_revoked_device_accepts_only_newer_jwts(store: &dyn Store) {
    let app = app(store, "shop").await;
    log_in(store, issued_at(app, "d1", "u1", 0)).await;
    log_in(store, issued_at(app, "d2", "u1", 0)).await;
    store.revoke_tokens(app, &device("d1"), after_s(10)).await.expect("revoked");
    let refused = async |seconds| try_log_in(store, issued_at(app, "d1", "u1", seconds)).await.err();
    assert_eq!(refused(10).await, Some(LoginRefused::Revoked));
    assert_eq!(refused(11).await, None);
    // A token issued an hour from now is not plausible.
    assert_eq!(refused(3_600).await, Some(LoginRefused::Revoked));
    // For any user that it names.
    let other = try_log_in(store, issued_at(app, "d1", "u2", 0)).await.err();
    assert_eq!(other, Some(LoginRefused::Revoked));
    let logged_in = log_in(store, issued_at(app, "d1", "u1", 20)).await;
    assert_eq!(logged_in.revoked.latest(), Some(after_s(10)));
    assert_eq!(logged_in.user, Some(user("u1")));
    log_in(store, issued_at(app, "d2", "u1", 0)).await;
    // A clock that goes back does not undo a revocation.
    store.revoke_tokens(app, &device("d1"), after_s(5)).await.expect("revoked");
    assert_eq!(refused(10).await, Some(LoginRefused::Revoked));
}

pub(crate) async fn a_user_is_revoked_on_all_devices(store: &dyn Store) {
    let app = app(store, "shop").await;
    for (id, of) in [("d1", "u1"), ("d2", "u1"), ("d3", "u2")] {
        log_in(store, issued_at(app, id, of, 0)).await;
    }
    let ended = store.revoke_user(app, &user("u1"), after_s(10)).await.expect("revoked");
    let mut ended: Vec<&str> = ended.iter().map(|device| device.as_str()).collect();
    ended.sort_unstable();
    assert_eq!(ended, ["d1", "d2"]);
    let refused = async |login: Login| try_log_in(store, login).await.err();
    for id in ["d1", "d2", "new", "d3"] {
        assert_eq!(refused(issued_at(app, id, "u1", 10)).await, Some(LoginRefused::Revoked), "{id}");
        assert!(!registers(store, app, id, "u1", Issued::At(after_s(10))).await, "{id}");
    }
    assert_eq!(store.device(app, &device("new")).await.expect("read"), None);
    // Their device tokens are revoked too.
    assert_eq!(refused(login(app, "d1")).await, Some(LoginRefused::Revoked));
    assert_eq!(refused(login(app, "d3")).await, None);
    assert_eq!(refused(issued_at(app, "d3", "u2", 0)).await, None);
    // A JWT without a user belongs to the device's user.
    let nobodys = Registration {
        device: Some(device("d2")),
        issued: Issued::At(after_s(10)),
        ..Registration::default()
    };
    let answers = store.register(app, vec![nobodys], after_s(100)).await.expect("an answer");
    assert!(matches!(answers[0], Err(Error::Revoked)), "{answers:?}");
    // The device's new user is not affected.
    assert_eq!(refused(issued_at(app, "d1", "u2", 0)).await, None);
    assert_eq!(refused(issued_at(app, "d2", "u1", 11)).await, None);
    // A session of a device token knows when its user was revoked.
    let token = Login { token_version: Some(2), ..login(app, "d2") };
    assert_eq!(log_in(store, token).await.revoked.user, Some(after_s(10)));
    assert_eq!(store.revoke_user(app, &user("nobody"), after_s(10)).await.expect("revoked"), []);
    assert_eq!(refused(issued_at(app, "d9", "nobody", 0)).await, Some(LoginRefused::Revoked));
}

pub(crate) async fn a_revocation_applies_to_one_app(store: &dyn Store) {
    let (shop, game) = (app(store, "shop").await, app(store, "game").await);
    for app in [shop, game] {
        log_in(store, issued_at(app, "d1", "u1", 0)).await;
    }
    store.revoke_user(shop, &user("u1"), after_s(10)).await.expect("revoked");
    store.delete_device(shop, &device("d1"), after_s(10)).await.expect("deleted");
    log_in(store, issued_at(game, "d1", "u1", 0)).await;
    assert_eq!(try_log_in(store, issued_at(shop, "d1", "u1", 0)).await.err(), Some(LoginRefused::Revoked));
}

pub(crate) async fn a_jwt_without_a_time_is_refused_once_revoked(store: &dyn Store) {
    let app = app(store, "shop").await;
    log_in(store, jwt(app, "d1", "u1", Issued::Unknown)).await;
    store.delete_device(app, &device("d1"), after_s(10)).await.expect("deleted");
    let refused = try_log_in(store, jwt(app, "d1", "u1", Issued::Unknown)).await.err();
    assert_eq!(refused, Some(LoginRefused::Revoked));
    assert!(!registers(store, app, "d1", "u1", Issued::Unknown).await);
    log_in(store, jwt(app, "d2", "u1", Issued::Unknown)).await;
}
