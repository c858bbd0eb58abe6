//! Conversations as dialogues: packets of a device, requests to the session core, and packets to the device.

use noroshi_types::{
    AppId, Epoch, Message, NotificationId, Position, Presence, Since, Timestamp, Topic, Urgency, When, limits,
};
use proptest::prelude::*;

use super::*;
use crate::engine_io::Outgoing;

const CONFIG: Config = Config {
    limits: Limits { namespace_bytes: 255, attachments: 10, binary_bytes: 1_000 },
    connect_timeout_ms: 1_000,
};
const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

struct Peer {
    conversation: Conversation,
    now_ms: u64,
    out: Actions,
}

impl Peer {
    fn new() -> Self {
        Self { conversation: Conversation::new(0, &CONFIG), now_ms: 0, out: Vec::new() }
    }

    fn open(auth: &str) -> Self {
        let mut peer = Self::new();
        peer.feed(Data::Text(&format!("0{auth}")));
        assert!(matches!(peer.out.as_slice(), [Action::LogIn(_)]), "{:?}", peer.out);
        peer.out.clear();
        peer.conversation.logged_in("sid1", "pid1", &mut peer.out);
        peer.expect(&[r#"40{"sid":"sid1","pid":"pid1"}"#]);
        peer
    }

    fn feed(&mut self, data: Data<'_>) {
        self.conversation.receive(data, self.now_ms, &CONFIG, &mut self.out);
    }

    fn actions(&mut self, text: &str) -> Actions {
        self.feed(Data::Text(text));
        std::mem::take(&mut self.out)
    }

    #[track_caller]
    fn send(&mut self, text: &str, expected: &[&str]) {
        self.feed(Data::Text(text));
        self.expect(expected);
    }

    /// Compares the actions: sent texts verbatim, others as `Debug`.
    #[track_caller]
    fn expect(&mut self, expected: &[&str]) {
        let said: Vec<String> = self.out.drain(..).map(|action| shown(&action)).collect();
        assert_eq!(said, expected);
    }

    fn leave(&mut self, reason: CloseReason) {
        self.conversation.last_words(reason, 9, &mut self.out);
    }

    fn deliver(&mut self, n: u8, when: When) -> (Notification, Option<u32>) {
        let notification = Notification::new(&message(n, when), self.conversation.variant());
        let ack_id = self.conversation.deliver(&notification);
        (notification, ack_id)
    }
}

fn shown(action: &Action) -> String {
    match action {
        Action::Send(Outgoing::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}

fn id(n: u8) -> NotificationId {
    NotificationId::from_bytes([n; 16])
}

fn message(n: u8, when: When) -> Message {
    Message {
        id: id(n),
        app: AppId(1),
        when,
        urgency: Urgency::Normal,
        topic: None,
        notification: None,
        data: None,
        sent_at: Timestamp(0),
        expires_at: Timestamp(1),
        push_waits: false,
        waits_for_use: false,
        category: None,
    }
}

#[test]
fn attachments_are_not_buffered_before_the_log_in() {
    for connects in [false, true] {
        let mut peer = Peer::new();
        if connects {
            assert!(matches!(peer.actions("0{}").as_slice(), [Action::LogIn(_)]));
        }
        peer.send(r#"51-["x",{"_placeholder":true,"num":0}]"#, &["Close(BadMessage)"]);
        peer.leave(CloseReason::BadMessage);
        assert_eq!(peer.conversation.held_bytes(), 0);
    }
}

#[test]
fn device_logs_in() {
    let mut peer = Peer::new();
    assert_eq!(peer.conversation.deadline_ms(), Some(1_000));
    let actions = peer.actions(r#"0{"token":"abc","topics":["news"]}"#);
    let [Action::LogIn(log_in)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(log_in.token.as_ref().map(|token| token.as_str()), Some("abc"));
    assert_eq!(log_in.topics, [Topic::parse("news").unwrap()]);
    assert!(!format!("{actions:?}").contains("abc"));
    assert!(!peer.conversation.is_open());
    // Even if the store is slow.
    peer.conversation.handle_time(1_000_000, &mut peer.out);
    peer.expect(&[]);
    peer.conversation.logged_in("s", "p", &mut peer.out);
    peer.expect(&[r#"40{"sid":"s","pid":"p"}"#]);
    assert!(peer.conversation.is_open());
    assert_eq!((peer.conversation.deadline_ms(), peer.conversation.held_bytes()), (None, 0));
    peer.conversation.logged_in("s", "p", &mut peer.out);
    peer.expect(&[]);
}

#[test]
fn token_may_be_in_the_http_request() {
    for connect in ["0", "0{}"] {
        let actions = Peer::new().actions(connect);
        assert!(matches!(actions.as_slice(), [Action::LogIn(log_in)] if log_in.token.is_none()));
    }
}

#[test]
fn log_in_names_the_lost_connection() {
    let mut peer = Peer::new();
    let actions = peer.actions(&format!(r#"0{{"pid":"pid1","offset":"{ID}.0000002a.7","offsets":true}}"#));
    let [Action::LogIn(log_in)] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(log_in.is_recoverable());
    let offset = log_in.offset.unwrap();
    assert_eq!(offset.id.to_string(), ID);
    assert_eq!(offset.position, Some(Position { epoch: Epoch(42), offset: 7 }));
    // The same pid means "recovered".
    peer.conversation.logged_in("s", log_in.pid.as_deref().unwrap(), &mut peer.out);
    peer.expect(&[r#"40{"sid":"s","pid":"pid1"}"#]);
    let (notification, ack_id) = peer.deliver(1, When::Stored);
    assert_eq!((notification.asks(), ack_id), (false, None));
}

#[test]
fn invalid_auth_is_reported_and_may_be_retried() {
    let mut peer = Peer::new();
    let told = r#"44{"message":"unknown field `x` in the handshake's auth","data":{"code":"bad_auth"}}"#;
    peer.send(r#"0{"x":1}"#, &[told]);
    assert_eq!(peer.conversation.deadline_ms(), Some(1_000));
    assert!(matches!(peer.actions("0").as_slice(), [Action::LogIn(_)]));
    peer.now_ms = 500;
    peer.conversation.refuse("too_many_topics", "at most 1", peer.now_ms, &CONFIG, &mut peer.out);
    peer.expect(&[r#"44{"message":"at most 1","data":{"code":"too_many_topics"}}"#]);
    assert_eq!(peer.conversation.deadline_ms(), Some(1_500));
    assert!(matches!(peer.actions("0").as_slice(), [Action::LogIn(_)]));
}

#[test]
fn connect_timeout_closes_the_connection() {
    let mut peer = Peer::new();
    peer.conversation.handle_time(999, &mut peer.out);
    peer.expect(&[]);
    peer.conversation.handle_time(1_000, &mut peer.out);
    peer.expect(&["Close(AuthTimeout)"]);
    peer.conversation.handle_time(2_000, &mut peer.out);
    peer.send("0", &[]);
    peer.leave(CloseReason::AuthTimeout);
    peer.expect(&[]);
    // Late, even if no timer fired.
    let mut peer = Peer::new();
    peer.now_ms = 1_000;
    peer.send("0", &["Close(AuthTimeout)"]);
}

#[test]
fn other_namespaces_are_rejected() {
    let mut peer = Peer::open("");
    peer.send("0/admin", &[r#"44/admin,{"message":"Invalid namespace"}"#]);
    peer.send(r#"0/a"b,{"token":"x"}"#, &["44/a\"b,{\"message\":\"Invalid namespace\"}"]);
    assert!(peer.conversation.is_open());
    peer.send(r#"2/admin,["ack"]"#, &["Close(BadMessage)"]);
    Peer::new().send("0/admin", &[r#"44/admin,{"message":"Invalid namespace"}"#]);
    Peer::new().send("1/admin", &["Close(BadMessage)"]);
}

#[test]
fn misplaced_packets_end_the_conversation() {
    for wrong in [r#"2["presence","idle"]"#, "30[]", "1", "abc", r#"4{"message":"x"}"#, "2"] {
        Peer::new().send(wrong, &["Close(BadMessage)"]);
    }
    for wrong in ["0", "4{}", "abc", "2{}", "2abc[]", r#"2["connect"]"#] {
        let mut peer = Peer::open("");
        peer.send(wrong, &["Close(BadMessage)"]);
        peer.send(r#"2["presence","idle"]"#, &[]);
    }
    let mut peer = Peer::open("");
    peer.feed(Data::Binary(&[1]));
    peer.expect(&["Close(BadMessage)"]);
    // Before CONNECT was answered.
    let mut peer = Peer::new();
    peer.actions("0");
    peer.send(r#"2["presence","idle"]"#, &["Close(BadMessage)"]);
    peer.conversation.logged_in("s", "p", &mut peer.out);
    peer.expect(&[]);
    let mut peer = Peer::new();
    peer.actions("0");
    peer.send("1", &["Close(PeerClosed)"]);
}

#[test]
fn events_become_actions() {
    let mut peer = Peer::open("");
    let news = || vec![Topic::parse("news").unwrap()];
    assert_eq!(peer.actions(r#"2["presence",{"state":"idle"}]"#), [Action::Presence(Presence::Idle)]);
    let ids = vec![NotificationId::parse(ID).unwrap()];
    assert_eq!(peer.actions(&format!(r#"2["ack",{{"ids":["{ID}"]}}]"#)), [Action::Acknowledge { ids }]);
    assert_eq!(peer.actions(r#"2["unsubscribe","news"]"#), [Action::Unsubscribe { topics: news() }]);
    let since = vec![(news()[0].clone(), Since::Position(Position { epoch: Epoch(42), offset: 1 }))];
    assert_eq!(
        peer.actions(
            r#"2["subscribe",{"topics":["news"],"since":{"news":{"epoch":"0000002a","offset":1}}}]"#
        ),
        [Action::Subscribe { topics: news(), since, reply: Reply(None) }]
    );
    assert!(matches!(
        peer.actions(r#"29["token",{"token":"s3cret"}]"#).as_slice(),
        [Action::RenewToken { token, reply: Reply(Some(9)) }] if token.as_str() == "s3cret"
    ));
}

#[test]
fn callbacks_of_the_device_are_called() {
    let mut peer = Peer::open("");
    peer.send(r#"20["presence","active"]"#, &["Presence(Active)", r#"430[{"ok":true}]"#]);
    peer.send(
        r#"21["presence","away"]"#,
        &[r#"431[{"ok":false,"code":"bad_event","message":"`state` must be \"active\" or \"idle\""}]"#],
    );
    peer.send(r#"2["x"]"#, &[r#"42["error",{"code":"unknown_event","message":"unknown event `x`"}]"#]);
    let actions = peer.actions(r#"27["subscribe","news"]"#);
    let [Action::Subscribe { reply, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    let texts = |result| reply.answer(result).map(|packet| shown(&Action::Send(packet)));
    assert_eq!(texts(Ok(())).as_deref(), Some(r#"437[{"ok":true}]"#));
    assert_eq!(texts(Err(("a", "b"))).as_deref(), Some(r#"437[{"ok":false,"code":"a","message":"b"}]"#));
    assert_eq!(Reply(None).answer(Ok(())), None);
    assert!(peer.conversation.is_open());
}

#[test]
fn binary_events_are_joined_and_rejected() {
    let mut peer = Peer::open("");
    peer.send(r#"51-3["ack",{"_placeholder":true,"num":0}]"#, &[]);
    assert!(peer.conversation.held_bytes() > 0);
    peer.feed(Data::Binary(&[1, 2, 3]));
    let text = "unknown field `_placeholder`";
    peer.expect(&[&format!(r#"433[{{"ok":false,"code":"bad_event","message":"{text}"}}]"#)]);
    assert_eq!(peer.conversation.held_bytes(), 0);
    peer.send(r#"51-["x",{"_placeholder":true,"num":0}]"#, &[]);
    peer.feed(Data::Binary(&[0; 1_000]));
    peer.expect(&["Close(TooBig)"]);
}

#[test]
fn acknowledgement_acknowledges_its_notification() {
    let mut peer = Peer::open("");
    assert_eq!(peer.deliver(1, When::Connected).1, None);
    assert_eq!(peer.deliver(2, When::Stored).1, Some(0));
    assert_eq!(peer.deliver(3, When::Stored).1, Some(1));
    assert!(peer.conversation.held_bytes() > 0);
    assert_eq!(peer.actions("31[]"), [Action::Acknowledge { ids: vec![id(3)] }]);
    assert_eq!(peer.actions("31[]"), [], "once");
    assert_eq!(peer.actions("37[]"), [], "never emitted");
    // Whatever the arguments of the callback.
    peer.actions(r#"61-0[{"_placeholder":true,"num":0}]"#);
    peer.feed(Data::Binary(&[1]));
    assert_eq!(std::mem::take(&mut peer.out), [Action::Acknowledge { ids: vec![id(2)] }]);
    assert_eq!(peer.conversation.held_bytes(), 0);
    assert_eq!(peer.deliver(4, When::Stored).1, Some(2), "ids go on");
    // By notification id.
    let by_name = format!(r#"2["ack","{}"]"#, id(4));
    assert_eq!(peer.actions(&by_name), [Action::Acknowledge { ids: vec![id(4)] }]);
    assert_eq!(peer.actions("32[]"), []);
    assert_eq!(peer.conversation.held_bytes(), 0);
}

#[test]
fn unacknowledged_notifications_are_bounded() {
    let mut peer = Peer::open("");
    for _ in 0..3 * limits::INBOX_ROWS {
        peer.deliver(1, When::Stored);
    }
    assert!(peer.conversation.held_bytes() < 40_000, "{}", peer.conversation.held_bytes());
    assert_eq!(peer.actions("30[]"), []);
    assert_eq!(peer.actions("32999[]"), [Action::Acknowledge { ids: vec![id(1)] }]);
}

#[test]
fn device_may_log_out_and_in_on_one_connection() {
    let mut peer = Peer::open("");
    peer.deliver(1, When::Stored);
    peer.now_ms = 5_000;
    peer.send("1", &["LogOut"]);
    assert_eq!((peer.conversation.deadline_ms(), peer.conversation.held_bytes()), (Some(6_000), 0));
    assert_eq!(peer.deliver(2, When::Stored).1, None);
    assert!(matches!(peer.actions("0").as_slice(), [Action::LogIn(_)]));
    peer.conversation.logged_in("s2", "p2", &mut peer.out);
    peer.expect(&[r#"40{"sid":"s2","pid":"p2"}"#]);
    assert_eq!(peer.deliver(3, When::Stored).1, Some(1), "an old ack cannot acknowledge a new message");
}

#[test]
fn every_close_reason_has_its_packets() {
    for reason in CloseReason::ALL {
        let mut peer = Peer::open("");
        peer.leave(reason);
        let reconnect = reason.may_reconnect();
        let close =
            format!(r#"42["close",{{"reason":"{}","reconnect":{reconnect},"after_ms":9}}]"#, reason.as_str());
        match (reason.websocket_code(), reconnect) {
            (None, _) => peer.expect(&[]),
            (Some(_), true) => peer.expect(&[&close]),
            (Some(_), false) => peer.expect(&[&close, "41"]),
        }
        assert!(!peer.conversation.is_open());
        peer.send(r#"2["presence","idle"]"#, &[]);
        peer.leave(reason);
        peer.expect(&[]);
        // During a log-in: a rejected library stops reconnecting, so only where reconnecting is useless.
        let mut peer = Peer::new();
        peer.actions("0");
        peer.leave(reason);
        let refused =
            format!(r#"44{{"message":"{}","data":{{"code":"{}"}}}}"#, reason.explain(), reason.as_str());
        match reconnect {
            true => peer.expect(&[]),
            false => peer.expect(&[&refused]),
        }
        let mut peer = Peer::new();
        peer.leave(reason);
        peer.expect(&[]);
    }
}

proptest! {
    /// Random valid and invalid messages and results: no panic, bounded memory, no output after the end.
    #[test]
    fn invariants_hold_for_any_order_of_inputs(steps in proptest::collection::vec((0u8..22, 0u8..8), 0..80)) {
        let mut peer = Peer::new();
        let (mut closing, mut over, mut emitted) = (false, false, 0u64);
        for (step, n) in steps {
            peer.out.clear();
            let was_open = peer.conversation.is_open();
            match step {
                0 => peer.feed(Data::Text("0")),
                1 => peer.feed(Data::Text(r#"0{"token":"a","offsets":true}"#)),
                2..=4 => peer.conversation.logged_in("s", "p", &mut peer.out),
                5 => peer.conversation.refuse("a", "b", peer.now_ms, &CONFIG, &mut peer.out),
                6..=8 => { if peer.deliver(n, When::Stored).1.is_some() { emitted += 1; } }
                9 => { peer.deliver(n, When::Active); }
                10 | 11 => peer.feed(Data::Text(&format!("3{n}[]"))),
                12 => peer.feed(Data::Text(&format!("2{n}[\"subscribe\",[\"a\"]]"))),
                13 => peer.feed(Data::Text(&format!("2[\"ack\",\"{}\"]", id(n)))),
                14 => peer.feed(Data::Text(r#"52-["x",{"_placeholder":true,"num":1}]"#)),
                15 | 16 => peer.feed(Data::Binary(&[n])),
                17 if n == 0 => peer.feed(Data::Text("1")),
                18 if n == 0 => peer.feed(Data::Text("2{}")),
                19 if n == 0 => { peer.leave(CloseReason::ALL[usize::from(step) % 17]); over = true; }
                20 => { peer.now_ms += u64::from(n) * 50; peer.conversation.handle_time(peer.now_ms, &mut peer.out); }
                _ => peer.feed(Data::Text(r#"2["presence","idle"]"#)),
            }
            prop_assert!(peer.conversation.held_bytes() <= 2_000 + 40 * 18);
            if (closing || over) && step != 19 {
                prop_assert_eq!(&peer.out, &[]);
            }
            for action in &peer.out {
                match action {
                    Action::Close(_) => closing = true,
                    Action::LogIn(_) => prop_assert!(!was_open),
                    Action::Acknowledge { ids } => {
                        prop_assert!(was_open && ids.len() == 1 && (emitted > 0 || step == 13));
                    }
                    Action::LogOut | Action::Subscribe { .. } | Action::Presence(_) => prop_assert!(was_open),
                    Action::Unsubscribe { .. } | Action::RenewToken { .. } => prop_assert!(false, "never said"),
                    Action::Send(_) => {}
                }
            }
            if closing || over {
                prop_assert!(!peer.conversation.is_open() && peer.conversation.deadline_ms().is_none());
            }
        }
    }
}
