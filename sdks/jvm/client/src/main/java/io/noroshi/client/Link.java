package io.noroshi.client;

import java.io.IOException;
import okhttp3.Call;
import okhttp3.Callback;
import okhttp3.HttpUrl;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;
import okhttp3.ResponseBody;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;
import okio.BufferedSource;
import okio.ByteString;
import org.jspecify.annotations.Nullable;

/** A connection: a WebSocket or a stream of server-sent events. */
interface Link {
    void send(String frame);

    /** Ends it. {@link Events#gone} follows, and nothing else that counts. */
    void close();

    /** What happens to a link. The methods are called by one thread at a time. */
    interface Events {
        /** The handshake is complete. */
        void opened();

        void heard();

        void frame(String text);

        void binary();

        void ended(Machine.End end);

        /** The socket is closed. */
        void gone();
    }

    /** The native protocol over a WebSocket. */
    final class Socket extends WebSocketListener implements Link {
        private final Events events;
        private final Clock clock;
        private final WebSocket socket;
        private volatile boolean isOpen;

        Socket(OkHttpClient http, HttpUrl url, Clock clock, Events events) {
            this.events = events;
            this.clock = clock;
            Request request = new Request.Builder()
                    .url(url)
                    .header("Sec-WebSocket-Protocol", "noroshi.v1")
                    .build();
            socket = http.newWebSocket(request, this);
        }

        @Override
        public void send(String frame) {
            socket.send(frame);
        }

        @Override
        public void close() {
            if (isOpen) socket.close(1000, null);
            else socket.cancel();
        }

        @Override
        public void onOpen(WebSocket socket, Response response) {
            isOpen = true;
            events.opened();
        }

        @Override
        public void onMessage(WebSocket socket, String text) {
            events.frame(text);
        }

        @Override
        public void onMessage(WebSocket socket, ByteString bytes) {
            events.binary();
        }

        @Override
        public void onClosing(WebSocket socket, int code, String reason) {
            events.ended(Machine.End.code(code));
            socket.close(1000, null);
        }

        @Override
        public void onClosed(WebSocket socket, int code, String reason) {
            events.gone();
        }

        @Override
        public void onFailure(WebSocket socket, Throwable cause, @Nullable Response response) {
            Long retryAfter =
                    response == null ? null : Backoff.retryAfterMs(response.header("Retry-After"), clock.nowMs());
            events.ended(new Machine.End(0, 0, null, retryAfter));
            events.gone();
        }
    }

    /** Server-sent events. The token is in a header, not in the address. */
    final class Stream implements Link, Callback {
        /** A line larger than this is not from the service. */
        private static final long LINE_BYTES_MAX = 16 << 20;

        private static final long PROBLEM_BYTES_MAX = 64 << 10;

        private final Events events;
        private final Clock clock;
        private final Call call;

        Stream(OkHttpClient http, HttpUrl url, String token, @Nullable String lastEventId, Clock clock, Events events) {
            this.events = events;
            this.clock = clock;
            Request.Builder request = new Request.Builder()
                    .url(url)
                    .header("Accept", "text/event-stream")
                    .header("Accept-Encoding", "identity")
                    .header("Cache-Control", "no-store")
                    .header("Authorization", "Bearer " + token);
            if (lastEventId != null) request.header("Last-Event-ID", lastEventId);
            call = http.newCall(request.build());
            call.enqueue(this);
        }

        @Override
        public void send(String frame) {
            throw new IllegalStateException("a stream has one direction");
        }

        @Override
        public void close() {
            call.cancel();
        }

        @Override
        public void onFailure(Call call, IOException cause) {
            events.ended(Machine.End.LOST);
            events.gone();
        }

        @Override
        public void onResponse(Call call, Response response) {
            Machine.End end = Machine.End.LOST;
            try (ResponseBody body = response.body()) {
                if (body == null || !response.isSuccessful()) end = refused(response);
                else read(body.source());
            } catch (IOException lost) {
                // The end of the connection, which has no reason.
            }
            events.ended(end);
            events.gone();
        }

        private Machine.End refused(Response response) throws IOException {
            String code = null;
            try {
                code = Fields.parse(response.peekBody(PROBLEM_BYTES_MAX).string())
                        .text("code");
            } catch (Json.SyntaxError pageOfAProxy) {
                // It has no code.
            }
            return new Machine.End(
                    0, response.code(), code, Backoff.retryAfterMs(response.header("Retry-After"), clock.nowMs()));
        }

        private void read(BufferedSource source) throws IOException {
            events.opened();
            StringBuilder data = new StringBuilder();
            boolean hasData = false;
            while (true) {
                String line = source.readUtf8LineStrict(LINE_BYTES_MAX);
                events.heard();
                if (line.startsWith("data:")) {
                    if (hasData) data.append('\n');
                    data.append(line, line.startsWith("data: ") ? 6 : 5, line.length());
                    hasData = true;
                    if (data.length() > LINE_BYTES_MAX) return;
                } else if (line.isEmpty() && hasData) {
                    events.frame(data.toString());
                    data.setLength(0);
                    hasData = false;
                }
            }
        }
    }
}
