//! A server on its own thread, which stops when dropped, and plain HTTP/1.1 on loopback.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Work on a thread of its own until dropped.
pub(crate) struct Background {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Background {
    /// `work` is prepared inside the thread's runtime, so that it can register sockets. A single thread
    /// leaves the other cores to the measured program.
    pub(crate) fn start<W>(name: &str, work: impl FnOnce() -> io::Result<W>) -> io::Result<Self>
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = {
            let _inside = runtime.enter();
            work()?
        };
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = work => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported.
            let _ = thread.join();
        }
    }
}

/// Port 0: any free port.
pub(crate) fn bind(port: u16) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves HTTP/1.1. An error of `answer` closes the connection.
pub(crate) async fn serve<A, F, E>(listener: TcpListener, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Full<Bytes>>, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let service = service_fn(answer.clone());
        tokio::spawn(async move {
            let http = hyper::server::conn::http1::Builder::new();
            // Fails only if the client disconnects.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
