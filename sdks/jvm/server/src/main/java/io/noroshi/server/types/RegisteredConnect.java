// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import org.jspecify.annotations.Nullable;

/**
 * Where to connect, by protocol. MQTT and XMPP over TCP are present if the operator set {@code mqtt.public_url} and
 * {@code xmpp.public_url}.
 *
 * @param websocket {@code websocket}
 * @param sse {@code sse}
 * @param socketio {@code socketio}
 * @param mqtt {@code mqtt}
 * @param xmpp {@code xmpp}
 * @param mqttTcp {@code mqtts://host:port} or {@code mqtt://host:port}.
 * @param xmppTcp {@code xmpps://host:port} for direct TLS, {@code xmpp://host:port} for STARTTLS.
 */
public record RegisteredConnect(
        String websocket,
        String sse,
        String socketio,
        String mqtt,
        String xmpp,
        @JsonProperty("mqtt_tcp") @Nullable String mqttTcp,
        @JsonProperty("xmpp_tcp") @Nullable String xmppTcp) {}
