// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Who may use which topics (docs/authorization.md). The first rule with a matching pattern decides; without a match the
 * action is denied. Without a list, no rules apply to the action.
 *
 * @param subscribe {@code subscribe}
 * @param publish {@code publish}
 * @param ask {@code ask}
 */
public record TopicRules(
        @Nullable List<TopicRule> subscribe, @Nullable List<TopicRule> publish, @Nullable TopicWebhook ask) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link TopicRules}. */
    public static final class Builder {
        private @Nullable List<TopicRule> subscribe;
        private @Nullable List<TopicRule> publish;
        private @Nullable TopicWebhook ask;

        private Builder() {}

        /** {@code subscribe} */
        public Builder subscribe(@Nullable List<TopicRule> subscribe) {
            this.subscribe = subscribe;
            return this;
        }

        /** {@code publish} */
        public Builder publish(@Nullable List<TopicRule> publish) {
            this.publish = publish;
            return this;
        }

        /** {@code ask} */
        public Builder ask(@Nullable TopicWebhook ask) {
            this.ask = ask;
            return this;
        }

        public TopicRules build() {
            return new TopicRules(subscribe, publish, ask);
        }
    }
}
