package io.noroshi.server;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.noroshi.server.types.Audience;
import io.noroshi.server.types.Campaign;
import io.noroshi.server.types.CampaignChange;
import io.noroshi.server.types.CampaignMessage;
import io.noroshi.server.types.CampaignState;
import io.noroshi.server.types.CategoryPreference;
import io.noroshi.server.types.Device;
import io.noroshi.server.types.DeviceRegistration;
import io.noroshi.server.types.DevicesQuery;
import io.noroshi.server.types.ExperimentChange;
import io.noroshi.server.types.ExperimentState;
import io.noroshi.server.types.ExperimentVariant;
import io.noroshi.server.types.ItemsOfUserQuery;
import io.noroshi.server.types.Key;
import io.noroshi.server.types.ListedNotification;
import io.noroshi.server.types.NewCampaign;
import io.noroshi.server.types.NewExperiment;
import io.noroshi.server.types.NewItem;
import io.noroshi.server.types.NewKey;
import io.noroshi.server.types.NewNotice;
import io.noroshi.server.types.NewPushToken;
import io.noroshi.server.types.Notification;
import io.noroshi.server.types.NotificationsQuery;
import io.noroshi.server.types.Platform;
import io.noroshi.server.types.Preferences;
import io.noroshi.server.types.Presence;
import io.noroshi.server.types.ProblemCode;
import io.noroshi.server.types.Push;
import io.noroshi.server.types.PushMode;
import io.noroshi.server.types.PushService;
import io.noroshi.server.types.PushToken;
import io.noroshi.server.types.QuietHours;
import io.noroshi.server.types.Receipt;
import io.noroshi.server.types.Recipient;
import io.noroshi.server.types.Registered;
import io.noroshi.server.types.Scope;
import io.noroshi.server.types.Shown;
import io.noroshi.server.types.Sound;
import io.noroshi.server.types.To;
import io.noroshi.server.types.TopicRule;
import io.noroshi.server.types.TopicRuleAllow;
import io.noroshi.server.types.TopicRules;
import io.noroshi.server.types.Trace;
import io.noroshi.server.types.Urgency;
import io.noroshi.server.types.When;
import io.noroshi.testing.Node;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The library against a real node, which rejects unknown fields. */
class NodeTest {
    private static Node node;
    private static Noroshi noroshi;

    @BeforeAll
    static void start() throws Exception {
        node = Node.start();
        noroshi = Noroshi.builder(node.url(), Node.KEY).build();
    }

    @AfterAll
    static void stop() {
        node.close();
    }

    private static Shown shown(String title) {
        return Shown.builder().title(title).build();
    }

    private static Registered register(String device, String user, String... topics) {
        return noroshi.devices()
                .register(DeviceRegistration.builder()
                        .device(device)
                        .user(user)
                        .platform(Platform.IOS)
                        .locale("ja-JP")
                        .tags(Map.of("plan", "pro"))
                        .topics(List.of(topics))
                        .build());
    }

    @Test
    void publishesWithEveryKindOfField() {
        register("p1", "publish-user", "publish/topic");
        Notification notification = Notification.builder()
                .to(To.users("publish-user", "nobody"))
                .when(When.STORED)
                .ttl(Duration.ofMinutes(90))
                .urgency(Urgency.VERY_LOW)
                .collapseKey("score")
                .notification(Shown.builder()
                        .title("Goal")
                        .body("2:1")
                        .url("https://example.com/7")
                        .sound("default")
                        .badge("unread")
                        .build())
                .data(Map.of("match", 7, "teams", List.of("a", "b")))
                .push(Push.builder()
                        .mode(PushMode.FALLBACK)
                        .after(Duration.ofMillis(2_500))
                        .build())
                .item(NewItem.builder()
                        .category("sport")
                        .retention(Duration.ofDays(3))
                        .build())
                .build();
        Receipt receipt = noroshi.publish(notification);
        assertNotNull(receipt.id());
        Trace trace = noroshi.notifications().trace(receipt.id(), "p1");
        assertEquals("p1", trace.device());
        assertEquals(receipt.id(), noroshi.notifications().get(receipt.id()).id());
        assertEquals(
                List.of(receipt.id()),
                noroshi
                        .notifications()
                        .list(NotificationsQuery.builder().user("publish-user").build())
                        .stream()
                        .map(ListedNotification::id)
                        .toList());
        assertEquals(1, noroshi.users().itemCounts("publish-user").categories().get("sport"));
        assertEquals(
                receipt.id(),
                noroshi.users()
                        .items(
                                "publish-user",
                                ItemsOfUserQuery.builder().limit(1).build())
                        .firstPage()
                        .items()
                        .get(0)
                        .id());
        noroshi.notifications().cancel(receipt.id());
        noroshi.publish(Notification.builder()
                .to(To.topic("publish/topic"))
                .retain(true)
                .notification(Shown.builder()
                        .title("x")
                        .badge(3)
                        .sound(Sound.builder()
                                .name("chime.caf")
                                .critical(true)
                                .volume(0.5)
                                .build())
                        .build())
                .build());
        assertEquals(
                "x",
                Objects.requireNonNull(
                                noroshi.topics().retained("publish/topic").notification())
                        .get("title"));
        noroshi.topics().deleteRetained("publish/topic");
        assertEquals("publish/topic", noroshi.topics().get("publish/topic").topic());
    }

