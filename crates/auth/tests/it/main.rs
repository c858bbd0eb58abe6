//! Authentication on a real store.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_auth::{Auth, MirrorKey, Refused};
use noroshi_egress::Egress;
use noroshi_store::{AppSettings, Error, Sqlite, Store, sqlite::Options};
use noroshi_types::{AppId, AppName, DeviceId, Scope, Scopes, Timestamp, UserId};
use ring::{hmac, rand, signature, signature::KeyPair};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const LATER_S: u64 = 1_800_000_100;

struct Bench {
    auth: Arc<Auth>,
    store: Arc<dyn Store>,
    _folder: tempfile::TempDir,
}

/// May reach the public Internet, and this machine.
fn egress() -> Arc<Egress> {
    let allow = vec!["127.0.0.0/8".parse().expect("a network")];
    let config = noroshi_egress::Config { allow, ..noroshi_egress::Config::default() };
    Arc::new(Egress::new(config).expect("egress"))
}

async fn bench() -> Bench {
    bench_with(egress()).await
}

async fn bench_with(egress: Arc<Egress>) -> Bench {
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        Sqlite::open(folder.path(), Options::default(), &mut noroshi_telemetry::registry()).expect("a store");
    let store: Arc<dyn Store> = Arc::new(store);
    let auth = Auth::open(store.clone(), egress).await.expect("opened");
    Bench { auth, store, _folder: folder }
}

fn name(text: &str) -> AppName {
    AppName::parse(text).expect("a name")
}

fn with_secret(secret: &str) -> AppSettings {
    AppSettings { jwt_secret: Some(secret.as_bytes().to_vec()), ..AppSettings::default() }
}

