//! Any bytes are a head, an incomplete head or an error; an accepted head respects the limits and does not
//! depend on what follows. The handshake and query functions are run on accepted heads.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::{http, sse, ws};

const LIMITS: http::Limits = http::Limits { head_bytes: 2048, headers: 16 };

fuzz_target!(|bytes: &[u8]| {
    match http::parse(bytes, &LIMITS) {
        Ok(Some((head, head_len))) => {
            assert!(head_len <= LIMITS.head_bytes && head_len <= bytes.len());
            let (alone, alone_len) =
                http::parse(&bytes[..head_len], &LIMITS).expect("accepted before").expect("complete before");
            assert_eq!((head_len, head.path, head.query), (alone_len, alone.path, alone.query));
            let mut out = Vec::new();
            match ws::upgrade(&head) {
                Ok(upgrade) => ws::push_upgrade_response(&mut out, &upgrade),
                Err(error) => {
                    http::push_problem(&mut out, error.status(), error.code(), &error.to_string(), &[])
                }
            }
            assert!(!out.is_empty());
            let _ = (head.query_value("token"), head.bearer_token(), sse::last_event_id(&head));
        }
        Ok(None) => assert!(bytes.len() < LIMITS.head_bytes),
        Err(error) => {
            let mut out = Vec::new();
            http::push_problem(&mut out, error.status(), error.code(), &error.to_string(), &[]);
            assert!(out.starts_with(b"HTTP/1.1 4"));
        }
    }
    // The client side of the handshake parses untrusted bytes too.
    let _ = ws::check_upgrade_response(bytes, "AQIDBAUGBwgJCgsMDQ4PEC==");
});
