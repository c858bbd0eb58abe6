//! One request of Pyroscope's `POST /ingest` (grafana.com/docs/pyroscope, "Server API", "pprof format"): the name with
//! labels and the window in the query, the profile in a part of `multipart/form-data`. With `format=pprof` a server takes
//! the whole body for the profile, a form too, and refuses it (422); it knows a form by its content type.

use std::fmt::Write as _;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::config::{Config, Label};
use super::parcel::{Kind, Parcel};
use super::seconds;

macro_rules! boundary {
    () => {
        "noroshi-profile-9b1c4e7f5a2d4d0c8f60"
    };
}

/// What is compressed does not hold it, but with a probability of 2^-160.
pub(super) const CONTENT_TYPE: &str = concat!("multipart/form-data; boundary=", boundary!());

/// RFC 3986 §2.3
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How values of a heap are read: what is in use, of which several add up to nothing.
const HEAP_TYPES: &str =
    r#"{"inuse_space":{"units":"bytes","aggregation":"average","display-name":"inuse_space"}}"#;

pub(super) fn url(config: &Config, labels: &[Label], parcel: &Parcel) -> String {
    let name = name(&config.application, labels);
    let (from, until) = (seconds(parcel.taken.from), seconds(parcel.taken.until));
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
        // A string takes all that is written.
        let _ = write!(name, "{comma}{}={}", label.name, label.value);
    }
    name.push('}');
    name
}

pub(super) fn body(parcel: &Parcel) -> Bytes {
    let mut body = Vec::with_capacity(parcel.taken.pprof.len() + 1_024);
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
        &parcel.taken.pprof,
    );
    if parcel.kind == Kind::Heap {
        part(
            "Content-Disposition: form-data; name=\"sample_type_config\"; filename=\"sample_type_config.json\"\r\nContent-Type: application/json",
            HEAP_TYPES.as_bytes(),
        );
    }
    body.extend_from_slice(concat!("--", boundary!(), "--\r\n").as_bytes());
    body.into()
}
