//! Any text is a frame within its limits or an error of bounded length, and only JSON is a frame, as judged
//! by serde_json. The same text is also parsed as a server frame, as our own clients do.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::native::{ClientFrame, parse_client_frame, parse_server_frame};
use noroshi_types::{Presence, limits};

fuzz_target!(|text: &str| {
    let _ = parse_server_frame(text);
    match parse_client_frame(text) {
        Err(error) => assert!(error.to_string().len() < 300, "{error}"),
        Ok(frame) => {
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json.is_object()));
            match frame {
                ClientFrame::Ack { ids } => assert!(ids.len() <= limits::ACK_IDS_MAX),
                ClientFrame::Presence(presence) => assert_ne!(presence, Presence::Offline),
                ClientFrame::Sub { topics, since } => {
                    assert!(topics.len() <= limits::TOPICS_PER_DEVICE_MAX);
                    assert!(since.iter().all(|(topic, _)| topics.contains(topic)));
                }
                ClientFrame::Unsub { topics } => assert!(topics.len() <= limits::TOPICS_PER_DEVICE_MAX),
                ClientFrame::Connect { token } | ClientFrame::Token { token } => {
                    assert!(!token.as_str().is_empty())
                }
                ClientFrame::Ping => {}
            }
        }
    }
});
