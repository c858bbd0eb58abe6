//! The protocol of the devices: one of Noroshi's, or the configured protocol of a foreign server. It is part
//! of the setup of every client process; [`crate::speech`] implements it.

use serde::{Deserialize, Serialize};

use crate::jwt::Signer;

/// Placeholder for the device name.
pub(crate) const DEVICE: &str = "{device}";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dialect {
    /// Noroshi's native protocol over WebSocket.
    #[default]
    Native,
    /// The native protocol, compressed if the server agrees.
    Deflated,
    /// Server-sent events.
    Events,
    /// Over WebSocket.
    SocketIo,
    Mqtt(Mqtt),
    Xmpp(Xmpp),
    /// Text frames over WebSocket, as configured on the command line.
    Frames(Frames),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mqtt {
    /// Subscribed by every device, in addition to the common topic.
    pub(crate) inbox: Option<String>,
    pub(crate) password: Password,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Xmpp {
    pub(crate) domain: String,
    pub(crate) password: Password,
    /// Whether the topic's node must be created before the first subscription.
    pub(crate) makes_node: bool,
}

/// The credential of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Password {
    /// The token signed for Noroshi's app.
    Token,
    /// A fixed text, apart from the device name.
    Text(String),
    /// Neither user name nor password.
    None,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frames {
    /// Path and query of the upgrade request.
    pub(crate) path: String,
    /// Text frames to send, in order.
    pub(crate) hello: Vec<String>,
    /// The device is ready after a text frame with this content; `None`: after the upgrade.
    pub(crate) ready: Option<String>,
    /// Replies: a text frame equal to the first is answered with the second.
    pub(crate) answers: Vec<(String, String)>,
}

impl Dialect {
    /// The credential of `device`, if any.
    pub(crate) fn secret(&self, device: &str, signer: &Signer, now_s: u64) -> Option<String> {
        let password = match self {
            Dialect::Native | Dialect::Deflated | Dialect::Events | Dialect::SocketIo => &Password::Token,
            Dialect::Mqtt(mqtt) => &mqtt.password,
            Dialect::Xmpp(xmpp) => &xmpp.password,
            Dialect::Frames(_) => &Password::None,
        };
        match password {
            Password::Token => Some(signer.token(device, now_s)),
            Password::Text(text) => Some(text.replace(DEVICE, device)),
            Password::None => None,
        }
    }

    /// Whether messages carry [`crate::payload::push_plain_data`], since they do not come from Noroshi's API.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Dialect::Native | Dialect::Deflated | Dialect::Events | Dialect::SocketIo => false,
            Dialect::Mqtt(Mqtt { password, .. }) | Dialect::Xmpp(Xmpp { password, .. }) => {
                *password != Password::Token
            }
            Dialect::Frames(_) => true,
        }
    }

    /// The variant for the publishing device, which connects first.
    pub(crate) fn of_publisher(&self) -> Self {
        match self {
            Dialect::Xmpp(xmpp) => Dialect::Xmpp(Xmpp { makes_node: true, ..xmpp.clone() }),
            other => other.clone(),
        }
    }
}

impl Mqtt {
    pub(crate) fn inbox(&self, device: &str) -> Option<String> {
        self.inbox.as_ref().map(|filter| filter.replace(DEVICE, device))
    }
}

impl Frames {
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
