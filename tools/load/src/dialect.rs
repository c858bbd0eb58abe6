//! How devices speak: one of the protocols that Noroshi speaks, or what a server that other people wrote wants to
//! hear. It is a part of the set-up that every process of the client gets; [`crate::speech`] speaks it.

use serde::{Deserialize, Serialize};

use crate::jwt::Signer;

/// Stands for the name of the device.
pub(crate) const DEVICE: &str = "{device}";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dialect {
    /// Noroshi's own, over WebSocket.
    #[default]
    Native,
    /// The same, compressed where the server agrees.
    Deflated,
    /// Server-sent events.
    Events,
    /// Over WebSocket.
    SocketIo,
    Mqtt(Mqtt),
    Xmpp(Xmpp),
    /// Text frames over WebSocket, as the command line describes them.
    Frames(Frames),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mqtt {
    /// Subscribed to by every device, besides the topic of all.
    pub(crate) inbox: Option<String>,
    pub(crate) password: Password,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Xmpp {
    pub(crate) domain: String,
    pub(crate) password: Password,
    /// The topic's node has to be made before anybody subscribes to it.
    pub(crate) makes_node: bool,
}

/// What a device logs in with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Password {
    /// The token that Noroshi's app signed for it.
    Token,
    /// The same for all but for the name in it.
    Text(String),
    /// It says no name either.
    None,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frames {
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
    /// What `device` logs in with, if it does.
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

    /// Whether messages carry [`crate::payload::push_plain_data`]: they were not made by Noroshi's API.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Dialect::Native | Dialect::Deflated | Dialect::Events | Dialect::SocketIo => false,
            Dialect::Mqtt(Mqtt { password, .. }) | Dialect::Xmpp(Xmpp { password, .. }) => {
                *password != Password::Token
            }
            Dialect::Frames(_) => true,
        }
    }

    /// The same for the device that publishes, the first of all to come.
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
