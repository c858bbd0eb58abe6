//! Frames of the service (docs/native.md).

use serde::Deserialize;

use super::connection::PONG_TIMEOUT;
use super::inflow::Recovery;
use super::machine::{Acknowledge, Machine};
use super::timer::Timer;
use crate::error::{Code, Error};
use crate::event::{Denied, Event, ItemsEvent};
use crate::message::{Message, Position};
use crate::types::ItemCounts;

/// Values of other types are errors; unknown fields are ignored (F5).
#[derive(Deserialize)]
struct Head {
    t: Option<String>,
}

#[derive(Deserialize)]
struct Ready {
    device: Option<String>,
    ping_s: Option<f64>,
}

#[derive(Deserialize)]
struct RecoveredFrame {
    topic: Option<String>,
    complete: Option<bool>,
    epoch: Option<String>,
    offset: Option<u64>,
}

#[derive(Deserialize)]
struct ErrorFrame {
    code: Option<String>,
    message: Option<String>,
    topic: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct CloseText {
    reason: Option<String>,
    reconnect: Option<bool>,
    after_ms: Option<f64>,
}

#[derive(Debug)]
pub(super) struct CloseFrame {
    pub(super) reason: String,
    pub(super) reconnect: Option<bool>,
    pub(super) after_ms: Option<f64>,
}

/// Why a text is not a frame of the service.
enum Bad {
    Missing(&'static str),
    Json(serde_json::Error),
}

impl From<serde_json::Error> for Bad {
    fn from(error: serde_json::Error) -> Self {
        Bad::Json(error)
    }
}

/// An object. serde would also accept a list with the fields in order.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Bad> {
    match text.trim_ascii_start().starts_with('{') {
        true => Ok(serde_json::from_str(text)?),
        false => Err(Bad::Missing("t")),
    }
}

impl Machine {
    pub(super) fn handle_frame(&mut self, text: Option<&str>) {
        let Some(text) = text else {
            self.bad_frame("a binary message", None);
            return;
        };
        match self.try_frame(text) {
            Ok(()) => {}
            Err(Bad::Missing(field)) => self.bad_frame(&format!("the field {field} is missing"), None),
            Err(Bad::Json(error)) => self.bad_frame(&error.to_string(), Some(error)),
        }
    }

    fn bad_frame(&mut self, why: &str, cause: Option<serde_json::Error>) {
        // F4
        let error = Error::new(Code::BadFrame, format!("not a frame of the service: {why}"));
        self.fail(match cause {
            Some(cause) => error.caused_by(cause.into()),
            None => error,
        });
    }

    fn try_frame(&mut self, text: &str) -> Result<(), Bad> {
        let head: Head = object(text)?;
        match head.t.ok_or(Bad::Missing("t"))?.as_str() {
            "msg" => {
                let (message, unreadable) = Message::parse(text)?.ok_or(Bad::Missing("id"))?;
                if let Some(error) = unreadable {
                    self.bad_frame(&format!("message {}: {error}", message.id()), Some(error));
                }
                self.message(message);
            }
            "ready" => {
                let ready: Ready = object(text)?;
                self.ready(ready.device, ready.ping_s);
            }
            "recovered" => {
                let frame: RecoveredFrame = object(text)?;
                let topic = frame.topic.ok_or(Bad::Missing("topic"))?;
                let is_asked = self.asked.remove(&topic);
                let position = match (frame.epoch, frame.offset) {
                    (Some(epoch), Some(offset)) => Some(Position { epoch, offset }),
                    _ => None,
                };
                let complete = frame.complete.unwrap_or_default();
                let session = self.inflow.session;
                self.after_messages(Recovery { topic, complete, position, is_asked, session });
            }
            "items" => {
                let event: ItemsEvent = object(text)?;
                let counts = ItemCounts { unread: event.unread, categories: event.categories.clone() };
                self.update_counts(counts);
                self.tell(Event::Items(event));
            }
            "error" => {
                let frame = object(text)?;
                self.refused(frame);
            }
            "close" => {
                let frame: CloseText = object(text)?;
                let reason = frame.reason.ok_or(Bad::Missing("reason"))?;
                let CloseText { reconnect, after_ms, .. } = frame;
                self.connection.closing = Some(CloseFrame { reason, reconnect, after_ms });
                self.timers.set(Timer::Connect, self.now.at + PONG_TIMEOUT); // C5
                self.flush(); // A5
            }
            _ => {}
        }
        Ok(())
    }

    fn message(&mut self, message: Message) {
        if self.config.acknowledge == Acknowledge::Received && message.is_stored() {
            self.ack_ids(&[message.id()]);
        }
        if !self.receive(message) {
            self.too_slow();
        }
    }

    fn refused(&mut self, frame: ErrorFrame) {
        let code = Code::from(frame.code.as_deref().unwrap_or("bad_frame"));
        let reason = frame.reason.unwrap_or_default();
        if let Some(topic) = &frame.topic {
            if matches!(code, Code::TopicForbidden | Code::TopicRevoked) {
                // F8
                self.forget(topic);
                self.tell(Event::Denied(Denied { topic: topic.clone(), code, reason }));
                return;
            }
        }
        // T5
        if matches!(code, Code::Unauthorized | Code::Expired) {
            if let Some(token) = self.connection.sent_token.take() {
                self.tokens.reject(&token);
                self.renew_later(false);
            }
        } else if matches!(code, Code::RateLimited | Code::Overloaded)
            && self.connection.sent_token.take().is_some()
        {
            self.renew_later(true);
        }
        let mut error = Error::new(code, frame.message.unwrap_or_default());
        if let Some(topic) = frame.topic {
            error = error.about_topic(topic, reason);
        }
        self.fail(error); // F6
    }
}
