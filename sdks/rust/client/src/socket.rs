//! The native protocol over a WebSocket.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as Frame};
use tower_service::Service;

use crate::error::BoxError;
use crate::http::{Connector, retry_after_of};
use crate::protocol::Ended;
use crate::shared::{FRAME_MAX, Shared};
use crate::throttle::Throttle;

/// Frames that wait for the network. The machine collects what it sends, so they are few.
const FRAMES_MAX: usize = 1_000;
/// How long a connection that ends may take to send what waits.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(5);
const READ_BUFFER: usize = 16 << 10;

type Io = TokioIo<<Connector as Service<http::Uri>>::Response>;
type Socket = WebSocketStream<Io>;

/// What a task of a connection reads. Both senders belong to the link.
pub(crate) struct Outgoing {
    frames: mpsc::Receiver<String>,
    hung_up: oneshot::Receiver<()>,
}

/// The other ends of `Outgoing`. Dropping them ends the connection after what was sent.
pub(crate) struct Frames {
    frames: mpsc::Sender<String>,
    /// Dropping it hangs up.
    _hang_up: oneshot::Sender<()>,
}

impl Frames {
    /// Returns false if the network takes nothing.
    pub(crate) fn send(&self, frame: String) -> bool {
        self.frames.try_send(frame).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.capacity() == FRAMES_MAX
    }
}

pub(crate) fn frames() -> (Frames, Outgoing) {
    let (sender, receiver) = mpsc::channel(FRAMES_MAX);
    let (hang_up, hung_up) = oneshot::channel();
    (Frames { frames: sender, _hang_up: hang_up }, Outgoing { frames: receiver, hung_up })
}

/// Reports everything that happens to the connection to the machine.
pub(crate) async fn run(shared: Arc<Shared>, attempt: u64, outgoing: Outgoing) {
    let end = match open(&shared).await {
        Ok(socket) => {
            shared.opened(attempt);
            converse(&shared, attempt, socket, outgoing).await
        }
        Err(end) => end,
    };
    shared.input(|machine, now| machine.ended(now, attempt, end));
}

async fn open(shared: &Shared) -> Result<Socket, Ended> {
    let lost = |_: BoxError| Ended::default();
    let query: Vec<_> = shared.app.as_deref().map(|app| ("app", app)).into_iter().collect();
    let to = shared.base.http("/v1/connect", &query).parse().map_err(|error| lost(Box::new(error)))?;
    let mut connector = shared.http.connector.clone();
    std::future::poll_fn(|context: &mut Context<'_>| -> Poll<Result<(), _>> {
        connector.poll_ready(context)
    })
    .await
    .map_err(|error| lost(error.into()))?;
    let stream = connector.call(to).await.map_err(|error| lost(error.into()))?;
    let address =
        shared.base.web_socket("/v1/connect", &query).parse().map_err(|error| lost(Box::new(error)))?;
    let request = ClientRequestBuilder::new(address).with_sub_protocol("noroshi.v1"); // F1
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(FRAME_MAX))
        .max_frame_size(Some(FRAME_MAX));
    let handshake = tokio_tungstenite::client_async_with_config(request, TokioIo::new(stream), Some(config));
    match handshake.await {
        Ok((socket, _)) => Ok(socket),
        Err(SocketError::Http(response)) => {
            let retry_after = retry_after_of(response.headers(), shared.clock.now().unix);
            Err(Ended { retry_after, ..Ended::default() })
        }
        Err(_) => Err(Ended::default()),
    }
}

async fn converse(shared: &Arc<Shared>, attempt: u64, socket: Socket, outgoing: Outgoing) -> Ended {
    let Outgoing { mut frames, hung_up } = outgoing;
    let (mut sink, stream) = socket.split();
    let write = async {
        while let Some(frame) = frames.recv().await {
            sink.send(Frame::text(frame)).await?;
        }
        // The machine hung up.
        let close = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        sink.send(Frame::Close(Some(close))).await
    };
    let too_late = async {
        let _ = hung_up.await;
        tokio::time::sleep(LAST_WRITE_TIMEOUT).await;
    };
    let read = read(shared, attempt, stream);
    tokio::pin!(read, write, too_late);
    let mut is_written = false;
    loop {
        tokio::select! {
            end = &mut read => return end,
            () = &mut too_late => return Ended::default(),
            result = &mut write, if !is_written => match result {
                // The peer's close frame follows.
                Ok(()) => is_written = true,
                // What has arrived says why.
                Err(_) => return tokio::time::timeout(LAST_WRITE_TIMEOUT, &mut read).await.unwrap_or_default(),
            },
        }
    }
}

fn read(
    shared: &Arc<Shared>,
    attempt: u64,
    mut stream: SplitStream<Socket>,
) -> impl Future<Output = Ended> + Send {
    let shared = Arc::clone(shared);
    async move {
        let mut throttle = Throttle::default();
        let mut code = None;
        while let Some(frame) = stream.next().await {
            match frame {
                Ok(Frame::Text(text)) => {
                    shared.input(|machine, now| machine.frame(now, attempt, Some(&text)));
                }
                Ok(Frame::Binary(_)) => shared.input(|machine, now| machine.frame(now, attempt, None)),
                // Pings of the WebSocket have their answers from the library, and are no frames (H1).
                Ok(Frame::Close(frame)) => code = frame.map(|frame| frame.code.into()),
                Ok(_) => continue,
                Err(_) => break,
            }
            throttle.wait(&shared).await;
        }
        Ended { code, ..Ended::default() }
    }
}
