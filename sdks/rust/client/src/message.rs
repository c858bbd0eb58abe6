//! Messages.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::types::Shown;
use crate::wire::timestamp;

/// The place of a message in the log of its topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Position {
    /// Another one: the log has restarted.
    pub epoch: String,
    /// Grows within an epoch.
    pub offset: u64,
}

/// A message from a provider.
#[derive(Debug, Clone)]
pub struct Message {
    json: Arc<str>,
    id: String,
    topic: Option<String>,
    position: Option<Position>,
    is_stored: bool,
    sent_at: Option<SystemTime>,
    notification: Option<Arc<Shown>>,
    /// Where it is in `json`.
    data: Option<Range<usize>>,
}

#[derive(Deserialize)]
struct Frame<'a> {
    id: Option<String>,
    topic: Option<String>,
    epoch: Option<String>,
    offset: Option<u64>,
    ack: Option<bool>,
    sent_at: Option<String>,
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl Message {
    /// None without an id. Also returns why the visible part could not be read.
    pub(crate) fn parse(text: &str) -> Result<Option<(Self, Option<serde_json::Error>)>, serde_json::Error> {
        let frame: Frame<'_> = serde_json::from_str(text)?;
        let Some(id) = frame.id else { return Ok(None) };
        let position = match (frame.epoch, frame.offset) {
            (Some(epoch), Some(offset)) => Some(Position { epoch, offset }),
            _ => None,
        };
        let (notification, unreadable) = match frame.notification.map(|raw| serde_json::from_str(raw.get())) {
            Some(Ok(shown)) => (Some(Arc::new(shown)), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let data = frame.data.map(|raw| {
            // `data` is a part of `text`.
            let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
            start..start + raw.get().len()
        });
        let message = Self {
            json: text.into(),
            id,
            topic: frame.topic,
            position,
            is_stored: frame.ack.unwrap_or_default(),
            sent_at: frame.sent_at.as_deref().and_then(timestamp::parse),
            notification,
            data,
        };
        Ok(Some((message, unreadable)))
    }

    /// A UUID.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// None for a message to the device, its user or everyone.
    pub fn topic(&self) -> Option<&str> {
        self.topic.as_deref()
    }

    /// Its place in the log of its topic.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Whether the service keeps the message until the device acknowledges it.
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// A time of the service's clock.
    pub fn sent_at(&self) -> Option<SystemTime> {
        self.sent_at
    }

    /// The visible part.
    pub fn notification(&self) -> Option<&Shown> {
        self.notification.as_deref()
    }

    /// The title of the visible part.
    pub fn title(&self) -> Option<&str> {
        self.notification()?.title.as_deref()
    }

    /// The data: any JSON, as published.
    pub fn data_json(&self) -> Option<&str> {
        self.json.get(self.data.clone()?)
    }

    /// Reads the data. Without data it reads `null`.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.data_json().unwrap_or("null"))
    }

    /// The message as the service sent it: a JSON object.
    pub fn as_json(&self) -> &str {
        &self.json
    }
}

/// Equal JSON.
impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let parsed = Self::parse(raw.get()).map_err(de::Error::custom)?;
        parsed.map(|(message, _)| message).ok_or_else(|| de::Error::missing_field("id"))
    }
}
