import io.socket.client.IO;
import io.socket.client.Socket;
import io.socket.engineio.client.transports.WebSocket;
import java.net.URI;
import java.util.Map;

/**
 * A device with the Socket.IO client for Java, over WebSocket only.
 *
 * <pre>
 *   SocketIo URL TOKEN
 * </pre>
 *
 * Prints "connect", "disconnect REASON", "error …" and "notification JSON" as they occur. It ends when its standard input ends.
 */
public final class SocketIo {
  public static void main(String[] arguments) throws Exception {
    var options = IO.Options.builder()
        .setTransports(new String[] {WebSocket.NAME})
        .setAuth(Map.of("token", arguments[1]))
        .setReconnectionDelay(200)
        .setReconnectionDelayMax(1_000)
        .build();
    Socket socket = IO.socket(URI.create(arguments[0]), options);
    socket.on(Socket.EVENT_CONNECT, values -> say("connect"));
    socket.on(Socket.EVENT_DISCONNECT, values -> say("disconnect " + values[0]));
    socket.on(Socket.EVENT_CONNECT_ERROR, values -> say("error " + values[0]));
    socket.on("notification", values -> {
      say("notification " + values[0]);
      // Stored notifications request an acknowledgement.
      if (values[values.length - 1] instanceof io.socket.client.Ack ack) {
        ack.call();
      }
    });
    socket.connect();
    while (System.in.read() >= 0) {
      // until end of input
    }
    socket.close();
    System.exit(0);
  }

  private static synchronized void say(String line) {
    System.out.println(line);
  }
}
