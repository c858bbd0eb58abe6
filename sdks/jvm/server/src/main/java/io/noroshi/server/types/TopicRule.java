// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param topic A pattern of text, {@code +} for a level, {@code #} as the last level, {@code *} within a level, and the
 *     variables <code>&#123;user&#125;</code>, <code>&#123;device&#125;</code>, <code>&#123;claim:name&#125;</code>.
 * @param allow {@code allow}
 */
public record TopicRule(String topic, TopicRuleAllow allow) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link TopicRule}. */
    public static final class Builder {
        private @Nullable String topic;
        private @Nullable TopicRuleAllow allow;

        private Builder() {}

        /**
         * A pattern of text, {@code +} for a level, {@code #} as the last level, {@code *} within a level, and the
         * variables <code>&#123;user&#125;</code>, <code>&#123;device&#125;</code>, <code>&#123;claim:name&#125;</code>
         * .
         */
        public Builder topic(String topic) {
            this.topic = topic;
            return this;
        }

        /** {@code allow} */
        public Builder allow(TopicRuleAllow allow) {
            this.allow = allow;
            return this;
        }

        public TopicRule build() {
            return new TopicRule(Objects.requireNonNull(topic, "topic"), Objects.requireNonNull(allow, "allow"));
        }
    }
}