fn hs256(secret: &str, claims: &str) -> String {
    let message =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#), URL_SAFE_NO_PAD.encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

fn claims(extra: &str) -> String {
    format!(r#"{{"sub":"u1","device":"d1","exp":{LATER_S}{extra}}}"#)
}

#[tokio::test]
async fn a_key_is_valid_until_it_is_revoked() {
    let Bench { auth, store, .. } = bench().await;
    let app = auth.create_app(name("a"), AppSettings::default(), NOW).await.expect("made").id;
    let scopes: Scopes = [Scope::Publish].into_iter().collect();
    let (key, secret) = auth.create_key(app, "backend".to_owned(), scopes, None, NOW).await.expect("made");
    let access = auth.key(&secret.to_string(), NOW).expect("known");
    assert!(access.app == app && access.allows(Scope::Publish) && !access.allows(Scope::Admin));
    assert_eq!(auth.key("nk_other", NOW), Err(Refused::Unknown));
    let token = auth.issue(app, &DeviceId::parse("d1").expect("an id"), 1, Timestamp(NOW.0 + 1));
    assert_eq!(auth.key(&token, NOW), Err(Refused::NotAKey));
    assert_eq!(auth.device(&secret.to_string(), None, NOW), Err(Refused::NotAToken));

    let again = Auth::open(store, egress()).await.expect("opened");
    assert_eq!(again.key(&secret.to_string(), NOW), Ok(access), "keys survive a restart");
    auth.revoke_key(app, key.id).await.expect("revoked");
    assert_eq!(auth.key(&secret.to_string(), NOW), Err(Refused::Unknown));
}

#[tokio::test]
async fn a_key_expires_at_its_time() {
    let Bench { auth, store, .. } = bench().await;
    let app = auth.create_app(name("a"), AppSettings::default(), NOW).await.expect("made").id;
    let (expires_at, before) = (Timestamp(NOW.0 + 1_000), Timestamp(NOW.0 + 999));
    let made = auth.create_key(app, "k".to_owned(), Scopes::ALL, Some(expires_at), NOW).await;
    let (key, secret) = made.expect("made");
    let again = Auth::open(store, egress()).await.expect("opened");
    for auth in [&auth, &again] {
        assert!(auth.key(&secret.to_string(), before).is_ok());
        // Known keys are in memory; each request compares the time.
        for now in [expires_at, Timestamp(expires_at.0 + 86_400_000)] {
            assert_eq!(auth.key(&secret.to_string(), now), Err(Refused::KeyExpired(expires_at)));
        }
        assert_eq!(auth.device(&secret.to_string(), None, expires_at), Err(Refused::NotAToken));
        assert_eq!(auth.keys(app), std::slice::from_ref(&key));
    }
}

#[tokio::test]
async fn a_front_changes_the_expiry_of_a_key() {
    let Bench { auth, .. } = bench().await;
    let mirror = async |expires_at| {
        let key = MirrorKey {
            name: "k".to_owned(),
            hash: noroshi_auth::key_hash("nk_front"),
            scopes: Scopes::ALL,
            expires_at,
        };
        let mirrored = auth.mirror(name("a"), AppSettings::default(), vec![key], NOW).await;
        let app = mirrored.expect("mirrored").id;
        auth.keys(app).into_iter().map(|key| (key.id, key.expires_at)).collect::<Vec<_>>()
    };
    let first = mirror(None).await;
    assert_eq!(mirror(None).await, first, "unchanged");
    assert!(auth.key("nk_front", NOW).is_ok());
    let past = Some(Timestamp(NOW.0 - 1));
    assert_eq!(mirror(past).await.iter().map(|key| key.1).collect::<Vec<_>>(), [past]);
    assert_eq!(auth.key("nk_front", NOW), Err(Refused::KeyExpired(Timestamp(NOW.0 - 1))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_revoked_key_stays_revoked_after_another_change() {
    let Bench { auth, .. } = bench().await;
    let app = auth.create_app(name("a"), AppSettings::default(), NOW).await.expect("made").id;
    for round in 0..200 {
        let (key, secret) =
            auth.create_key(app, "old".to_owned(), Scopes::ALL, None, NOW).await.expect("made");
        let others = [(); 3].map(|()| {
            let auth = auth.clone();
            tokio::spawn(async move { auth.create_key(app, "new".to_owned(), Scopes::ALL, None, NOW).await })
        });
        auth.revoke_key(app, key.id).await.expect("revoked");
        for other in others {
            let (key, secret) = other.await.expect("no panic").expect("made");
            assert!(auth.key(&secret.to_string(), NOW).is_ok(), "round {round}");
            auth.revoke_key(app, key.id).await.expect("revoked");
        }
        assert_eq!(auth.key(&secret.to_string(), NOW), Err(Refused::Unknown), "round {round}");
    }
}

#[tokio::test]
async fn a_key_that_the_operator_chose_is_adopted_once() {
    let Bench { auth, .. } = bench().await;
    let app = auth.create_app(name("a"), AppSettings::default(), NOW).await.expect("made").id;
    let first = auth.adopt_key(app, "dev", "letmein", Scopes::ALL, NOW).await.expect("adopted");
    let second = auth.adopt_key(app, "dev", "letmein", Scopes::ALL, NOW).await.expect("adopted");
    assert_eq!(first, second);
    assert_eq!(auth.keys(app), [first]);
}

#[tokio::test]
async fn device_tokens_survive_a_restart_but_not_their_app() {
    let Bench { auth, store, .. } = bench().await;
    let app = auth.create_app(name("a"), AppSettings::default(), NOW).await.expect("made").id;
    let device = DeviceId::parse("d1").expect("an id");
    let token = auth.issue(app, &device, 1, Timestamp(NOW.0 + 1));
    let again = Auth::open(store, egress()).await.expect("opened");
    assert!(again.device(&token, None, NOW).is_ok_and(|identity| identity.device == device));
    auth.delete_app(app).await.expect("deleted");
    assert_eq!(auth.device(&token, None, NOW), Err(Refused::Unknown));
}

#[tokio::test]
async fn a_jwt_belongs_to_the_app_whose_secret_signed_it() {
    let Bench { auth, .. } = bench().await;
    let a = auth.create_app(name("a"), with_secret("secret a"), NOW).await.expect("made").id;
    let b = auth.create_app(name("b"), with_secret("secret b"), NOW).await.expect("made").id;
    let app_of = |token: &str, hint| auth.device(token, hint, NOW).map(|identity| identity.app);
    assert_eq!(app_of(&hs256("secret a", &claims("")), None), Err(Refused::Unnamed));
    assert_eq!(app_of(&hs256("secret a", &claims("")), Some("a")), Ok(a));
    assert_eq!(app_of(&hs256("secret b", &claims("")), Some("b")), Ok(b));
    assert_eq!(app_of(&hs256("secret b", &claims("")), Some("a")), Err(Refused::Signature));
    assert_eq!(app_of(&hs256("secret b", &claims(r#","aud":"a""#)), Some("b")), Err(Refused::Audience));
    assert_eq!(app_of(&hs256("secret b", &claims(r#","aud":"b""#)), None), Ok(b));
    assert_eq!(app_of(&hs256("secret b", &claims(r#","aud":"a""#)), None), Err(Refused::Signature));
    assert_eq!(
        app_of(&hs256("secret a", r#"{"sub":"u1","device":"d1","exp":1}"#), Some("a")),
        Err(Refused::Expired)
    );
    auth.update_app(a, with_secret("a new one")).await.expect("changed");
    assert_eq!(app_of(&hs256("secret a", &claims("")), Some("a")), Err(Refused::Signature));
}

#[tokio::test]
async fn a_token_ends_with_the_secret_that_signed_it() {
    let Bench { auth, store, .. } = bench().await;
    let a = auth.create_app(name("a"), with_secret("one"), NOW).await.expect("made").id;
    let other = Auth::open(store, egress()).await.expect("opened");
    let token = hs256("one", &claims(""));
    let check = |auth: &Auth, token: &str| auth.device(token, Some("a"), NOW).map(|identity| identity.app);
    // A second log-in with a token is like the first.
    assert_eq!([check(&auth, &token), check(&auth, &token)], [Ok(a), Ok(a)]);
    assert_eq!(check(&other, &token), Ok(a));

    auth.update_app(a, with_secret("two")).await.expect("updated");
    assert_eq!(check(&auth, &token), Err(Refused::Signature));
    assert_eq!(check(&auth, &hs256("two", &claims(""))), Ok(a));
    other.follow().await.expect("read");
    assert_eq!(check(&other, &token), Err(Refused::Signature), "on other nodes too");

    auth.update_app(a, AppSettings::default()).await.expect("updated");
    for secret in ["one", "two", ""] {
        assert_eq!(check(&auth, &hs256(secret, &claims(""))), Err(Refused::Signature), "{secret:?}");
    }
    auth.update_app(a, with_secret("one")).await.expect("updated");
    assert_eq!(check(&auth, &token), Ok(a));
    auth.delete_app(a).await.expect("deleted");
    assert_eq!(check(&auth, &token), Err(Refused::Signature));
}

#[tokio::test]
async fn a_token_expires_between_two_log_ins() {
    let Bench { auth, .. } = bench().await;
    auth.create_app(name("a"), with_secret("secret"), NOW).await.expect("made");
    let token = hs256("secret", &claims(""));
    assert!(auth.device(&token, None, NOW).is_ok());
    assert_eq!(auth.device(&token, None, Timestamp(LATER_S * 1_000)), Err(Refused::Expired));
}

#[tokio::test]
async fn tokens_of_the_only_signing_app_need_no_name() {
    let Bench { auth, .. } = bench().await;
    let token = hs256("secret a", &claims(""));
    let a = auth.create_app(name("a"), with_secret("secret a"), NOW).await.expect("made").id;
    let b = auth.create_app(name("b"), AppSettings::default(), NOW).await.expect("made").id;
    assert!(auth.device(&token, None, NOW).is_ok_and(|identity| identity.app == a));
    assert!(auth.ends_unnamed_tokens(b, &with_secret("secret b")));
    assert!(!auth.ends_unnamed_tokens(b, &AppSettings::default()));
    assert!(!auth.ends_unnamed_tokens(a, &with_secret("a new one")));
    auth.update_app(b, with_secret("secret b")).await.expect("changed");
    assert_eq!(auth.device(&token, None, NOW), Err(Refused::Unnamed));
    assert!(!auth.ends_unnamed_tokens(b, &with_secret("another")));
    auth.delete_app(b).await.expect("deleted");
    assert!(auth.device(&token, None, NOW).is_ok_and(|identity| identity.app == a));
}

#[tokio::test]
async fn an_app_with_another_apps_public_keys_gets_none_of_its_tokens() {
    let Bench { auth, .. } = bench().await;
    let keys = Es256::generate();
    // The oldest app used to be tried first.
    let thief = AppSettings { jwks: Some(keys.jwks()), ..AppSettings::default() };
    auth.create_app(name("thief"), thief.clone(), NOW).await.expect("made");
    let issuer = Some("https://id.example".to_owned());
    let audience = Some("shop-api".to_owned());
    let owner = AppSettings { issuer, audience, ..thief };
    let owned = auth.create_app(name("shop"), owner.clone(), NOW).await.expect("made").id;
    let header = r#"{"alg":"ES256","kid":"k1"}"#;
    assert_eq!(auth.device(&keys.sign(header), None, NOW), Err(Refused::Unnamed));
    let named = keys.sign_claims(header, &claims(r#","iss":"https://id.example","aud":"shop-api""#));
    assert!(auth.device(&named, None, NOW).is_ok_and(|identity| identity.app == owned));
    assert_eq!(auth.device(&named, Some("thief"), NOW), Err(Refused::Audience));
    assert_eq!(auth.rival(&name("other"), &owner), Some(name("shop")));
    assert_eq!(auth.rival(&name("shop"), &owner), None);
}

/// Earlier versions let operators create such apps.
#[tokio::test]
async fn apps_that_share_tokens_already_stay_usable() {
    let Bench { auth, .. } = bench().await;
    let issuer = Some("https://id.example".to_owned());
    let declared = AppSettings { issuer, audience: Some("api".to_owned()), ..with_secret("secret a") };
    let a = auth.create_app(name("a"), declared.clone(), NOW).await.expect("made").id;
    let api = auth.create_app(name("api"), with_secret("secret api"), NOW).await.expect("made").id;
    let app_of = |token: &str, named| auth.device(token, named, NOW).map(|identity| identity.app);
    let claimed_by_both = claims(r#","iss":"https://id.example","aud":"api""#);
    let (of_a, of_api) = (hs256("secret a", &claimed_by_both), hs256("secret api", &claimed_by_both));
    assert_eq!([app_of(&of_a, None), app_of(&of_api, None)], [Err(Refused::Ambiguous); 2]);
    assert_eq!([app_of(&of_a, Some("a")), app_of(&of_api, Some("api"))], [Ok(a), Ok(api)]);
    assert_eq!(app_of(&hs256("secret api", &claims(r#","aud":"api""#)), None), Ok(api));

    let published = AppSettings { client_publish: vec!["chat/#".to_owned()], ..declared.clone() };
    assert_eq!(auth.rival(&name("a"), &published), None, "other settings can change");
    let apart = AppSettings { issuer: Some("https://other.example".to_owned()), ..with_secret("secret api") };
    assert_eq!(auth.rival(&name("api"), &apart), None);
    auth.update_app(api, apart).await.expect("changed");
    assert_eq!(app_of(&of_a, None), Ok(a));
}

/// An identity provider's key pair.
struct Es256 {
    random: rand::SystemRandom,
    pair: signature::EcdsaKeyPair,
}

impl Es256 {
    fn generate() -> Self {
        let random = rand::SystemRandom::new();
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = signature::EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = signature::EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key");
        Self { random, pair }
    }

    fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn jwks(&self) -> String {
        format!(
            r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"k1","x":"{}","y":"{}"}}]}}"#,
            URL_SAFE_NO_PAD.encode(&self.point()[1..33]),
            URL_SAFE_NO_PAD.encode(&self.point()[33..])
        )
    }

    fn sign(&self, header: &str) -> String {
        self.sign_claims(header, &claims(""))
    }

    fn sign_claims(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.pair.sign(&self.random, message.as_bytes()).expect("signed");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

#[tokio::test]
async fn es256_keys_come_from_a_jwk_set() {
    let Bench { auth, .. } = bench().await;
    let keys = Es256::generate();
    let settings = AppSettings { jwks: Some(keys.jwks()), ..AppSettings::default() };
    let app = auth.create_app(name("a"), settings, NOW).await.expect("made").id;

    let identity = auth.device(&keys.sign(r#"{"alg":"ES256","kid":"k1"}"#), None, NOW).expect("valid");
    assert_eq!((identity.app, identity.user), (app, UserId::parse("u1").ok()));
    let unknown = keys.sign(r#"{"alg":"ES256","kid":"k2"}"#);
    assert_eq!(auth.device(&unknown, None, NOW), Err(Refused::Signature));
    // The public key must not work as an HMAC secret (RFC 8725 §2.1).
    let forged = hs256(std::str::from_utf8(&keys.point()[1..2]).unwrap_or("x"), &claims(""));
    assert_eq!(auth.device(&forged, None, NOW), Err(Refused::Signature));
}

#[tokio::test]
async fn a_local_change_also_drops_keys_that_another_node_replaced() {
    let Bench { auth: here, store, .. } = bench().await;
    let (old, new) = (Es256::generate(), Es256::generate());
    let with = |keys: &Es256| AppSettings { jwks: Some(keys.jwks()), ..AppSettings::default() };
    let app = here.create_app(name("a"), with(&old), NOW).await.expect("made").id;
    let there = Auth::open(store, egress()).await.expect("opened");
    there.update_app(app, with(&new)).await.expect("changed");
    // Before this node follows that change.
    here.create_app(name("b"), AppSettings::default(), NOW).await.expect("made");
    here.follow().await.expect("followed");
    let header = r#"{"alg":"ES256","kid":"k1"}"#;
    assert_eq!(here.device(&old.sign(header), Some("a"), NOW), Err(Refused::Signature));
    assert!(here.device(&new.sign(header), Some("a"), NOW).is_ok());
    there.update_app(app, with(&old)).await.expect("changed");
    here.create_key(app, "k".to_owned(), Scopes::ALL, None, NOW).await.expect("made");
    assert_eq!(here.device(&new.sign(header), Some("a"), NOW), Err(Refused::Signature));
    assert!(here.device(&old.sign(header), Some("a"), NOW).is_ok());
}

/// Gives the app the URL of a key set, and waits for the request.
async fn begin_fetch(auth: &Arc<Auth>, app: AppId) -> (JoinHandle<Result<(), Error>>, TcpStream) {
    let slow = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/jwks", slow.local_addr().expect("an address"));
    let from_url = AppSettings { jwks_url: Some(url), ..AppSettings::default() };
    let auth = auth.clone();
    let fetching = tokio::spawn(async move { auth.update_app(app, from_url).await.map(drop) });
    let (asked, _) = slow.accept().await.expect("asked");
    (fetching, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_fetch_does_not_restore_replaced_keys() {
    let Bench { auth, .. } = bench().await;
    let (old, new) = (Es256::generate(), Es256::generate());
    let app = auth.create_app(name("a"), AppSettings::default(), NOW).await.expect("made").id;
    let (fetching, mut asked) = begin_fetch(&auth, app).await;

    let direct = AppSettings { jwks: Some(new.jwks()), ..AppSettings::default() };
    auth.update_app(app, direct).await.expect("changed");
    asked.write_all(answer("200 OK", &old.jwks()).as_bytes()).await.expect("answered");
    fetching.await.expect("no panic").expect("changed");

    let header = r#"{"alg":"ES256","kid":"k1"}"#;
    assert_eq!(auth.device(&old.sign(header), None, NOW), Err(Refused::Signature));
    assert!(auth.device(&new.sign(header), None, NOW).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_quotas_do_not_discard_a_fetch_in_progress() {
    let Bench { auth, .. } = bench().await;
    let keys = Es256::generate();
    let app = auth.create_app(name("a"), AppSettings::default(), NOW).await.expect("made").id;
    let (fetching, mut asked) = begin_fetch(&auth, app).await;

    auth.set_quotas(app, Some("{}".to_owned())).await.expect("changed");
    let rules = r##"{"subscribe":[{"topic":"#","allow":"anyone"}]}"##;
    auth.set_topic_rules(app, Some(rules.to_owned())).await.expect("changed");
    asked.write_all(answer("200 OK", &keys.jwks()).as_bytes()).await.expect("answered");
    fetching.await.expect("no panic").expect("changed");

    assert!(auth.device(&keys.sign(r#"{"alg":"ES256","kid":"k1"}"#), None, NOW).is_ok());
}

#[tokio::test]
async fn a_mirrored_app_is_written_once_for_each_kind_of_change() {
    let Bench { auth, .. } = bench().await;
    let changes = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = changes.clone();
    auth.notify_changes(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let mirror = async |settings: &AppSettings| {
        let app = auth.mirror(name("a"), settings.clone(), Vec::new(), NOW).await.expect("mirrored");
        assert_eq!(app.settings, *settings);
        changes.swap(0, std::sync::atomic::Ordering::Relaxed)
    };
    let mut settings = AppSettings::default();
    assert_eq!([mirror(&settings).await, mirror(&settings).await], [1, 0]);
    settings.quotas = Some("{}".to_owned());
    assert_eq!([mirror(&settings).await, mirror(&settings).await], [1, 0]);
    settings.topic_rules = Some(r##"{"publish":[{"topic":"#","allow":"anyone"}]}"##.to_owned());
    assert_eq!([mirror(&settings).await, mirror(&settings).await], [1, 0]);
    settings.audience = Some("shop".to_owned());
    settings.quotas = None;
    assert_eq!([mirror(&settings).await, mirror(&settings).await], [2, 0]);
}

/// Answers requests in turn with `answers`. Joining the thread returns the number of requests.
fn serve(answers: Vec<String>) -> (String, std::thread::JoinHandle<usize>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/jwks", listener.local_addr().expect("an address"));
    let served = std::thread::spawn(move || {
        let mut asked = 0;
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("asked");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).expect("read") == 0 {
                    return asked;
                }
                head.extend(byte);
            }
            asked += 1;
            stream.write_all(answer.as_bytes()).expect("answered");
        }
        asked
    });
    (url, served)
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn es256_keys_come_from_a_url() {
    let Bench { auth, .. } = bench().await;
    let keys = Es256::generate();
    let elsewhere = "302 Found\r\nLocation: /other";
    let (url, served) =
        serve(vec![answer("200 OK", &keys.jwks()), answer("500 Oops", ""), answer(elsewhere, "")]);
    let settings = AppSettings { jwks_url: Some(url), ..AppSettings::default() };
    let app = auth.create_app(name("a"), settings.clone(), NOW).await.expect("made").id;
    let token = keys.sign(r#"{"alg":"ES256","kid":"k1"}"#);
    assert!(auth.device(&token, None, NOW).is_ok());
    // The last set stays while fetches fail; a redirect counts as a failure.
    for _ in ["500", "302"] {
        auth.update_app(app, settings.clone()).await.expect("changed");
        assert!(auth.device(&token, None, NOW).is_ok());
    }
    assert_eq!(served.join().expect("no panic"), 3);
}

#[tokio::test]
async fn a_url_that_is_not_public_is_not_fetched() {
    let egress = Egress::new(noroshi_egress::Config::default()).expect("egress");
    let Bench { auth, .. } = bench_with(Arc::new(egress)).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("set");
    let port = listener.local_addr().expect("an address").port();
    for (i, host) in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "localhost"].iter().enumerate() {
        let url = Some(format!("http://{host}:{port}/jwks"));
        let settings = AppSettings { jwks_url: url, ..AppSettings::default() };
        auth.create_app(name(&format!("a{i}")), settings, NOW).await.expect("made");
        let asked = listener.accept().map(|_| ()).map_err(|error| error.kind());
        assert_eq!(asked, Err(std::io::ErrorKind::WouldBlock), "{host}");
    }
}
