//! App JWTs: a whole token, or its parts, one per line, so that the fuzzer need not learn base64 first.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use noroshi_store::{App, AppSettings};
use noroshi_types::{AppId, AppName, Timestamp};

const P256: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

fuzz_target!(|data: &str| {
    let app = App {
        id: AppId(1),
        name: AppName::parse("game").expect("a name"),
        created_at: Timestamp(0),
        settings: AppSettings::default(),
    };
    let mut parts = data.splitn(3, '\n');
    let token = match (parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature)) => {
            [header, claims, signature].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
        }
        _ => data.to_owned(),
    };
    let _ = noroshi_auth::fuzzing::jwt(&token, &app, P256, Timestamp(1_000_000));
});
