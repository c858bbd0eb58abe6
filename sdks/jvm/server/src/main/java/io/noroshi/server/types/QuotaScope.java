// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code node}: enforced per node; {@code store}: enforced across all nodes that share a store. */
public enum QuotaScope {
    @JsonProperty("node")
    NODE,
    @JsonProperty("store")
    STORE,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
