//! The HTTP paths by which devices connect. The gateway answers them, and the API passes requests for them to the gateway:
//! both ask here. Paths that only conformance suites use are the gateway's own.

/// What answers a request for one of these paths.
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
    /// None: the path is the API's, whatever the method.
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

    /// None: the API answers the request. Engine.IO answers every method itself.
    pub fn of(method: &str, path: &str) -> Option<Self> {
        Self::at(path).filter(|found| method == "GET" || *found == Self::EngineIo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_decides_except_for_engine_io() {
        assert_eq!(DevicePath::of("GET", "/v1/events"), Some(DevicePath::Events));
        assert_eq!(DevicePath::of("HEAD", "/v1/events"), None);
        assert_eq!(DevicePath::of("OPTIONS", "/socket.io"), Some(DevicePath::EngineIo));
        assert_eq!(DevicePath::of("POST", "/socket.io/"), Some(DevicePath::EngineIo));
        assert_eq!(DevicePath::of("GET", "/socket.io/socket.io.js"), None);
        assert_eq!(DevicePath::of("GET", "/v1/me"), None);
    }
}
