package io.noroshi.client;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.SocketFactory;

/** Counts requests for a WebSocket that were written. OkHttp has no event for them. */
final class UpgradeWatch extends SocketFactory {
    private final AtomicInteger written;

    UpgradeWatch(AtomicInteger written) {
        this.written = written;
    }

    @Override
    public Socket createSocket() {
        return new Socket() {
            @Override
            public OutputStream getOutputStream() throws IOException {
                return new FilterOutputStream(super.getOutputStream()) {
                    @Override
                    public void write(byte[] bytes, int from, int count) throws IOException {
                        out.write(bytes, from, count);
                        if (new String(bytes, from, count, StandardCharsets.ISO_8859_1).contains("Upgrade: websocket"))
                            written.incrementAndGet();
                    }
                };
            }
        };
    }

    @Override
    public Socket createSocket(String host, int port) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Socket createSocket(String host, int port, InetAddress local, int localPort) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Socket createSocket(InetAddress host, int port) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort) {
        throw new UnsupportedOperationException();
    }
}
