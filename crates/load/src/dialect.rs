//! How devices speak with a server that other people wrote: what they say after the upgrade, what tells them
//! that they are in, and what they answer. Where a setup has none, they speak Noroshi's native protocol.

use serde::{Deserialize, Serialize};

/// Stands for the name of the device.
const DEVICE: &str = "{device}";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dialect {
    /// Of the upgrade request, with its query.
    pub(crate) path: String,
    /// Text frames, in this order.
    pub(crate) hello: Vec<String>,
    /// A text frame with this in it tells a device that it is in; none: the upgrade does.
    pub(crate) ready: Option<String>,
    /// A text frame that is the first is answered with the second.
    pub(crate) answers: Vec<(String, String)>,
}

impl Dialect {
    pub(crate) fn path(&self, device: &str) -> String {
        self.path.replace(DEVICE, device)
    }

    pub(crate) fn hello(&self, device: &str) -> impl Iterator<Item = String> {
        self.hello.iter().map(move |text| text.replace(DEVICE, device))
    }

    pub(crate) fn is_ready(&self, text: &str) -> bool {
        self.ready.as_ref().is_some_and(|ready| text.contains(ready))
    }

    pub(crate) fn answer(&self, text: &str) -> Option<&str> {
        self.answers.iter().find(|(said, _)| said == text).map(|(_, reply)| reply.as_str())
    }
}
