//! The claims of an ID token (OpenID Connect Core 1.0 §2, §3.1.3.7). The signature is verified before.

use noroshi_types::Timestamp;
use serde_json::{Map, Value};

use super::claims::Identity;

/// Difference of clocks that is tolerated, in seconds.
pub(super) const LEEWAY_S: f64 = 60.0;
/// A token is issued in the exchange that it is checked in.
const AGE_S_MAX: f64 = 600.0;
/// OpenID Connect Core 1.0 §2.
const SUBJECT_BYTES_MAX: usize = 255;

pub(super) struct Expected<'a> {
    pub issuer: &'a str,
    pub client: &'a str,
    pub nonce: &'a str,
    pub now: Timestamp,
}

/// The error says which rule the token breaks.
pub(super) fn check(claims: Vec<u8>, expected: &Expected<'_>) -> Result<Identity, String> {
    let claims: Map<String, Value> =
        serde_json::from_slice(&claims).map_err(|_| "the claims of the ID token are no JSON object")?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let number = |name: &str| claims.get(name).and_then(Value::as_f64);
    let now_s = expected.now.0 as f64 / 1_000.0;

    if text("iss") != Some(expected.issuer) {
        return Err("the ID token is of another issuer".to_owned());
    }
    let audiences: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !audiences.contains(&expected.client) {
        return Err("the ID token is for another client".to_owned());
    }
    match claims.get("azp") {
        Some(party) if party.as_str() != Some(expected.client) => {
            return Err("the ID token was issued to another client".to_owned());
        }
        None if audiences.len() > 1 => {
            return Err(
                "the ID token is for several clients and does not say to which it was issued".to_owned()
            );
        }
        _ => {}
    }
    if !number("exp").is_some_and(|exp| now_s < exp + LEEWAY_S) {
        return Err("the ID token expired".to_owned());
    }
    if !number("iat").is_some_and(|iat| (now_s - iat) < AGE_S_MAX + LEEWAY_S && iat < now_s + LEEWAY_S) {
        return Err("the ID token was not issued now; compare the clocks".to_owned());
    }
    if number("nbf").is_some_and(|nbf| now_s + LEEWAY_S < nbf) {
        return Err("the ID token is not valid yet; compare the clocks".to_owned());
    }
    if text("nonce") != Some(expected.nonce) {
        return Err("the ID token belongs to another log-in (nonce)".to_owned());
    }
    let subject = text("sub").unwrap_or_default().to_owned();
    if !(1..=SUBJECT_BYTES_MAX).contains(&subject.len()) {
        return Err("the ID token has no usable `sub`".to_owned());
    }
    let auth_time = number("auth_time").map(|seconds| Timestamp((seconds.max(0.0) * 1_000.0) as u64));
    Ok(Identity { subject, auth_time, claims })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW_S: u64 = 1_800_000_000;

    fn check_with(change: impl FnOnce(&mut Value)) -> Result<Identity, String> {
        let mut claims = json!({
            "iss": "https://id.example", "aud": "noroshi", "sub": "1", "nonce": "n",
            "exp": NOW_S + 300, "iat": NOW_S,
        });
        change(&mut claims);
        let now = Timestamp(NOW_S * 1_000);
        let expected = Expected { issuer: "https://id.example", client: "noroshi", nonce: "n", now };
        check(claims.to_string().into_bytes(), &expected)
    }

    #[test]
    fn a_good_token_passes() {
        let identity = check_with(|claims| claims["auth_time"] = (NOW_S - 5).into()).expect("valid");
        assert_eq!(
            (identity.subject.as_str(), identity.auth_time),
            ("1", Some(Timestamp((NOW_S - 5) * 1_000)))
        );
        check_with(|claims| claims["aud"] = json!(["noroshi"])).expect("one audience in a list");
        check_with(|claims| {
            claims["aud"] = json!(["other", "noroshi"]);
            claims["azp"] = "noroshi".into();
        })
        .expect("issued to this client");
        check_with(|claims| claims["exp"] = (NOW_S - 59).into()).expect("within the leeway");
    }

    #[test]
    fn each_rule_is_checked() {
        let changes: [(&str, Value, &str); 21] = [
            ("iss", json!("https://id.example/"), "issuer"),
            ("iss", Value::Null, "issuer"),
            ("aud", json!("other"), "another client"),
            ("aud", json!(["other"]), "another client"),
            ("aud", json!([]), "another client"),
            ("aud", Value::Null, "another client"),
            ("aud", json!(["noroshi", "other"]), "several clients"),
            ("azp", json!("other"), "issued to another"),
            ("azp", json!(1), "issued to another"),
            ("exp", json!(NOW_S - 60), "expired"),
            ("exp", Value::Null, "expired"),
            ("exp", json!("2030"), "expired"),
            ("iat", json!(NOW_S + 61), "issued now"),
            ("iat", json!(NOW_S - 661), "issued now"),
            ("iat", Value::Null, "issued now"),
            ("nbf", json!(NOW_S + 61), "not valid yet"),
            ("nonce", json!("m"), "nonce"),
            ("nonce", Value::Null, "nonce"),
            ("sub", json!(""), "sub"),
            ("sub", json!(1), "sub"),
            ("sub", json!("a".repeat(256)), "sub"),
        ];
        for (claim, value, expected) in changes {
            let what = format!("{claim} = {value}");
            let error = check_with(|claims| claims[claim] = value).expect_err(&what);
            assert!(error.contains(expected), "{what}: {error}");
        }
        let expected = Expected { issuer: "", client: "", nonce: "", now: Timestamp(0) };
        for body in ["", "[]", "1", "{"] {
            assert!(check(body.into(), &expected).is_err(), "{body}");
        }
    }
}