    @Test
    void theSameIdempotencyKeyIsAcceptedOnce() {
        Notification one = Notification.builder()
                .to(To.users("idem"))
                .notification(shown("1"))
                .build();
        Notification other = Notification.builder()
                .to(To.users("idem"))
                .notification(shown("2"))
                .build();
        Noroshi keyed = noroshi.with(RequestOptions.idempotent("the-key"));
        assertEquals(keyed.publish(one).id(), keyed.publishAsync(one).join().id());
        ProblemException conflict = assertThrows(ProblemException.class, () -> keyed.publish(other));
        assertEquals(409, conflict.status());
        assertEquals(ProblemCode.IDEMPOTENCY_CONFLICT, conflict.code());
        assertNotNull(conflict.requestId());
    }

    @Test
    void batchesHaveAResultForEachLine() {
        List<Notification> lines = IntStream.range(0, 2_500)
                .mapToObj(n -> Notification.builder()
                        .to(n == 1_200 ? To.topic("a/+/b") : To.users("batch-" + n % 10))
                        .when(When.ACTIVE)
                        .data(n)
                        .build())
                .toList();
        List<LineResult<Notification, Receipt>> results =
                noroshi.publishBatch(lines).stream().toList();
        assertEquals(2_500, results.size());
        assertEquals(
                List.of(1_200L),
                results.stream()
                        .filter(one -> !one.isOk())
                        .map(LineResult::index)
                        .toList());
        assertEquals(
                "invalid_field",
                Objects.requireNonNull(results.get(1_200).error()).code());
        List<Noroshi.RegisteredDevice> devices = noroshi
                .registerDevices(List.of(
                        DeviceRegistration.builder().device("batch-1").user("u").build(),
                        DeviceRegistration.builder().device("batch-2").user("u").build()))
                .stream()
                .map(one -> Objects.requireNonNull(one.value()))
                .toList();
        assertEquals(
                List.of("batch-1", "batch-2"),
                devices.stream().map(Noroshi.RegisteredDevice::device).toList());
    }

    @Test
    void devicesUsersAndPreferences() {
        Registered registered = register("d1", "device-user", "a", "b");
        assertTrue(registered.token().length() > 10);
        Device device = noroshi.devices().get("d1");
        assertEquals(Platform.IOS, device.platform());
        assertEquals(Map.of("plan", "pro"), device.tags());
        noroshi.devices()
                .setPushToken(
                        "d1",
                        "alert",
                        NewPushToken.builder()
                                .service(PushService.APNS)
                                .token("ab".repeat(32))
                                .build());
        assertEquals(1, noroshi.devices().pushTokens("d1").pushTokens().size());
        assertTrue(noroshi.devices().get("d1").pushToken() instanceof PushToken.Apns);
        noroshi.devices().removePushToken("d1", "alert");
        Preferences preferences = Preferences.builder()
                .mutedTopics(List.of("b"))
                .categories(
                        Map.of("ads", CategoryPreference.builder().muted(true).build()))
                .quietHours(QuietHours.builder().from("22:00").to("07:00").build())
                .build();
        assertEquals(
                List.of("b"),
                noroshi.users().setPreferences("device-user", preferences).mutedTopics());
        assertEquals(List.of("b"), noroshi.users().preferences("device-user").mutedTopics());
        noroshi.users().clearPreferences("device-user");
        assertEquals(
                Presence.OFFLINE,
                Objects.requireNonNull(noroshi.presence(List.of("device-user")).get("device-user"))
                        .presence());
        noroshi.devices().revoke("d1");
        noroshi.users().revoke("device-user");
        noroshi.devices().delete("d1");
        ProblemException gone =
                assertThrows(ProblemException.class, () -> noroshi.devices().get("d1"));
        assertEquals(ProblemCode.NOT_FOUND, gone.code());
        for (int n = 0; n < 5; n++) register("page-" + n, "page-user");
        assertEquals(
                5,
                noroshi
                        .devices()
                        .list(DevicesQuery.builder().user("page-user").limit(2).build())
                        .stream()
                        .count());
    }

