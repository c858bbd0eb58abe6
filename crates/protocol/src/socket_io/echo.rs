//! The application that the public test suites of the protocol expect (SIO "Test suite"), enabled for
//! conformance tests only. On connection to `/` or `/custom` it emits `auth` with the handshake's auth; it
//! returns `message` as `message-back`, and acknowledges `message-with-ack` with its arguments, including
//! attachments. It uses the same packets, limits and timeouts as [`super::Conversation`].

use bytes::Bytes;
use noroshi_types::{CloseReason, SessionId};

use super::action::Action;
use super::assembler::{Assembler, Whole};
use super::conversation::Config;
use super::encode;
use super::packet::{Kind, Packet};
use crate::engine_io::{Data, Outgoing};

const NAMESPACES: [&str; 2] = ["/", "/custom"];

#[derive(Debug)]
pub struct Echo {
    assembler: Assembler,
    session: SessionId,
    connect_by_ms: u64,
    /// One bit for each of [`NAMESPACES`].
    connected: u8,
    closing: bool,
}

const _: () = assert!(size_of::<Echo>() <= 32);

impl Echo {
    pub fn new(session: SessionId, now_ms: u64, config: &Config) -> Self {
        let connect_by_ms = now_ms.saturating_add(config.connect_timeout_ms);
        Self { assembler: Assembler::new(), session, connect_by_ms, connected: 0, closing: false }
    }

    /// When to call [`Echo::handle_time`], while no namespace is connected.
    pub fn deadline_ms(&self) -> Option<u64> {
        (self.connected == 0 && !self.closing).then_some(self.connect_by_ms)
    }

    pub fn handle_time(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        if self.deadline_ms().is_some_and(|deadline_ms| now_ms >= deadline_ms) {
            self.end(CloseReason::AuthTimeout, out);
        }
    }

    /// Emits only [`Action::Send`] and [`Action::Close`].
    pub fn receive(&mut self, data: Data<'_>, now_ms: u64, config: &Config, out: &mut Vec<Action>) {
        self.handle_time(now_ms, out);
        if self.closing {
            return;
        }
        match self.assembler.feed(data, &config.limits) {
            Ok(Some(whole)) => self.handle_packet(&whole, now_ms, config, out),
            Ok(None) => {}
            Err(error) => self.end(error.reason(), out),
        }
    }

