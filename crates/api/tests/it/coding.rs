//! Compressed request bodies.

use std::io::Write;

use axum::body::Body;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Method, StatusCode, header};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::Value;

use crate::service::{Answer, Service, request};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("compressed");
    encoder.finish().expect("compressed")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

/// RFC 8878 §3.1.2
fn skippable(bytes: u8) -> Vec<u8> {
    [&[0x50, 0x2A, 0x4D, 0x18, bytes, 0, 0, 0], &vec![0; usize::from(bytes)][..]].concat()
}

async fn send(service: &Service, path: &str, coding: &str, body: Vec<u8>) -> Answer {
    let mut request = request(Method::POST, path, &service.key, "");
    request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_str(coding).expect("a value"));
    *request.body_mut() = Body::from(body);
    service.send(request).await
}

const LINE: &str = r#"{"to": {"users": ["u1"]}, "data": 1}"#;

#[tokio::test]
async fn a_compressed_batch_equals_the_uncompressed_one() {
    let service = Service::start().await;
    let lines = format!("{LINE}\n").repeat(5_000);
    let (first, last) = lines.as_bytes().split_at(40_000);
    for (coding, body) in [
        ("gzip", gzip(lines.as_bytes())),
        ("X-GZIP", gzip(lines.as_bytes())),
        ("gzip", [gzip(first), gzip(b""), gzip(last)].concat()),
        ("zstd", zstd(lines.as_bytes())),
        ("zstd", [skippable(9), zstd(first), zstd(b""), skippable(0), zstd(last)].concat()),
        ("identity", lines.clone().into_bytes()),
    ] {
        let answer = send(&service, "/v1/notifications/batch", coding, body).await;
        assert_eq!((answer.status, answer.lines().len()), (StatusCode::OK, 5_000), "{coding}");
        assert!(answer.lines().iter().all(|line| line["id"].is_string()), "{coding}");
    }
    // Also a single value, and where no body is needed.
    let answer = send(&service, "/v1/notifications", "gzip", gzip(LINE.as_bytes())).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
    assert_eq!(send(&service, "/v1/devices", "gzip", Vec::new()).await.status, StatusCode::CREATED);
    assert_eq!(send(&service, "/v1/devices", "zstd", gzip(b"{}")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn idempotency_ignores_compression() {
    let service = Service::start().await;
    let mut ids = Vec::new();
    for (coding, body) in
        [("gzip", gzip(LINE.as_bytes())), ("zstd", zstd(LINE.as_bytes())), ("identity", LINE.into())]
    {
        let mut request = request(Method::POST, "/v1/notifications", &service.key, "");
        request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        request.headers_mut().insert("idempotency-key", HeaderValue::from_static("k"));
        *request.body_mut() = Body::from(body);
        let answer = service.send(request).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
        ids.push(answer.json()["id"].clone());
    }
    assert!(ids[1..].iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test]
async fn unsupported_codings_are_rejected_with_the_supported_ones() {
    let service = Service::start().await;
    for coding in ["br", "deflate", "compress", "gzip, zstd", "zstd,gzip", "gzip;q=1", "*"] {
        let answer = send(&service, "/v1/notifications", coding, gzip(LINE.as_bytes())).await;
        answer.problem(415, "unsupported_encoding");
        assert_eq!(answer.header("accept-encoding"), Some("gzip, zstd"), "{coding}");
    }
    let mut twice = request(Method::POST, "/v1/notifications", &service.key, LINE);
    for coding in ["gzip", "gzip"] {
        twice.headers_mut().append(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    service.send(twice).await.problem(415, "unsupported_encoding");
    // RFC 7694 §3: not if the media type caused the rejection.
    let mut typed = request(Method::POST, "/v1/notifications", &service.key, LINE);
    typed.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    let answer = service.send(typed).await;
    answer.problem(415, "unsupported_media_type");
    assert_eq!(answer.header("accept-encoding"), None);
    // Without a credential the request is rejected for that, whatever its body.
    let mut stranger = request(Method::POST, "/v1/notifications", "nonsense", LINE);
    stranger.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));
    service.send(stranger).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn decompression_stops_at_the_limit() {
    let service = Service::with(|state| {
        state.config.limits.body_bytes = 1 << 20;
        state.config.bodies_bytes_max = 8 << 20;
    })
    .await;
    // 100 MiB in 100 KiB, and the same again as a bomb of many members.
    let zeros = vec![b' '; 100 << 20];
    let exact = |bytes: usize| [LINE.as_bytes(), &vec![b' '; bytes - LINE.len()]].concat();
    for (coding, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        let body = pack(&zeros);
        assert!(body.len() < 1 << 20, "{coding}: {} bytes", body.len());
        send(&service, "/v1/notifications", coding, body).await.problem(413, "body_too_large");
        let empty = pack(b"").repeat(5_000);
        send(&service, "/v1/notifications", coding, empty).await.problem(413, "body_too_large");
        let whole = send(&service, "/v1/notifications", coding, pack(&exact(1 << 20))).await;
        assert_eq!(whole.status, StatusCode::ACCEPTED, "{coding}: {}", whole.text);
        let more = send(&service, "/v1/notifications", coding, pack(&exact((1 << 20) + 1))).await;
        more.problem(413, "body_too_large");
    }
    // Counted bytes are released: together these exceed the node's limit by far.
    for _ in 0..20 {
        send(&service, "/v1/notifications", "gzip", gzip(&zeros[..2 << 20]))
            .await
            .problem(413, "body_too_large");
    }
}

#[tokio::test]
async fn decompressed_bodies_count_in_the_nodes_memory() {
    let service = Service::with(|state| state.config.bodies_bytes_max = 1 << 20).await;
    for (coding, body) in [("gzip", gzip(&vec![b' '; 2 << 20])), ("zstd", zstd(&vec![b' '; 600 << 10]))] {
        let answer = send(&service, "/v1/notifications", coding, body).await;
        answer.problem(503, "overloaded");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
}

#[tokio::test]
async fn errors_of_corrupt_bodies_name_the_offset() {
    let service = Service::start().await;
    let text: Vec<u8> = (0..60_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (coding, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        let good = pack(&text);
        let at = |detail: &Value| -> usize {
            let detail = detail["detail"].as_str().expect("text").to_owned();
            let number = detail.split("at byte ").nth(1).and_then(|rest| rest.split(':').next());
            number.unwrap_or_else(|| panic!("{detail}")).parse().expect("a number")
        };
        // Truncated anywhere, followed by garbage, and altered.
        for len in [1, 5, good.len() / 2, good.len() - 1] {
            let answer = send(&service, "/v1/notifications", coding, good[..len].to_vec()).await;
            let at = at(&answer.problem(400, "corrupt_encoding"));
            assert!(at <= len, "{coding}: cut at {len}, told {at}");
        }
        let longer = [&good[..], b"nonsense"].concat();
        let answer = send(&service, "/v1/notifications", coding, longer).await;
        let told = at(&answer.problem(400, "corrupt_encoding"));
        assert!((good.len()..=good.len() + 8).contains(&told), "{coding}: {told} of {}", good.len());
        let mut changed = good.clone();
        let end = changed.len() - 3;
        changed[end] ^= 0xFF;
        send(&service, "/v1/notifications", coding, changed).await.problem(400, "corrupt_encoding");
        send(&service, "/v1/notifications", coding, b"{}".to_vec()).await.problem(400, "corrupt_encoding");
    }
    // A frame with a window of 128 MiB: RFC 9659 §3.
    let wide = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 17 << 3, 1, 0, 0];
    send(&service, "/v1/notifications", "zstd", wide.to_vec()).await.problem(400, "corrupt_encoding");
}
