package io.noroshi.server;

import io.noroshi.server.types.Campaign;
import io.noroshi.server.types.CampaignState;
import io.noroshi.server.types.DeviceRegistration;
import io.noroshi.server.types.Notification;
import io.noroshi.server.types.PresenceAnswerUser;
import io.noroshi.server.types.PresenceQuery;
import io.noroshi.server.types.Receipt;
import io.noroshi.server.types.Recipient;
import java.net.URI;
import java.net.http.HttpClient;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * The API of a provider: what a backend does with an API key.
 *
 * <pre>{@code
 * Noroshi noroshi = Noroshi.builder("https://push.example.com", System.getenv("NOROSHI_KEY")).build();
 * noroshi.publish(Notification.builder()
 *     .to(To.users("u1"))
 *     .notification(Shown.builder().title("Hello").build())
 *     .build());
 * }</pre>
 *
 * <p>Each method waits for the answer; its variant {@code …Async} returns a future instead, and cancelling the future
 * ends the request. Both throw or complete with {@link NoroshiException}. An object is safe for concurrent use, and
 * cheap to keep.
 */
public final class Noroshi {
    private final Http http;

    private Noroshi(Http http) {
        this.http = http;
    }

    /**
     * Configures a client.
     *
     * @param url the address of a node, or of what stands in front of nodes, such as {@code https://push.example.com}
     * @param apiKey an API key of the app
     */
    public static Builder builder(String url, String apiKey) {
        return new Builder(url, () -> apiKey);
    }

    /**
     * Configures a client.
     *
     * @param url the address of a node, or of what stands in front of nodes, such as {@code https://push.example.com}
     * @param apiKey returns an API key of the app. It is called for each attempt, so that a key can be rotated without
     *     a restart; it must not wait
     */
    public static Builder builder(String url, Supplier<String> apiKey) {
        return new Builder(url, apiKey);
    }

    /**
     * The same client with other options of its requests:
     * {@code noroshi.with(RequestOptions.idempotent("order-7")).publish(…)}.
     */
    public Noroshi with(RequestOptions options) {
        return new Noroshi(http.with(options));
    }

    /** Notifies users, devices, a topic, a condition, or everyone. Attempts that are repeated deliver nothing twice. */
    public Receipt publish(Notification notification) {
        return notifications().publish(notification);
    }

    /** As {@link #publish}, without a wait. */
    public CompletableFuture<Receipt> publishAsync(Notification notification) {
        return notifications().publishAsync(notification);
    }

    /** Publishes many notifications, while the results are read. Attempts that are repeated deliver nothing twice. */
    public Batch<Notification, Receipt> publishBatch(Iterable<? extends Notification> notifications) {
        return new Batch<>(http, notifications, Receipt.class, true, (http, lines, key) -> http.call(
                        "POST", "/v1/notifications/batch")
                .lines(lines)
                .idempotent(key));
    }

    /** A device that was registered by a batch. */
    public record RegisteredDevice(String device, String token) {}

    /** Registers many devices, while the results are read. */
    public Batch<DeviceRegistration, RegisteredDevice> registerDevices(Iterable<? extends DeviceRegistration> devices) {
        return new Batch<>(http, devices, RegisteredDevice.class, false, (http, lines, key) -> http.call(
                        "POST", "/v1/devices/batch")
                .lines(lines));
    }

    /** A user that was uploaded. */
    public record UploadedRecipient(String user) {}

    /**
     * Uploads the users of a campaign whose audience is uploaded, while the results are read. Repeating a line changes
     * nothing.
     */
    public Batch<Recipient, UploadedRecipient> uploadRecipients(
            String campaign, Iterable<? extends Recipient> recipients) {
        return new Batch<>(http, recipients, UploadedRecipient.class, false, (http, lines, key) -> http.call(
                        "POST", "/v1/campaigns/{id}/recipients")
                .path("id", campaign)
                .lines(lines)
                .safe());
    }

    /** Whether users are present, and on which devices. At most 1,000 users. */
    public Map<String, PresenceAnswerUser> presence(Collection<String> users) {
        return Http.await(presenceAsync(users));
    }

    /** As {@link #presence}, without a wait. */
    public CompletableFuture<Map<String, PresenceAnswerUser>> presenceAsync(Collection<String> users) {
        return users().presenceAsync(
                        PresenceQuery.builder().users(List.copyOf(users)).build())
                .thenApply(answer -> answer.users());
    }

    /** Waits until a campaign is done or aborted, and returns it. It waits for as long as that takes. */
    public Campaign awaitCampaign(String id) {
        return Http.await(awaitCampaignAsync(id, campaign -> {}));
    }

