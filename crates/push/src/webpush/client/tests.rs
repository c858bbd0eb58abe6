//! Web Push requests and VAPID tokens.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_types::PushService;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;

use super::*;
use crate::Credential;
use crate::credential::tests::{parsed, webpush_json};
use crate::fields::Fields;
use crate::fields::tests::{fields, json_text};
use crate::push::tests::push;

const HOUR: u64 = 3_600_000;
/// The browser of RFC 8291 §5.
const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
const BROWSER: &str = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";

fn subscription(endpoint: &str) -> Value {
    json!({"service": "webpush", "endpoint": endpoint, "keys": {"p256dh": P256DH, "auth": AUTH}})
}

fn to(token: &Value) -> Push {
    push(PushService::WebPush, token, Fields { data: json_text(&json!({"a": 1})), ..fields() })
}

fn ready(credential: &Credential, origin: &str, hour: u64) -> Bytes {
    match credential.client.authorization(origin, Timestamp(hour * HOUR)) {
        Authorization::Ready(value) => value,
        other => panic!("{other:?}"),
    }
}

/// RFC 8292 §3: verifies a header value. Returns the claims.
fn verify(value: &str) -> Option<Value> {
    let (token, key) = value.strip_prefix("vapid t=")?.split_once(", k=")?;
    let (text, signature) = token.rsplit_once('.')?;
    let (header, claims) = text.split_once('.')?;
    let part =
        |part: &str| -> Option<Value> { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok() };
    assert_eq!(part(header)?, json!({"typ": "JWT", "alg": "ES256"}));
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, URL_SAFE_NO_PAD.decode(key).ok()?);
    public.verify(text.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    part(claims)
}

#[test]
fn the_example_of_rfc_8292_verifies() {
    // RFC 8292 §2.4
    let example = "vapid t=eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHA\
                   iOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuC\
                   GSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA, k=BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIx\
                   HF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";
    let expected =
        json!({"aud": "https://push.example.net", "exp": 1_453_523_768, "sub": "mailto:push@example.com"});
    assert_eq!(verify(example), Some(expected));

    let ours = ready(&parsed(&webpush_json()), "https://push.example.net", 1);
    let expected =
        json!({"aud": "https://push.example.net", "exp": 13 * 3_600, "sub": "mailto:admin@example.com"});
    assert_eq!(verify(std::str::from_utf8(&ours).unwrap()), Some(expected));
}

#[test]
fn one_signature_serves_an_origin_for_hours() {
    let credential = parsed(&webpush_json());
    let (one, two) = ("https://one.example", "https://two.example");
    let first = ready(&credential, one, 0);
    assert_ne!(ready(&credential, two, 0), first);
    assert_eq!(ready(&credential, one, 9), first);
    let second = ready(&credential, one, 10);
    assert_ne!(second, first);
    assert_eq!(ready(&credential, one, 19), second);
    // After the clock was set back, the old signature would be valid for too long.
    assert_ne!(ready(&credential, one, 9), second);
}

#[test]
fn many_origins_do_not_fill_the_memory() {
    let key = crate::key::EcKey::from_scalar("private_key", &[1; 32]).unwrap();
    let client = Client::new(Config { key, subject: "mailto:a@b".into() });
    for at in 0..=ORIGINS_MAX {
        client.signed.write().insert(at.to_string().into(), Signed { at: Timestamp(0), value: Bytes::new() });
    }
    let _ = exchange::Client::authorization(&client, "https://new.example", Timestamp(0));
    assert_eq!(client.signed.read().len(), 1);
}

#[test]
fn only_its_browser_can_read_a_request() {
    let credential = parsed(&webpush_json());
    let mut push = to(&subscription("https://updates.push.example:8443/wpush/v2/abc?x=1#f"));
    let authorization = Bytes::from_static(b"vapid x");
    assert_eq!(credential.client.origin(&push.token), Ok("https://updates.push.example:8443".into()));
    let request = credential.client.request(&push, Some(&authorization), Timestamp(0)).unwrap();
    assert_eq!(request.path, "/wpush/v2/abc?x=1");
    let headers = |request: &Request| -> Vec<(&str, String, bool)> {
        let text = |value: &Bytes| String::from_utf8(value.to_vec()).unwrap();
        request.headers.iter().map(|header| (header.name, text(&header.value), header.shared)).collect()
    };
    let header = |name, value: &str, shared| (name, value.to_owned(), shared);
    assert_eq!(
        headers(&request),
        [
            header("authorization", "vapid x", true),
            header("content-encoding", "aes128gcm", true),
            header("content-type", "application/octet-stream", true),
            header("urgency", "normal", true),
            header("ttl", "86400", false),
        ]
    );
    push.lane = Lane::Campaign;
    assert_eq!(
        headers(&credential.client.request(&push, None, Timestamp(0)).unwrap())[3],
        header("ttl", "86400", true)
    );

    let private = p256::SecretKey::from_slice(&URL_SAFE_NO_PAD.decode(BROWSER).unwrap()).unwrap();
    let keys = Keys {
        p256dh: URL_SAFE_NO_PAD.decode(P256DH).unwrap().try_into().unwrap(),
        auth: URL_SAFE_NO_PAD.decode(AUTH).unwrap().try_into().unwrap(),
    };
    let plaintext = encryption::tests::decrypt(&private, &keys, &request.body).unwrap();
    let plaintext: Value = serde_json::from_slice(&plaintext).unwrap();
    assert_eq!(plaintext, json!({"id": "0197b3f0-1111-7222-8333-444455556666", "data": {"a": 1}}));
}

#[test]
fn padded_keys_are_accepted_and_damaged_ones_are_suspect() {
    let credential = parsed(&webpush_json());
    let request = |pointer: &str, value: Value| {
        let mut token = subscription("https://a/b");
        *token.pointer_mut(pointer).unwrap() = value;
        credential.client.request(&to(&token), None, Timestamp(0)).map(drop)
    };
    assert_eq!(request("/keys/auth", json!("BTBZMqHH6r4Tts7J_aSIgg==")), Ok(()));
    let suspect = |reason| Err(Answer::Suspect { reason });
    assert_eq!(request("/keys/auth", json!("AAAA")), suspect("bad_keys"));
    assert_eq!(request("/keys/p256dh", json!("AAAA")), suspect("bad_keys"));
    let off_the_curve = URL_SAFE_NO_PAD.encode([4; 65]);
    assert_eq!(request("/keys/p256dh", json!(off_the_curve)), suspect("bad_keys"));
    for endpoint in ["http://a/b", "https://user@a/b", "nonsense", "https://"] {
        assert_eq!(request("/endpoint", json!(endpoint)), suspect("bad_token"), "{endpoint}");
        assert_eq!(
            credential.client.origin(&to(&subscription(endpoint)).token),
            Err("bad_token"),
            "{endpoint}"
        );
    }
    assert_eq!(request("/keys", json!(1)), suspect("bad_token"));
}
