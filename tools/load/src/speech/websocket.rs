//! WebSocket: the upgrade and the frames. Passes text frames to one of three protocols.

use noroshi_protocol::ws::{
    Decoder, Input, OFFER_DEFLATE, Opcode, Refusal, Role, Terms, check_upgrade_response_to,
    push_masked_frame, push_upgrade_request,
};

use super::{
    Login, MASK, MESSAGE_BYTES_MAX, RESPONSE_BYTES_MAX, Turn, native, proceed, push_text, refusal, socket_io,
};
use crate::connection::{Ended, Stage};
use crate::dialect::{Dialect, Frames};

/// The example of RFC 6455 §1.3. Keys prevent caches from answering; there are none in between.
const UPGRADE_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

pub(crate) struct WebSocket {
    decoder: Decoder,
    /// An incomplete response to the upgrade.
    held: Vec<u8>,
    /// Frames to send once the upgrade is complete.
    hello: Vec<u8>,
}

impl WebSocket {
    pub(super) fn begin(dialect: &Dialect, login: Login<'_>) -> (Self, Vec<u8>) {
        let (mut first, mut hello) = (Vec::with_capacity(512), Vec::new());
        let mut request = |path: &str, headers: &[(&str, &str)]| {
            push_upgrade_request(&mut first, login.host, path, UPGRADE_KEY, headers);
        };
        match dialect {
            Dialect::SocketIo => {
                request(socket_io::PATH, &[]);
                push_text(&mut hello, socket_io::connect(login).as_bytes());
            }
            Dialect::Frames(frames) => {
                request(&frames.path(login.name), &[]);
                frames.hello(login.name).for_each(|text| push_text(&mut hello, text.as_bytes()));
            }
            Dialect::Deflated => {
                let bearer = format!("Bearer {}", login.token());
                request(native::PATH, &[("Authorization", &bearer), OFFER_DEFLATE]);
            }
            Dialect::Native | Dialect::Events | Dialect::Mqtt(_) | Dialect::Xmpp(_) => {
                request(native::PATH, &[("Authorization", &format!("Bearer {}", login.token()))]);
            }
        }
        (Self { decoder: Decoder::new(), held: Vec::new(), hello }, first)
    }

    pub(super) fn handle_bytes(&mut self, bytes: &mut [u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
        let mut from = 0;
        if *turn.stage == Stage::Opening {
            self.held.extend_from_slice(bytes);
            let Some(head_len) = upgraded(&self.held, *turn.dialect == Dialect::Deflated)? else {
                return Ok(());
            };
            // Frames may follow the head in the same read; earlier reads contained only the head.
            from = bytes.len() - (self.held.len() - head_len);
            self.held = Vec::new();
            *turn.stage = Stage::LoggingIn;
            if let Dialect::Frames(Frames { ready, .. }) = turn.dialect {
                turn.out.append(&mut self.hello);
                *turn.stage = if ready.is_some() { Stage::LoggingIn } else { Stage::Ready };
            }
        }
        let fed = self.feed(&mut bytes[from..], turn);
        native::push_turn_acks(turn);
        fed
    }

    fn feed(&mut self, bytes: &mut [u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
        let Self { decoder, hello, .. } = self;
        let mut ended = None;
        let deflates = *turn.dialect == Dialect::Deflated;
        let mut inflater = std::mem::take(turn.inflater);
        let mut on_input = |input: Input<'_>| {
            let input = match input {
                Input::Deflated(message) => inflater.inflate(message, MESSAGE_BYTES_MAX),
                input => Ok(input),
            };
            let heard = match input {
                Err(error) => Err(Ended::permanent(format!("invalid message: {error}"))),
                Ok(Input::Text(text)) => match turn.dialect {
                    Dialect::Frames(of) => handle_frame(text, of, turn),
                    Dialect::SocketIo => socket_io::handle_bytes(text, hello, turn),
                    _ => native::handle_bytes(text, turn),
                },
                Ok(Input::Ping(payload)) => {
                    push_masked_frame(turn.out, Opcode::Pong, payload, MASK);
                    Ok(())
                }
                Ok(Input::Close { code, reason }) => {
                    let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
                    Err(Ended::temporary(format!("closed by the server: {code} {reason}").trim_end()))
                }
                Ok(Input::Binary(_) | Input::Pong(_) | Input::Fragment | Input::Deflated(_)) => Ok(()),
            };
            proceed(heard, &mut ended)
        };
        let terms = Terms { role: Role::Client, deflates, message_bytes_max: MESSAGE_BYTES_MAX };
        let fed = decoder.feed_with_terms(terms, bytes, &mut on_input);
        *turn.inflater = inflater;
        match (fed, ended) {
            (_, Some(ended)) => Err(ended),
            (Err(error), None) => Err(Ended::permanent(format!("invalid frame: {error}"))),
            (Ok(()), None) => Ok(()),
        }
    }
}

/// A text frame of a foreign server. Messages are recognized by their data, even several in one frame.
fn handle_frame(text: &str, frames: &Frames, turn: &mut Turn<'_>) -> Result<(), Ended> {
    let stamp = turn.stamp;
    for stamp_ns in stamp.find_all(text.as_bytes()) {
        turn.message(Some(stamp_ns), text.len());
    }
    if *turn.stage == Stage::LoggingIn && frames.is_ready(text) {
        *turn.stage = Stage::Ready;
    }
    if let Some(reply) = frames.answer(text) {
        push_text(turn.out, reply.as_bytes());
    }
    Ok(())
}

/// The length of the head that completed the upgrade; `None` until it is complete.
fn upgraded(bytes: &[u8], deflates: bool) -> Result<Option<usize>, Ended> {
    match check_upgrade_response_to(bytes, UPGRADE_KEY, deflates) {
        Ok(None) if bytes.len() > RESPONSE_BYTES_MAX => {
            Err(Ended::permanent("the head of the response is too long"))
        }
        Ok(head_len) => Ok(head_len),
        Err(Refusal::Status { status, head_len }) => refusal(bytes, status, head_len).map_or(Ok(None), Err),
        Err(Refusal::Malformed(what)) => Err(Ended::permanent(what)),
    }
}
