import com.eatthepath.pushy.apns.ApnsClient;
import com.eatthepath.pushy.apns.ApnsClientBuilder;
import com.eatthepath.pushy.apns.auth.ApnsSigningKey;
import com.eatthepath.pushy.apns.server.BenchmarkApnsServerBuilder;
import com.eatthepath.pushy.apns.server.MockApnsServerBuilder;
import com.eatthepath.pushy.apns.server.PushNotificationHandler;
import com.eatthepath.pushy.apns.server.PushNotificationHandlerFactory;
import com.eatthepath.pushy.apns.server.RejectedNotificationException;
import com.eatthepath.pushy.apns.server.RejectionReason;
import com.eatthepath.pushy.apns.util.SimpleApnsPushNotification;
import io.netty.buffer.ByteBuf;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.handler.codec.http2.Http2Headers;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.PublicKey;
import java.security.Signature;
import java.security.spec.X509EncodedKeySpec;
import java.util.Base64;
import java.util.UUID;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;

/**
 * pushy's APNs server, and its client as a benchmark baseline.
 *
 * <pre>
 *   Pushy benchmark PORT CERT KEY           accepts everything as fast as it can, checks nothing
 *   Pushy strict PORT CERT KEY PUBLIC TOPIC checks every header, the provider token and the payload
 *   Pushy client PORT CA P8 COUNT CONNECTIONS  sends COUNT pushes with pushy's client and prints rate and CPU
 * </pre>
 *
 * The servers print "listening PORT" and end when their standard input ends; the strict one then prints what it
 * accepted and rejected. PORT 0 is not supported, because pushy does not report the assigned port.
 */
