//! Request heads: parsing and rejection. Tests limits at their boundaries, incomplete heads at every length,
//! and arbitrary bytes. They also cover query decoding, which is only reachable through a head.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { head_bytes: 256, headers: 4 };

fn head(text: &str) -> Head<'_> {
    let (head, head_len) = parse(text.as_bytes(), &LIMITS).expect(text).expect(text);
    assert_eq!(head_len, text.len());
    head
}

#[track_caller]
fn check_error(bytes: &[u8], status: u16, part: &str) {
    let error = parse(bytes, &LIMITS).expect_err(part);
    assert_eq!(error.status(), status, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn head_is_parsed() {
    let text = "GET /v1/events?topics=a,b&token=t HTTP/1.1\r\nHost: x\r\nACCEPT: text/html, text/event-stream\r\n\
                Authorization: bearer  abc.def \r\n\r\n";
    let head = head(text);
    assert_eq!((head.method, head.path, head.minor_version), ("GET", "/v1/events", 1));
    assert_eq!(head.query, Some("topics=a,b&token=t"));
    assert_eq!(head.header("host"), Some("x"));
    assert_eq!(head.header("absent"), None);
    assert_eq!(head.query_value("token").as_deref(), Some("t"));
    assert_eq!(head.bearer_token(), Some("abc.def"));
    assert!(head.has_token("accept", "Text/Event-Stream"));
    assert!(!head.has_token("accept", "text"));
}

#[test]
fn has_token_searches_all_headers_of_a_name() {
    let head = head("GET / HTTP/1.1\r\nConnection: keep-alive\r\nConnection: foo,Upgrade\r\n\r\n");
    assert!(head.has_token("connection", "upgrade"));
    assert_eq!(head.header("connection"), Some("keep-alive"));
}

#[test]
fn head_is_incomplete_until_its_empty_line() {
    let text = b"GET /v1/me HTTP/1.1\r\nHost: x\r\n\r\n";
    for len in 0..text.len() {
        assert!(matches!(parse(&text[..len], &LIMITS), Ok(None)), "{len}");
    }
    let with_body = [&text[..], b"{}"].concat();
    let (_, head_len) = parse(&with_body, &LIMITS).unwrap().unwrap();
    assert_eq!(head_len, text.len());
}

#[test]
fn limits_apply_to_complete_and_incomplete_heads() {
    let header = |bytes: usize| format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(bytes - 23));
    assert!(matches!(parse(header(256).as_bytes(), &LIMITS), Ok(Some((_, 256)))));
    check_error(header(257).as_bytes(), 431, "too long");
    check_error(&[b'a'; 256], 431, "too long");
    assert!(matches!(parse(&[b'a'; 255], &LIMITS), Ok(None)));
    let headers = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert!(parse(headers(4).as_bytes(), &LIMITS).unwrap().is_some());
    check_error(headers(5).as_bytes(), 431, "too many headers");
}

#[test]
fn malformed_heads_are_rejected() {
    check_error(b"GET / HTTP/2.0\r\n\r\n", 400, "version");
    check_error(b"\x16\x03\x01\x02\x00\x01", 400, "request line");
    check_error(b"GET / HTTP/1.1\r\nA b: c\r\n\r\n", 400, "header name");
    check_error(b"GET / HTTP/1.1\r\nA : c\r\n\r\n", 400, "header name");
    check_error(b"GET / HTTP/1.1\r\nA: \x01\r\n\r\n", 400, "header value");
    check_error(b"GET foo HTTP/1.1\r\n\r\n", 400, "not a path");
    check_error(b"GET ftp://x/y HTTP/1.1\r\n\r\n", 400, "not a path");
    check_error(b"GET /?a=%ff HTTP/1.1\r\n\r\n", 400, "UTF-8");
}

#[test]
fn absolute_form_targets_are_accepted() {
    // RFC 9112 §3.2.2
    let head = head("GET http://push.example/v1/connect?a=b HTTP/1.1\r\n\r\n");
    assert_eq!((head.path, head.query), ("/v1/connect", Some("a=b")));
}

#[test]
fn query_values_are_decoded() {
    let check = |query: &str, name: &str, expected: Option<&str>| {
        let text = format!("GET /?{query} HTTP/1.1\r\n\r\n");
        let (head, _) = parse(text.as_bytes(), &LIMITS).unwrap().unwrap();
        assert_eq!(head.query_value(name).as_deref(), expected, "{query}");
    };
    check("a=1&b=2", "b", Some("2"));
    check("a=1&a=2", "a", Some("1"));
    check("topics=news%2F%E6%97%A5,x", "topics", Some("news/日,x"));
    check("a=b+c%2Bd", "a", Some("b c+d"));
    check("%61=x", "a", Some("x"));
    check("a", "a", Some(""));
    check("a=b=c", "a", Some("b=c"));
    check("ab=1", "a", None);
    check("", "a", None);
}

#[test]
fn invalid_percent_encoding_is_rejected() {
    for query in ["a=100%", "a=%4", "a=%zz", "%zz=1", "token=%ff", "a=%+1"] {
        let text = format!("GET /v1/events?{query} HTTP/1.1\r\n\r\n");
        let refused = parse(text.as_bytes(), &LIMITS).unwrap_err();
        assert_eq!(refused, HeadError::Malformed("the query is not percent-encoded UTF-8"), "{query}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let head = head("GET /v1/events?token=s3cret HTTP/1.1\r\nAuthorization: Bearer s3cret\r\n\r\n");
    assert_eq!(format!("{head:?}"), "GET /v1/events");
}

#[test]
fn problem_is_a_complete_response() {
    let mut out = Vec::new();
    push_problem(&mut out, 503, "overloaded", "come \"back\"", &[("Retry-After", "3")]);
    let body = r#"{"type":"/docs#overloaded","title":"The service is overloaded","status":503,"code":"overloaded","detail":"come \"back\""}"#;
    let expected = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\nRetry-After: 3\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

proptest! {
    #[test]
    fn any_bytes_give_a_result(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes, &LIMITS);
    }

    #[test]
    fn encoded_values_round_trip(value in "\\PC{0,20}") {
        let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let text = format!("GET /?a={encoded} HTTP/1.1\r\n\r\n");
        let (head, _) = parse(text.as_bytes(), &Limits::default()).unwrap().unwrap();
        let decoded = head.query_value("a");
        prop_assert_eq!(decoded.as_deref(), Some(&*value));
    }
}
