//! AWS Signature Version 4 on the receiver's side: the canonical request is rebuilt from the received one and
//! signed again (AWS General Reference, "Create a signed AWS API request").

use http::request::Parts;
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};

use super::{ACCESS_KEY, REGION, SECRET_KEY};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

pub(super) fn check(head: &Parts, body: &[u8]) -> Result<(), String> {
    let header = |name: &str| {
        let value = head.headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| format!("header {name} is missing"))
    };
    let authorization = header("authorization")?;
    let fields = authorization.strip_prefix(ALGORITHM).ok_or("unsupported algorithm")?;
    let field = |name: &str| {
        let found = fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='));
        found.ok_or_else(|| format!("{name} is missing"))
    };
    let (credential, signed, signature) =
        (field("Credential")?, field("SignedHeaders")?, field("Signature")?);
    let time = header("x-amz-date")?;
    let date = time.get(..8).ok_or("the date is too short")?;
    let scope = format!("{date}/{REGION}/firehose/aws4_request");
    if credential != format!("{ACCESS_KEY}/{scope}") {
        return Err(format!("wrong credential {credential}"));
    }
    for needed in ["host", "x-amz-date", "x-amz-target"] {
        if !signed.split(';').any(|name| name == needed) {
            return Err(format!("{needed} is not signed"));
        }
    }
    let mut canonical = format!("{}\n{}\n{}\n", head.method, head.uri.path(), head.uri.query().unwrap_or(""));
    for name in signed.split(';') {
        canonical.push_str(&format!("{name}:{}\n", header(name)?.trim()));
    }
    canonical.push_str(&format!("\n{signed}\n{}", hex(digest(&SHA256, body).as_ref())));
    let hash = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{hash}");
    let mut key = format!("AWS4{SECRET_KEY}").into_bytes();
    for part in [date, REGION, "firehose", "aws4_request"] {
        key = mac(&key, part);
    }
    match hex(&mac(&key, &text)) == signature {
        true => Ok(()),
        false => Err("the signature does not match".to_owned()),
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    sign(&Key::new(HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
