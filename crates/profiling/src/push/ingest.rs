//! A request of Pyroscope's `POST /ingest` (grafana.com/docs/pyroscope, "Server API", "pprof format"): the name with
//! labels and the window in the query, the profile as a part of `multipart/form-data`. With `format=pprof` a server
//! would treat the whole body as the profile, even a form, and reject it (422); it detects a form by its content type.

use std::fmt::Write as _;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::config::{Config, Label};
use super::seconds;
use super::upload::{Kind, Upload};

macro_rules! boundary {
    () => {
        "noroshi-profile-9b1c4e7f5a2d4d0c8f60"
    };
}

/// Compressed data contains it with a probability of 2^-160.
pub(super) const CONTENT_TYPE: &str = concat!("multipart/form-data; boundary=", boundary!());

/// RFC 3986 §2.3
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How to aggregate the values of a heap: bytes in use of several profiles do not add up.
const HEAP_TYPES: &str =
    r#"{"inuse_space":{"units":"bytes","aggregation":"average","display-name":"inuse_space"}}"#;

pub(super) fn url(config: &Config, labels: &[Label], upload: &Upload) -> String {
    let name = name(&config.application, labels);
    let (from, until) = (seconds(upload.taken.from), seconds(upload.taken.until));
    format!(
        "{}/ingest?name={}&from={from}&until={until}&sampleRate={}&spyName=noroshi",
        config.server.trim_end_matches('/'),
        utf8_percent_encode(&name, RESERVED),
        config.hz,
    )
}

/// `application{name=value,…}`
fn name(application: &str, labels: &[Label]) -> String {
    let mut name = format!("{application}{{");
    for (index, label) in labels.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(name, "{comma}{}={}", label.name, label.value);
    }
    name.push('}');
    name
}

pub(super) fn body(upload: &Upload) -> Bytes {
    let mut body = Vec::with_capacity(upload.taken.pprof.len() + 1_024);
    let mut part = |head: &str, content: &[u8]| {
        body.extend_from_slice(concat!("--", boundary!(), "\r\n").as_bytes());
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    };
    // RFC 7578 §4.2
    part(
        "Content-Disposition: form-data; name=\"profile\"; filename=\"profile.pprof\"\r\nContent-Type: application/octet-stream",
        &upload.taken.pprof,
    );
    if upload.kind == Kind::Heap {
        part(
            "Content-Disposition: form-data; name=\"sample_type_config\"; filename=\"sample_type_config.json\"\r\nContent-Type: application/json",
            HEAP_TYPES.as_bytes(),
        );
    }
    body.extend_from_slice(concat!("--", boundary!(), "--\r\n").as_bytes());
    body.into()
}