public final class Pushy {
  private static final int STREAMS = 1_000;

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[1]);
    switch (arguments[0]) {
      case "benchmark" -> benchmark(port, new File(arguments[2]), new File(arguments[3]));
      case "strict" -> strict(port, new File(arguments[2]), new File(arguments[3]), Path.of(arguments[4]), arguments[5]);
      case "client" -> client(port, new File(arguments[2]), new File(arguments[3]), Integer.parseInt(arguments[4]), Integer.parseInt(arguments[5]));
      default -> throw new IllegalArgumentException(arguments[0]);
    }
  }

  private static void benchmark(int port, File cert, File key) throws Exception {
    var server = new BenchmarkApnsServerBuilder()
        .setServerCredentials(cert, key, null)
        .setMaxConcurrentStreams(STREAMS)
        .setUseAlpn(true)
        .setEventLoopGroup(new NioEventLoopGroup(2))
        .build();
    server.start(port).get();
    serveUntilTheEnd(port);
    System.exit(0);
  }

  private static void strict(int port, File cert, File key, Path publicKey, String topic) throws Exception {
    String pem = Files.readString(publicKey).replaceAll("-----[A-Z ]+-----", "").replaceAll("\\s", "");
    PublicKey verifies = KeyFactory.getInstance("EC").generatePublic(new X509EncodedKeySpec(Base64.getDecoder().decode(pem)));
    AtomicLong taken = new AtomicLong();
    AtomicLong refused = new AtomicLong();
    PushNotificationHandlerFactory factory = session -> new Strict(verifies, topic, taken, refused);
    var server = new MockApnsServerBuilder()
        .setServerCredentials(cert, key, null)
        .setMaxConcurrentStreams(STREAMS)
        .setUseAlpn(true)
        .setHandlerFactory(factory)
        .build();
    server.start(port).get();
    serveUntilTheEnd(port);
    System.out.println("taken " + taken.get() + " refused " + refused.get());
    System.exit(0);
  }

  private static void serveUntilTheEnd(int port) throws Exception {
    System.out.println("listening " + port);
    System.out.flush();
    while (System.in.read() >= 0) {
      // Waits for the end of the input.
    }
  }

  /** pushy's validating handler accepts ES256 signatures in DER only; RFC 7518 concatenates the two numbers. */
  private static final class Strict implements PushNotificationHandler {
    private final PublicKey key;
    private final String topic;
    private final AtomicLong taken;
    private final AtomicLong refused;

    Strict(PublicKey key, String topic, AtomicLong taken, AtomicLong refused) {
      this.key = key;
      this.topic = topic;
      this.taken = taken;
      this.refused = refused;
    }

    @Override
    public void handlePushNotification(Http2Headers headers, ByteBuf payload) throws RejectedNotificationException {
      try {
        check(headers, payload);
        taken.incrementAndGet();
      } catch (RejectedNotificationException refusal) {
        refused.incrementAndGet();
        throw refusal;
      }
    }

    private void check(Http2Headers headers, ByteBuf payload) throws RejectedNotificationException {
      if (!"POST".contentEquals(headers.method())) {
        throw new RejectedNotificationException(RejectionReason.METHOD_NOT_ALLOWED);
      }
      if (!headers.path().toString().matches("/3/device/([0-9a-f]{2}){8,}")) {
        throw new RejectedNotificationException(RejectionReason.BAD_DEVICE_TOKEN);
      }
      if (!topic.contentEquals(text(headers, "apns-topic", RejectionReason.MISSING_TOPIC))) {
        throw new RejectedNotificationException(RejectionReason.BAD_TOPIC);
      }
      String type = text(headers, "apns-push-type", RejectionReason.INVALID_PUSH_TYPE);
      String priority = text(headers, "apns-priority", RejectionReason.BAD_PRIORITY);
      if (!priority.matches("10|5|1") || type.equals("background") && !priority.equals("5")) {
        throw new RejectedNotificationException(RejectionReason.BAD_PRIORITY);
      }
      if (!text(headers, "apns-expiration", RejectionReason.BAD_EXPIRATION_DATE).matches("[0-9]+")) {
        throw new RejectedNotificationException(RejectionReason.BAD_EXPIRATION_DATE);
      }
      try {
        UUID.fromString(text(headers, "apns-id", RejectionReason.BAD_MESSAGE_ID));
      } catch (IllegalArgumentException notAnId) {
        throw new RejectedNotificationException(RejectionReason.BAD_MESSAGE_ID);
      }
      String collapse = headers.get("apns-collapse-id") == null ? "" : headers.get("apns-collapse-id").toString();
      if (collapse.getBytes(StandardCharsets.UTF_8).length > 64) {
        throw new RejectedNotificationException(RejectionReason.BAD_COLLAPSE_ID);
      }
      if (payload == null || payload.readableBytes() == 0) {
        throw new RejectedNotificationException(RejectionReason.PAYLOAD_EMPTY);
      }
      if (payload.readableBytes() > 4096) {
        throw new RejectedNotificationException(RejectionReason.PAYLOAD_TOO_LARGE);
      }
      if (!payload.toString(StandardCharsets.UTF_8).contains("\"aps\"")) {
        throw new RejectedNotificationException(RejectionReason.PAYLOAD_EMPTY);
      }
      checkToken(text(headers, "authorization", RejectionReason.MISSING_PROVIDER_TOKEN));
    }

    private void checkToken(String authorization) throws RejectedNotificationException {
      try {
        String[] parts = authorization.replaceFirst("^bearer ", "").split("\\.");
        Signature signature = Signature.getInstance("SHA256withECDSAinP1363Format");
        signature.initVerify(key);
        signature.update((parts[0] + "." + parts[1]).getBytes(StandardCharsets.US_ASCII));
        if (!signature.verify(Base64.getUrlDecoder().decode(parts[2]))) {
          throw new RejectedNotificationException(RejectionReason.INVALID_PROVIDER_TOKEN);
        }
        String claims = new String(Base64.getUrlDecoder().decode(parts[1]), StandardCharsets.UTF_8);
        long issued = Long.parseLong(claims.replaceAll(".*\"iat\":([0-9]+).*", "$1"));
        long age = System.currentTimeMillis() / 1000 - issued;
        if (age < -60 || age > 3600) {
          throw new RejectedNotificationException(RejectionReason.EXPIRED_PROVIDER_TOKEN);
        }
      } catch (RejectedNotificationException refusal) {
        throw refusal;
      } catch (Exception broken) {
        throw new RejectedNotificationException(RejectionReason.INVALID_PROVIDER_TOKEN);
      }
    }

    private static String text(Http2Headers headers, String name, RejectionReason missing) throws RejectedNotificationException {
      CharSequence value = headers.get(name);
      if (value == null) {
        throw new RejectedNotificationException(missing);
      }
      return value.toString();
    }
  }

  private static void client(int port, File ca, File p8, int count, int connections) throws Exception {
    ApnsClient client = new ApnsClientBuilder()
        .setApnsServer("localhost", port)
        .setTrustedServerCertificateChain(ca)
        .setSigningKey(ApnsSigningKey.loadFromPkcs8File(p8, "DEF123GHIJ", "ABC123DEFG"))
        .setConcurrentConnections(connections)
        .build();
    String payload = "{\"aps\":{\"alert\":{\"title\":\"Breaking news\",\"body\":\"Something has happened somewhere\"}},\"id\":\"01a\"}";
    // The second run is measured, after the virtual machine has compiled the code.
    for (String name : new String[] {"warm-up", "measured"}) {
      Semaphore room = new Semaphore(connections * STREAMS);
      AtomicLong failed = new AtomicLong();
      var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
      long cpu = system.getProcessCpuTime();
      long started = System.nanoTime();
      for (int i = 0; i < count; i++) {
        room.acquire();
        String token = String.format("%064x", i + 1);
        client.sendNotification(new SimpleApnsPushNotification(token, "com.example.app", payload))
            .whenComplete((answer, error) -> {
              if (error != null || !answer.isAccepted()) {
                failed.incrementAndGet();
              }
              room.release();
            });
      }
      room.acquire(connections * STREAMS);
      double seconds = (System.nanoTime() - started) / 1e9;
      double cpuMicros = (system.getProcessCpuTime() - cpu) / 1e3 / count;
      System.out.printf("%s: %d pushes, %.0f/s, %.1f us CPU each, %d failed%n", name, count, count / seconds, cpuMicros, failed.get());
    }
    client.close().get();
    System.exit(0);
  }
}
