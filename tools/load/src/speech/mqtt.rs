//! MQTT 3.1.1, which every server supports: a clean session, one SUBSCRIBE with QoS 1 after CONNACK, a PUBACK
//! for each message. The keep alive is the maximum, so that nothing but the server's own activity happens
//! while devices are idle.

use noroshi_protocol::mqtt::{
    Ack, Connect, Decoder, Frame, Packet, Properties, Publish, Qos, ReasonCode, Subscribe, SubscribeOptions,
    Version,
};

use super::{Login, MESSAGE_BYTES_MAX, Turn, proceed};
use crate::connection::{Ended, Stage};
use crate::dialect;

const VERSION: Version = Version::V3;
/// Eighteen hours.
const KEEP_ALIVE_S: u16 = u16::MAX;
/// The packet id of a connection's only SUBSCRIBE.
const SUBSCRIBE_ID: u16 = 1;

#[derive(Debug)]
pub(crate) struct Mqtt {
    decoder: Decoder,
    /// SUBSCRIBE, if there are topics, until CONNACK arrives.
    subscribe: Vec<u8>,
}

pub(crate) fn connect(login: Login<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let connect = Connect {
        version: VERSION,
        is_mqtt31: false,
        clean_start: true,
        keep_alive_s: KEEP_ALIVE_S,
        properties: Properties::default(),
        client_id: login.name,
        will: None,
        username: login.secret.map(|_| login.name),
        password: login.secret.map(str::as_bytes),
    };
    Packet::Connect(connect).encode(VERSION, &mut out);
    out
}

/// Appends a QoS 0 message to `topic`.
pub(super) fn push_publish(out: &mut Vec<u8>, topic: &str, text: &str) {
    let publish = Publish {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic,
        packet_id: 0,
        properties: Properties::default(),
        payload: text.as_bytes(),
    };
    Packet::Publish(publish).encode(VERSION, out);
}

/// Empty without filters.
pub(crate) fn subscribe(filters: &[&str], qos: Qos) -> Vec<u8> {
    let options = SubscribeOptions::new(qos);
    let filters: Vec<_> = filters.iter().map(|filter| (*filter, options)).collect();
    let mut out = Vec::new();
    if !filters.is_empty() {
        let filters = Subscribe::encode_filters(&filters);
        let subscribe = Subscribe::new(SUBSCRIBE_ID, Properties::default(), &filters);
        Packet::Subscribe(subscribe).encode(VERSION, &mut out);
    }
    out
}

impl Mqtt {
    pub(super) fn begin(of: &dialect::Mqtt, login: Login<'_>) -> (Self, Vec<u8>) {
        let inbox = of.inbox(login.name);
        let filters: Vec<_> = inbox.as_deref().into_iter().chain(login.topic).collect();
        (Self { decoder: Decoder::new(), subscribe: subscribe(&filters, Qos::AtLeastOnce) }, connect(login))
    }

    pub(super) fn handle_bytes(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
        let Self { decoder, subscribe } = self;
        let mut ended = None;
        let mut on_frame = |frame: Frame<'_>| {
            let heard = match Packet::parse(VERSION, frame) {
                Ok(packet) => handle_bytes(packet, subscribe, turn),
                Err(violation) => Err(invalid(&violation)),
            };
            proceed(heard, &mut ended)
        };
        let fed = decoder.feed(bytes, MESSAGE_BYTES_MAX, &mut on_frame);
        match ended {
            Some(ended) => Err(ended),
            None => fed.map_err(|violation| invalid(&violation)),
        }
    }
}

fn handle_bytes(packet: Packet<'_>, subscribe: &mut Vec<u8>, turn: &mut Turn<'_>) -> Result<(), Ended> {
    match packet {
        Packet::Publish(publish) => {
            let stamp_ns = turn.stamp.find(publish.payload);
            turn.message(stamp_ns, publish.payload.len());
            if publish.qos == Qos::AtLeastOnce {
                Packet::PubAck(Ack::success(publish.packet_id)).encode(VERSION, turn.out);
                turn.seen.stored(stamp_ns);
            }
        }
        Packet::ConnAck(connack) if connack.reason.is_error() => {
            // §3.2.2.3: among the return codes, only "Server unavailable" is temporary.
            let code = connack.reason.connect_return_code();
            let retry = code == 3;
            return Err(Ended { reason: format!("CONNACK with return code {code}"), retry, after_ms: None });
        }
        Packet::ConnAck(_) if *turn.stage == Stage::Opening => {
            *turn.stage = if subscribe.is_empty() { Stage::Ready } else { Stage::Subscribing };
            turn.out.append(subscribe);
            *subscribe = Vec::new(); // releases the buffer while idle
        }
        Packet::SubAck(suback) if *turn.stage == Stage::Subscribing => {
            if suback.reasons.contains(&(ReasonCode::UnspecifiedError as u8)) {
                return Err(Ended::permanent("SUBACK rejects a topic"));
            }
            *turn.stage = Stage::Ready;
        }
        _ => {}
    }
    Ok(())
}

fn invalid(violation: &impl std::fmt::Display) -> Ended {
    Ended::permanent(format!("invalid packet: {violation}"))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::dialect::Password;

    fn packets(bytes: &[u8], check: impl Fn(usize, Packet<'_>)) -> usize {
        let mut count = 0;
        let mut on = |frame: Frame<'_>| {
            check(count, Packet::parse(VERSION, frame).unwrap());
            count += 1;
            ControlFlow::Continue(())
        };
        Decoder::new().feed(bytes, MESSAGE_BYTES_MAX, &mut on).unwrap();
        count
    }

    #[test]
    fn device_logs_in_and_subscribes() {
        let of = dialect::Mqtt { inbox: Some("in/{device}".to_owned()), password: Password::Token };
        let login = Login { host: "h", name: "d-1", secret: Some("token"), topic: Some("t") };
        let (mqtt, first) = Mqtt::begin(&of, login);
        let bytes = [first, mqtt.subscribe].concat();
        let count = packets(&bytes, |at, packet| match (at, packet) {
            (0, Packet::Connect(connect)) => {
                assert_eq!((connect.client_id, connect.username), ("d-1", Some("d-1")));
                assert_eq!(connect.password, Some(&b"token"[..]));
            }
            (1, Packet::Subscribe(subscribe)) => {
                let filters: Vec<_> =
                    subscribe.filters.iter().map(|(filter, of)| (filter, of.qos())).collect();
                assert_eq!(filters, [("in/d-1", Qos::AtLeastOnce), ("t", Qos::AtLeastOnce)]);
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(count, 2);
        let nobody = Login { secret: None, topic: None, ..login };
        let (mqtt, first) = Mqtt::begin(&dialect::Mqtt { inbox: None, ..of }, nobody);
        assert!(mqtt.subscribe.is_empty());
        packets(&first, |_, packet| {
            let Packet::Connect(connect) = packet else { panic!("CONNECT") };
            assert_eq!((connect.username, connect.password), (None, None));
        });
    }
}
