//! FCM's requests, assertions and access tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_types::PushService;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

use super::*;
use crate::Credential;
use crate::credential::tests::{fcm_json, parsed};
use crate::fields::Fields;
use crate::fields::tests::{fields, json_text};
use crate::push::tests::push;

fn token_response(status: u16, body: &str, second: u64) -> Response<'_> {
    Response { status, retry_after: None, header: b"", body: body.as_bytes(), now: Timestamp(second * 1_000) }
}

fn authorize(credential: &Credential, token: &str, second: u64, lifetime: u64) {
    let body = json!({"access_token": token, "expires_in": lifetime, "token_type": "Bearer"}).to_string();
    assert_eq!(credential.client.authorized(&token_response(200, &body, second)), Ok(()));
}

fn at(credential: &Credential, second: u64) -> Authorization {
    credential.client.authorization("", Timestamp(second * 1_000))
}

#[test]
fn a_request_is_one_message_to_one_token() {
    let credential = parsed(&fcm_json());
    let token = json!({"service": "fcm", "token": "abc:DEF_-1"});
    let push = push(PushService::Fcm, &token, Fields { data: json_text(&json!({"a": 1})), ..fields() });
    let authorization = Bytes::from_static(b"Bearer x");
    let request = credential.client.request(&push, Some(&authorization), Timestamp(0)).unwrap();
    assert_eq!(request.path, "/v1/projects/example-1/messages:send");
    let headers: Vec<_> =
        request.headers.iter().map(|header| (header.name, &*header.value, header.shared)).collect();
    let expected: [(&str, &[u8], bool); 2] =
        [("content-type", b"application/json", true), ("authorization", b"Bearer x", true)];
    assert_eq!(headers, expected);
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["message"]["token"], "abc:DEF_-1");
    assert_eq!(body["message"]["data"]["a"], "1");
    assert_eq!(body.as_object().unwrap().len(), 1);
}

#[test]
fn an_invalid_token_never_becomes_json() {
    let credential = parsed(&fcm_json());
    for token in
        [json!({"token": "a\",\"topic\":\"b"}), json!({"token": "a\\"}), json!({"token": ""}), json!({})]
    {
        let push = push(PushService::Fcm, &token, fields());
        let refused = credential.client.request(&push, None, Timestamp(0)).unwrap_err();
        assert_eq!(refused, Answer::Suspect { reason: "bad_token" }, "{token}");
    }
}

#[test]
fn an_assertion_is_a_jwt_that_verifies() {
    let body = fcm_json();
    let request = parsed(&body).client.token_request(Timestamp(1_700_000_000_999)).unwrap();
    assert_eq!(&*request.url, "https://oauth2.googleapis.com/token");
    let form: Vec<_> = url::form_urlencoded::parse(&request.body).into_owned().collect();
    assert_eq!(form[0], ("grant_type".to_owned(), "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned()));
    assert_eq!((form.len(), &*form[1].0), (2, "assertion"));
    let (text, signature) = form[1].1.rsplit_once('.').unwrap();
    let (header, claims) = text.split_once('.').unwrap();
    let part =
        |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
    assert_eq!(part(header), json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
    let expected = json!({
        "iss": "push@example-1.iam.gserviceaccount.com",
        "scope": "https://www.googleapis.com/auth/firebase.messaging",
        "aud": "https://oauth2.googleapis.com/token",
        "iat": 1_700_000_000, "exp": 1_700_003_600,
    });
    assert_eq!(part(claims), expected);
    let pem = body["service_account"]["private_key"].as_str().unwrap();
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
    public.verify(text.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    assert!(!format!("{request:?}").contains(signature));
}

#[test]
fn another_token_endpoint_keeps_the_audience() {
    let mut body = fcm_json();
    body["token_endpoint"] = json!("https://127.0.0.1:9/token");
    let request = parsed(&body).client.token_request(Timestamp(0)).unwrap();
    assert_eq!(&*request.url, "https://127.0.0.1:9/token");
    let text = String::from_utf8(request.body.to_vec()).unwrap();
    let claims = URL_SAFE_NO_PAD.decode(text.split('.').nth(1).unwrap()).unwrap();
    assert!(String::from_utf8(claims).unwrap().contains("\"aud\":\"https://oauth2.googleapis.com/token\""));
}

#[test]
fn an_access_token_is_due_before_it_ends() {
    let credential = parsed(&fcm_json());
    assert_eq!(at(&credential, 0), Authorization::Missing);
    authorize(&credential, "ya29.x", 1_000, 3_599);
    let value = Bytes::from_static(b"Bearer ya29.x");
    assert_eq!(at(&credential, 1_000), Authorization::Ready(value.clone()));
    assert_eq!(at(&credential, 1_000 + 3_598 - 300), Authorization::Ready(value.clone()));
    assert_eq!(at(&credential, 1_000 + 3_599 - 300), Authorization::Due(value.clone()));
    assert_eq!(at(&credential, 1_000 + 3_599 - 31), Authorization::Due(value));
    assert_eq!(at(&credential, 1_000 + 3_599 - 30), Authorization::Missing);
    authorize(&credential, "short", 10_000, 40);
    assert!(matches!(at(&credential, 10_029), Authorization::Ready(_)));
    assert_eq!(at(&credential, 10_030), Authorization::Missing);
}

#[test]
fn many_rejections_cause_one_fetch() {
    let credential = parsed(&fcm_json());
    let renew = |used: &Bytes, second: u64| credential.client.renew("", used, Timestamp(second * 1_000));
    authorize(&credential, "one", 0, 3_599);
    let one = Bytes::from_static(b"Bearer one");
    assert!(!renew(&one, 59));
    assert!(renew(&one, 60));
    assert_eq!(at(&credential, 60), Authorization::Missing);
    assert!(renew(&one, 60), "a fetch is on its way");
    authorize(&credential, "two", 61, 3_599);
    assert!(renew(&one, 62), "there is another already");
    assert_eq!(at(&credential, 62), Authorization::Ready(Bytes::from_static(b"Bearer two")));
}

#[test]
fn an_access_token_with_invalid_characters_is_rejected() {
    let credential = parsed(&fcm_json());
    for body in
        ["{}", "", "{\"access_token\":\"\"}", "{\"access_token\":\"a\\r\\nb\"}", "{\"access_token\":7}"]
    {
        assert!(credential.client.authorized(&token_response(200, body, 0)).is_err(), "{body}");
        assert_eq!(at(&credential, 0), Authorization::Missing);
    }
    let refused = credential.client.authorized(&token_response(400, "{\"error\":\"invalid_grant\"}", 0));
    assert_eq!(refused, Err(Verdict::Broken { reason: "invalid_grant" }));
}

#[test]
fn the_quota_is_googles_or_an_operators() {
    let quota = parsed(&fcm_json()).quota;
    assert_eq!((quota.per_second, quota.per_device.len()), (Some(10_000.0), 2));
    let mut body = fcm_json();
    body["quota"] = json!({"per_second": 25_000});
    let own = parsed(&body).quota;
    assert_eq!((own.per_second, own.burst, own.ramp_up), (Some(25_000.0), 25_000.0, quota.ramp_up));
}
