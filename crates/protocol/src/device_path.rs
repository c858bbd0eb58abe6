//! The HTTP paths on which devices connect. The gateway serves them and the API forwards requests for them to
//! the gateway; both use this table. Paths that only conformance suites use are in the gateway.

/// The handler of a request for one of these paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevicePath {
    /// A WebSocket that carries the native protocol.
    Native,
    /// An event stream (SSE).
    Events,
    /// A WebSocket that carries MQTT.
    Mqtt,
    /// A WebSocket that carries XMPP.
    Xmpp,
    /// Engine.IO: long polling, or a WebSocket.
    EngineIo,
}

impl DevicePath {
    /// Returns `None` if the path belongs to the API, whatever the method.
    pub fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/connect" => Self::Native,
            "/v1/events" => Self::Events,
            "/mqtt" => Self::Mqtt,
            "/xmpp" => Self::Xmpp,
            "/socket.io/" | "/socket.io" => Self::EngineIo,
            _ => return None,
        })
    }

    /// Returns `None` if the API answers the request. Engine.IO answers every method itself.
    pub fn of(method: &str, path: &str) -> Option<Self> {
        Self::at(path).filter(|found| method == "GET" || *found == Self::EngineIo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_decides_except_for_engine_io() {
        assert_eq!(DevicePath::of("GET", "/v1/events"), Some(DevicePath::Events));
        assert_eq!(DevicePath::of("HEAD", "/v1/events"), None);
        assert_eq!(DevicePath::of("OPTIONS", "/socket.io"), Some(DevicePath::EngineIo));
        assert_eq!(DevicePath::of("POST", "/socket.io/"), Some(DevicePath::EngineIo));
        assert_eq!(DevicePath::of("GET", "/socket.io/socket.io.js"), None);
        assert_eq!(DevicePath::of("GET", "/v1/me"), None);
    }
}
