//! Any text is a packet or an error, and packets round-trip. Lines are messages of a device, results and time
//! for one conversation: no request to the session core before a log-in or after the end, and bounded memory.
//! The public suites' echo processes the same messages.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::engine_io::Data;
use noroshi_protocol::socket_io::{
    Action, Config, Conversation, Echo, Limits, Notification, Packet, Variant, encode,
};
use noroshi_types::{
    AppId, CloseReason, Message, NotificationId, SessionId, Timestamp, Urgency, When, limits,
};

const CONFIG: Config = Config {
    limits: Limits { namespace_bytes: 50, attachments: 10, binary_bytes: 2000 },
    connect_timeout_ms: 1000,
};

fn round_trip(text: &str) {
    let Ok(packet) = Packet::parse(text, &CONFIG.limits) else { return };
    let mut again = Vec::new();
    encode::push_head(&mut again, packet.kind, packet.attachments, packet.namespace, packet.id);
    again.extend_from_slice(packet.payload.unwrap_or_default().as_bytes());
    let again = std::str::from_utf8(&again[1..]).expect("text into text");
    assert_eq!(Packet::parse(again, &CONFIG.limits), Ok(packet));
    if let Some(payload) = packet.payload {
        assert!(serde_json::from_str::<&serde_json::value::RawValue>(payload).is_ok());
    }
    if let Some(event) = packet.event() {
        let array = format!("[{}]", event.args.as_str());
        assert!(serde_json::from_str::<&serde_json::value::RawValue>(&array).is_ok(), "{array}");
        assert!(event.args.single().is_none_or(|single| single == event.args.as_str()));
    }
}

fn notification() -> Notification {
    let message = Message {
        id: NotificationId::from_bytes([7; 16]),
        app: AppId(1),
        when: When::Stored,
        urgency: Urgency::Normal,
        topic: None,
        notification: None,
        data: None,
        sent_at: Timestamp(0),
        expires_at: Timestamp(1),
        push_waits: false,
        waits_for_use: false,
    };
    Notification::new(&message, Variant::Acks)
}

fn converse(bytes: &[u8]) {
    let mut conversation = Conversation::new(0, &CONFIG);
    let mut echo = Echo::new(SessionId(1), 0, &CONFIG);
    let notification = notification();
    let (mut now_ms, mut closing, mut asked) = (0, false, false);
    for line in bytes.split(|byte| *byte == b'\n') {
        let (mut out, mut echoed) = (Vec::new(), Vec::new());
        let was_open = conversation.is_open();
        match line {
            b"L" => conversation.logged_in("s", "p", &mut out),
            b"R" => conversation.refuse("a", "b", now_ms, &CONFIG, &mut out),
            b"D" => drop(conversation.deliver(&notification)),
            [b'T', ms] => {
                now_ms += u64::from(*ms);
                conversation.handle_time(now_ms, &mut out);
                echo.handle_time(now_ms, &mut echoed);
            }
            [b'B', bytes @ ..] => {
                conversation.receive(Data::Binary(bytes), now_ms, &CONFIG, &mut out);
                echo.receive(Data::Binary(bytes), now_ms, &CONFIG, &mut echoed);
            }
            text => {
                let Ok(text) = std::str::from_utf8(text) else { continue };
                round_trip(text);
                conversation.receive(Data::Text(text), now_ms, &CONFIG, &mut out);
                echo.receive(Data::Text(text), now_ms, &CONFIG, &mut echoed);
            }
        }
        assert!(out.is_empty() || !closing);
        for action in &out {
            match action {
                Action::Close(_) => closing = true,
                Action::LogIn(_) => {
                    assert!(!was_open);
                    asked = true;
                }
                Action::Send(_) => {}
                _ => assert!(was_open && asked),
            }
        }
        assert!(echoed.iter().all(|action| matches!(action, Action::Send(_) | Action::Close(_))));
        // The window's entries, the attachments' entries and the size limit.
        assert!(conversation.held_bytes() <= 2 * 17 * limits::INBOX_ROWS as usize + 4000);
    }
    let mut out = Vec::new();
    conversation.last_words(CloseReason::Drain, 0, &mut out);
    assert!(out.len() <= 1);
}

fuzz_target!(|bytes: &[u8]| converse(bytes));