    /**
     * Completes when a campaign is done or aborted. Cancel the future to end the wait.
     *
     * @param id the campaign
     * @param progress gets the campaign after each request
     */
    public CompletableFuture<Campaign> awaitCampaignAsync(String id, Consumer<Campaign> progress) {
        CompletableFuture<Campaign> result = new CompletableFuture<>();
        poll(id, progress, result, 500);
        return result;
    }

    private void poll(String id, Consumer<Campaign> progress, CompletableFuture<Campaign> result, long delayMs) {
        if (result.isDone()) return;
        campaigns().getAsync(id).whenComplete((campaign, error) -> {
            if (campaign == null) {
                result.completeExceptionally(error);
                return;
            }
            try {
                progress.accept(campaign);
            } catch (RuntimeException failed) {
                result.completeExceptionally(failed);
                return;
            }
            if (Set.of(CampaignState.DONE, CampaignState.ABORTED).contains(campaign.state())) result.complete(campaign);
            else
                http.config
                        .clock()
                        .schedule(
                                Duration.ofMillis(delayMs),
                                () -> poll(id, progress, result, Math.min(5_000, delayMs * 3 / 2)));
        });
    }

    /** Notifications that the service accepted. */
    public NotificationsApi notifications() {
        return new NotificationsApi(http);
    }

    /** Devices, their push tokens, and their preferences. */
    public DevicesApi devices() {
        return new DevicesApi(http);
    }

    /** Users: presence, items of the notification centre, preferences. */
    public UsersApi users() {
        return new UsersApi(http);
    }

    /** Topics and their retained messages. */
    public TopicsApi topics() {
        return new TopicsApi(http);
    }

    /** Campaigns: one message to many devices. */
    public CampaignsApi campaigns() {
        return new CampaignsApi(http);
    }

    /** Live Activities of iOS, and Live Updates of Android. */
    public ActivitiesApi activities() {
        return new ActivitiesApi(http);
    }

    /** Broadcast channels of APNs. */
    public ChannelsApi channels() {
        return new ChannelsApi(http);
    }

    /** An app, for API keys with the scope {@code admin}: its settings, keys, topic rules, experiments and notices. */
    public AppApi app(String name) {
        return new AppApi(http, name);
    }

    /** Configures a {@link Noroshi}. */
    public static final class Builder {
        private final String url;
        private final Supplier<String> apiKey;
        private Duration timeout = Duration.ofSeconds(30);
        private Duration deadline = Duration.ofSeconds(120);
        private int attempts = 5;
        private @Nullable Supplier<@Nullable TraceContext> trace;
        private @Nullable Consumer<Attempt> observer;
        private @Nullable HttpClient httpClient;
        private Clock clock = Clock.SYSTEM;

        private Builder(String url, Supplier<String> apiKey) {
            URI uri = URI.create(url);
            if (!Set.of("http", "https").contains(String.valueOf(uri.getScheme())) || uri.getHost() == null)
                throw new IllegalArgumentException("url must begin with http:// or https://, and have a host");
            if (uri.getQuery() != null || uri.getFragment() != null)
                throw new IllegalArgumentException("url must have neither a query nor a fragment");
            this.url = url.replaceAll("/+$", "");
            this.apiKey = apiKey;
        }

        /** For each attempt, until its answer was read. Default: 30 seconds. */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /** For all attempts of a request and the time between them. Default: 2 minutes. */
        public Builder deadline(Duration deadline) {
            this.deadline = deadline;
            return this;
        }

        /** How many attempts a request has at most. Default: 5. */
        public Builder attempts(int attempts) {
            this.attempts = attempts;
            return this;
        }

        /**
         * The trace of a request, for example that of the active span. Called on the thread that makes the request or
         * repeats it.
         */
        public Builder trace(@Nullable Supplier<@Nullable TraceContext> trace) {
            this.trace = trace;
            return this;
        }

        /** Gets each attempt, for logs and metrics. Exceptions that it throws are ignored. */
        public Builder onAttempt(@Nullable Consumer<Attempt> observer) {
            this.observer = observer;
            return this;
        }

        /** Carries the requests, for example with a proxy or certificates. */
        public Builder httpClient(@Nullable HttpClient httpClient) {
            this.httpClient = httpClient;
            return this;
        }

        Builder clock(Clock clock) {
            this.clock = clock;
            return this;
        }

        public Noroshi build() {
            RequestOptions.builder()
                    .timeout(timeout)
                    .deadline(deadline)
                    .attempts(attempts)
                    .build(); // checks them
            HttpClient client = httpClient == null
                    ? HttpClient.newBuilder()
                            .connectTimeout(Duration.ofSeconds(10))
                            .build()
                    : httpClient;
            return new Noroshi(new Http(
                    new Http.Config(url, apiKey, timeout, deadline, attempts, trace, observer, client, clock),
                    RequestOptions.NONE));
        }
    }
}
