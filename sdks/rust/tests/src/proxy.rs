//! A TCP proxy that simulates faults of a network.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::node::free_port;

/// Forwards connections to a port of this machine.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    target: u16,
    frozen: watch::Sender<bool>,
    /// Changes when all connections break.
    broken: watch::Sender<u64>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    /// A proxy to a port.
    pub async fn start(target: u16) -> io::Result<Arc<Self>> {
        let proxy = Arc::new(Self {
            port: free_port(),
            target,
            frozen: watch::Sender::new(false),
            broken: watch::Sender::new(0),
            listening: Mutex::new(None),
        });
        proxy.listen().await?;
        Ok(proxy)
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn listen(&self) -> io::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await?;
        let (target, frozen, broken) = (self.target, self.frozen.subscribe(), self.broken.subscribe());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (frozen, mut broken) = (frozen.clone(), broken.clone());
                tokio::spawn(async move {
                    broken.borrow_and_update();
                    tokio::select! {
                        () = connection(client, target, frozen) => {}
                        _ = broken.changed() => {}
                    }
                });
            }
        });
        *self.listening.lock().await = Some(task);
        Ok(())
    }

    /// Loses everything from now on. Connections stay; new ones are accepted and never answered.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Breaks all connections and refuses new ones.
    pub async fn cut(&self) {
        if let Some(task) = self.listening.lock().await.take() {
            task.abort();
            let _ = task.await; // the port is free afterwards
        }
        self.break_all();
    }

    fn break_all(&self) {
        self.broken.send_modify(|count| *count += 1);
    }

    /// Restores everything. Frozen connections break, as after a long loss of packets.
    pub async fn heal(&self) -> io::Result<()> {
        if self.frozen.send_replace(false) {
            self.break_all();
            return Ok(());
        }
        self.listen().await
    }
}

async fn connection(client: TcpStream, target: u16, frozen: watch::Receiver<bool>) {
    if *frozen.borrow() {
        return std::future::pending().await;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        () = forward(client_read, server_write, frozen.clone()) => {}
        () = forward(server_read, client_write, frozen) => {}
    }
}

async fn forward(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    frozen: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 32 << 10];
    loop {
        let read = from.read(&mut buffer).await;
        if *frozen.borrow() {
            // What arrived is lost.
            return std::future::pending().await;
        }
        match read {
            Ok(length @ 1..) if to.write_all(&buffer[..length]).await.is_ok() => {}
            _ => return,
        }
    }
}
