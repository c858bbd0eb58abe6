//! A connector that counts requests whose head has been written: a connection that is cancelled before leaves no trace at the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

#[derive(Clone)]
pub(crate) struct Probe<C> {
    inner: C,
    pub(crate) heads: Arc<AtomicUsize>,
}

impl<C> Probe<C> {
    pub(crate) fn new(inner: C) -> Self {
        Self { inner, heads: Arc::default() }
    }
}

impl<C: Service<Uri>> Service<Uri> for Probe<C>
where
    C::Future: Send + 'static,
{
    type Response = Probed<C::Response>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, heads) = (self.inner.call(to), Arc::clone(&self.heads));
        Box::pin(async move { Ok(Probed { inner: connecting.await?, heads }) })
    }
}

pub(crate) struct Probed<S> {
    inner: S,
    heads: Arc<AtomicUsize>,
}

impl<S> Probed<S> {
    fn count(&self, written: &[u8]) {
        let needle = b" HTTP/1.1\r\n";
        let heads = written.windows(needle.len()).filter(|window| window == needle).count();
        self.heads.fetch_add(heads, Ordering::SeqCst);
    }
}

impl<S: Read + Unpin> Read for Probed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

/// Not vectored: each write is one slice.
impl<S: Write + Unpin> Write for Probed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(context, buffer);
        if let Poll::Ready(Ok(written)) = result {
            self.count(&buffer[..written]);
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S: Connection> Connection for Probed<S> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}