    @Test
    void theNodeAcceptsSignedTokens() throws Exception {
        String token = JwtSigner.hs256(Node.JWT_SECRET).audience("dev").build().sign("jwt-user", "jwt-device");
        HttpResponse<String> me = HttpClient.newHttpClient()
                .send(
                        HttpRequest.newBuilder(URI.create(node.url() + "/v1/me"))
                                .header("Authorization", "Bearer " + token)
                                .build(),
                        HttpResponse.BodyHandlers.ofString());
        assertEquals(200, me.statusCode(), me.body());
        assertTrue(me.body().contains("\"jwt-device\""));
    }

    @Test
    void campaigns() {
        for (int n = 0; n < 3; n++) register("c" + n, "campaign-" + n, "campaign/topic");
        NewCampaign campaign = NewCampaign.builder()
                .name("Version 2")
                .audience(Audience.builder().topic("campaign/topic").build())
                .message(CampaignMessage.builder()
                        .notification(shown("Hello {{name}}"))
                        .ttl(Duration.ofHours(1))
                        .build())
                .variables(Map.of("name", "you"))
                .build();
        assertEquals(3, noroshi.campaigns().count(campaign).devices());
        Campaign sent =
                noroshi.awaitCampaign(noroshi.campaigns().create(campaign).id());
        assertEquals(CampaignState.DONE, sent.state());
        assertEquals(Map.of("no_push_token", 3L), sent.counts());
        Campaign draft = noroshi.campaigns()
                .createDraft(NewCampaign.builder().name("a draft").build());
        assertEquals(CampaignState.DRAFT, draft.state());
        Campaign changed = noroshi.campaigns()
                .change(
                        draft.id(),
                        CampaignChange.builder()
                                .revision(draft.revision())
                                .clearName()
                                .build());
        assertEquals(null, changed.name());
        assertEquals(
                CampaignState.ABORTED, noroshi.campaigns().abort(draft.id()).state());
        noroshi.campaigns().delete(draft.id());
        Campaign upload = noroshi.campaigns()
                .create(NewCampaign.builder()
                        .audience(Audience.builder().upload(true).build())
                        .message(CampaignMessage.builder()
                                .notification(shown("One by one"))
                                .build())
                        .build());
        assertEquals(
                List.of(true, true),
                noroshi
                        .uploadRecipients(
                                upload.id(),
                                List.of(
                                        Recipient.builder().user("campaign-0").build(),
                                        Recipient.builder().user("campaign-1").build()))
                        .stream()
                        .map(LineResult::isOk)
                        .toList());
        noroshi.campaigns().start(upload.id());
        assertEquals(CampaignState.DONE, noroshi.awaitCampaign(upload.id()).state());
        assertTrue(noroshi.campaigns().list().stream().count() >= 2);
    }

    @Test
    void theApp() {
        AppApi app = noroshi.app("dev");
        assertEquals("dev", app.get().name());
        Key key = app.createKey(
                NewKey.builder().name("reader").scopes(List.of(Scope.READ)).build());
        Noroshi reader = Noroshi.builder(node.url(), () -> Objects.requireNonNull(key.key()))
                .build();
        assertEquals(
                ProblemCode.FORBIDDEN,
                assertThrows(
                                ProblemException.class,
                                () -> reader.publish(Notification.builder()
                                        .to(To.everyone())
                                        .data(1)
                                        .build()))
                        .code());
        app.revokeKey(key.id());
        assertEquals(
                401,
                assertThrows(
                                ProblemException.class,
                                () -> reader.topics().list().firstPage())
                        .status());
        app.putExperiment(
                "checkout",
                NewExperiment.builder()
                        .variants(List.of(ExperimentVariant.builder()
                                .name("green")
                                .weight(1)
                                .data(Map.of("colour", "#0a0"))
                                .build()))
                        .build());
        assertEquals(1, app.experiments().stream().count());
        assertEquals(
                ExperimentState.KILLED,
                app.killExperiment(
                                "checkout",
                                ExperimentChange.builder().killed(true).build())
                        .state());
        app.archiveExperiment("checkout");
        TopicRules rules = TopicRules.builder()
                .subscribe(List.of(TopicRule.builder()
                        .topic("#")
                        .allow(TopicRuleAllow.ANYONE)
                        .build()))
                .build();
        assertEquals(
                1, Objects.requireNonNull(app.setTopicRules(rules).subscribe()).size());
        register("permitted", "u");
        noroshi.devices().topicPermission("permitted", "news");
        app.deleteTopicRules();
        app.putNotice(
                "night",
                NewNotice.builder()
                        .startsAt(Instant.now().plusSeconds(3_600))
                        .endsAt(Instant.now().plusSeconds(7_200))
                        .notification(shown("Maintenance"))
                        .build());
        assertEquals("night", app.notice("night").name());
        app.endNotice("night");
        assertTrue(!app.quotas().quotas().isEmpty());
        assertTrue(app.pushCredentials().credentials().isEmpty());
    }
}