    fn handle_packet(&mut self, whole: &Whole<'_>, now_ms: u64, config: &Config, out: &mut Vec<Action>) {
        let packet = whole.packet();
        let place = NAMESPACES.iter().position(|name| *name == packet.namespace);
        let bit = place.map_or(0, |place| 1 << place);
        match (packet.kind, self.connected & bit != 0) {
            (Kind::Connect, false) if bit == 0 => {
                out.push(Action::Send(encode::connect_error(packet.namespace, "Invalid namespace", None)));
            }
            (Kind::Connect, false) => {
                self.connected |= bit;
                let sid = format!("{}-{bit}", self.session);
                out.push(Action::Send(encode::connected(packet.namespace, &sid, None)));
                let auth = format!(r#"["auth",{}]"#, packet.payload.unwrap_or("{}"));
                out.push(Action::Send(encode::packet(Kind::Event, packet.namespace, None, &auth)));
            }
            (Kind::Disconnect, true) => {
                self.connected &= !bit;
                self.connect_by_ms = now_ms.saturating_add(config.connect_timeout_ms);
            }
            (Kind::Event | Kind::BinaryEvent, true) => answer(&packet, whole.attachments(), out),
            (Kind::Ack | Kind::BinaryAck, true) => {}
            _ => self.end(CloseReason::BadMessage, out),
        }
    }

    fn end(&mut self, reason: CloseReason, out: &mut Vec<Action>) {
        self.closing = true;
        out.push(Action::Close(reason));
    }
}

fn answer(packet: &Packet<'_>, attachments: &[Bytes], out: &mut Vec<Action>) {
    let Some(event) = packet.event() else { return };
    let args = event.args.as_str();
    let binary = !attachments.is_empty();
    let (kind, id, payload) = match (&*event.name, packet.id) {
        ("message", _) => {
            let kind = if binary { Kind::BinaryEvent } else { Kind::Event };
            let comma = if args.is_empty() { "" } else { "," };
            (kind, None, format!(r#"["message-back"{comma}{args}]"#))
        }
        ("message-with-ack", Some(id)) => {
            (if binary { Kind::BinaryAck } else { Kind::Ack }, Some(id), format!("[{args}]"))
        }
        _ => return,
    };
    let mut text = Vec::with_capacity(32 + payload.len());
    encode::push_head(&mut text, kind, attachments.len(), packet.namespace, id);
    text.extend_from_slice(payload.as_bytes());
    out.push(Action::Send(Outgoing::Text(text.into())));
    out.extend(attachments.iter().map(|bytes| Action::Send(Outgoing::Binary(bytes.clone()))));
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config {
        limits: super::super::packet::Limits { namespace_bytes: 255, attachments: 10, binary_bytes: 100_000 },
        connect_timeout_ms: 1_000,
    };

    struct Peer {
        echo: Echo,
        out: Vec<Action>,
    }

    impl Peer {
        fn new() -> Self {
            Self { echo: Echo::new(SessionId(0xBEEF), 0, &CONFIG), out: Vec::new() }
        }

        fn connected() -> Self {
            let mut peer = Self::new();
            peer.send("0", &[r#"40{"sid":"000000000000beef-1"}"#, r#"42["auth",{}]"#]);
            peer
        }

        #[track_caller]
        fn send(&mut self, text: &str, expected: &[&str]) {
            self.feed(Data::Text(text), expected);
        }

        #[track_caller]
        fn feed(&mut self, data: Data<'_>, expected: &[&str]) {
            self.echo.receive(data, 0, &CONFIG, &mut self.out);
            let said: Vec<String> = self
                .out
                .drain(..)
                .map(|action| match action {
                    Action::Send(Outgoing::Text(text)) => String::from_utf8_lossy(&text).into_owned(),
                    Action::Send(Outgoing::Binary(bytes)) => format!("{:?}", &bytes[..]),
                    other => format!("{other:?}"),
                })
                .collect();
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn namespaces_connect_with_and_without_auth() {
        let sid = r#"{"sid":"000000000000beef-1"}"#;
        Peer::new().send("0", &[&format!("40{sid}"), r#"42["auth",{}]"#]);
        Peer::new().send(r#"0{"token":"123"}"#, &[&format!("40{sid}"), r#"42["auth",{"token":"123"}]"#]);
        let sid = r#"{"sid":"000000000000beef-2"}"#;
        for connect in ["0/custom,", "0/custom"] {
            Peer::new().send(connect, &[&format!("40/custom,{sid}"), r#"42/custom,["auth",{}]"#]);
        }
        Peer::new().send(
            r#"0/custom,{"token":"abc"}"#,
            &[&format!("40/custom,{sid}"), r#"42/custom,["auth",{"token":"abc"}]"#],
        );
        Peer::new().send("0/random", &[r#"44/random,{"message":"Invalid namespace"}"#]);
    }

    #[test]
    fn messages_are_echoed() {
        let mut peer = Peer::connected();
        peer.send(r#"2["message",1,"2",{"3":[true]}]"#, &[r#"42["message-back",1,"2",{"3":[true]}]"#]);
        peer.send(r#"2["message"]"#, &[r#"42["message-back"]"#]);
        peer.send(r#"2456["message-with-ack",1,"2",{"3":[false]}]"#, &[r#"43456[1,"2",{"3":[false]}]"#]);
        peer.send(r#"2["message-with-ack",1]"#, &[]);
        peer.send(r#"2["other"]"#, &[]);
        peer.send("30[]", &[]);
    }

    #[test]
    fn attachments_are_echoed() {
        let placeholders = r#"{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}"#;
        let mut peer = Peer::connected();
        peer.send(&format!(r#"52-["message",{placeholders}]"#), &[]);
        peer.feed(Data::Binary(&[1, 2, 3]), &[]);
        let back = format!(r#"452-["message-back",{placeholders}]"#);
        peer.feed(Data::Binary(&[4, 5, 6]), &[&back, "[1, 2, 3]", "[4, 5, 6]"]);
        peer.send(&format!(r#"52-789["message-with-ack",{placeholders}]"#), &[]);
        peer.feed(Data::Binary(&[1, 2, 3]), &[]);
        peer.feed(Data::Binary(&[4, 5, 6]), &[&format!("462-789[{placeholders}]"), "[1, 2, 3]", "[4, 5, 6]"]);
    }

    #[test]
    fn client_leaves_a_namespace_and_stays_connected() {
        let mut peer = Peer::connected();
        peer.send("0/custom", &[r#"40/custom,{"sid":"000000000000beef-2"}"#, r#"42/custom,["auth",{}]"#]);
        peer.send("1/custom", &[]);
        peer.send(r#"2["message","x"]"#, &[r#"42["message-back","x"]"#]);
        peer.send("1", &[]);
        assert_eq!(peer.echo.deadline_ms(), Some(1_000));
        peer.send(r#"2["message","x"]"#, &["Close(BadMessage)"]);
        peer.send("0", &[]);
    }

    #[test]
    fn protocol_errors_close_the_connection() {
        for wrong in ["abc", "2{}", r#"2abc["message-with-ack",1]"#, "", "2", "2[]", "0", "4{}", "1/custom"] {
            Peer::connected().send(wrong, &["Close(BadMessage)"]);
        }
        Peer::new().send("abc", &["Close(BadMessage)"]);
        Peer::new().send(r#"2["message"]"#, &["Close(BadMessage)"]);
        Peer::connected().feed(Data::Binary(&[1]), &["Close(BadMessage)"]);
    }

    #[test]
    fn handshake_timeout_closes_the_connection() {
        let mut peer = Peer::new();
        peer.echo.handle_time(999, &mut peer.out);
        assert!(peer.out.is_empty());
        peer.echo.handle_time(1_000, &mut peer.out);
        assert_eq!(peer.out, [Action::Close(CloseReason::AuthTimeout)]);
        let mut peer = Peer::connected();
        peer.echo.handle_time(1_000, &mut peer.out);
        assert_eq!((peer.out.len(), peer.echo.deadline_ms()), (0, None));
    }
}
