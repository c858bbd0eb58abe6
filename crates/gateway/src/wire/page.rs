//! Messages of a page for a native connection, which are encoded for it only.

use noroshi_protocol::{native, sse, ws};
use noroshi_types::Message;

use crate::wire::Framing;
use crate::wire::deflate::{self, DeflateTotals};

/// Appends a message. `retained`: its topic retains it, so it is not at its place in the order.
pub(crate) fn encode(
    framing: Framing,
    message: &Message,
    retained: bool,
    out: &mut Vec<u8>,
    totals: &mut DeflateTotals,
) {
    match framing {
        // Without `id:`: a client that resumed behind a retained message would miss those before it.
        Framing::Events | Framing::GzipEvents if retained => {
            sse::named("msg", &native::message_json(message), out);
        }
        Framing::Events | Framing::GzipEvents => out.extend_from_slice(&sse::event(message)),
        Framing::WebSocket | Framing::Stream | Framing::Polling => {
            ws::push_frame(out, ws::Opcode::Text, &native::message_json(message));
        }
        Framing::Deflated(_) => {
            let frame = ws::text_frame(&native::message_json(message));
            let plain_bytes = frame.len();
            let packed = deflate::packed(framing, frame);
            totals.add(plain_bytes, packed.len());
            out.extend_from_slice(&packed);
        }
    }
}
