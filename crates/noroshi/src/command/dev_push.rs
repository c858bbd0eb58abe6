//! `noroshi dev-push`: local push services, to try push without accounts. They are the strict fakes of the tests. Prints
//! accepted pushes.
//!
//! Keys and certificates are stored in a folder, so that a node with the credentials works with the next run. Devices are not
//! stored: Web Push subscriptions end with the program.

mod guide;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use noroshi_testkit::{Config, Fakes, Received, Service};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::output;

/// Pushes buffered for the terminal. A slower terminal misses some, and their number is printed.
const LINES_MAX: usize = 10_000;
const TITLE_CHARS_MAX: usize = 60;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts APNs (production and sandbox, with their hosts for channels), FCM with its token endpoint, a Web Push service, a
provider behind a webhook, Huawei Push Kit, and WNS with its token endpoint on 127.0.0.1, and prints the commands that
make a node use them. Every push is checked as the real services do: headers, tokens, sizes,
encryption; a wrong one is refused in their words. The folder gets:

  ca.pem                    what a node has to trust: noroshi serve --set egress.ca_file=…/ca.pem
  AuthKey_DEVKEY0001.p8     APNs' signing key
  service-account.json      FCM's service account
  hms-account.json          Huawei's service account
  webhook.secret            the secret that signs batches for the provider
  wns.secret                the client secret of WNS
  vapid-private-key.txt     the key of Web Push
  devices.json              push tokens of devices that exist there

The control port makes tokens and trouble, as JSON over HTTP:

  curl 127.0.0.1:29190/info
  curl 127.0.0.1:29190/counts
  curl 127.0.0.1:29190/received?service=apns
  curl 127.0.0.1:29190/tokens -d '{\"service\":\"webpush\",\"count\":2}'
  curl 127.0.0.1:29190/behave -d '{\"service\":\"apns\",\"next\":[{\"count\":5,\"status\":503}]}'
  curl 127.0.0.1:29190/behave -d '{\"latency\":{\"log_normal\":{\"median_ms\":300,\"p99_ms\":1500}}}'
  curl 127.0.0.1:29190/behave -d '{\"service\":\"fcm\",\"go_away\":true}'
  curl 127.0.0.1:29190/behave -d '{\"reset\":true}'")]
pub(crate) struct Arguments {
    /// Folder for keys and certificates; created if missing
    #[arg(long, value_name = "DIR", default_value = "./noroshi-dev-push")]
    folder: PathBuf,
    /// Port of APNs, production; 0: any free port, also below
    #[arg(long, value_name = "PORT", default_value_t = 29_197)]
    apns: u16,
    /// Port of APNs, sandbox
    #[arg(long, value_name = "PORT", default_value_t = 29_196)]
    apns_sandbox: u16,
    /// Port on which APNs' channels are managed, production
    #[arg(long, value_name = "PORT", default_value_t = 29_296)]
    apns_channels: u16,
    /// Port on which APNs' channels are managed, sandbox
    #[arg(long, value_name = "PORT", default_value_t = 29_295)]
    apns_sandbox_channels: u16,
    /// Port of FCM
    #[arg(long, value_name = "PORT", default_value_t = 29_443)]
    fcm: u16,
    /// Port of FCM's token endpoint
    #[arg(long, value_name = "PORT", default_value_t = 29_444)]
    oauth: u16,
    /// Port of the Web Push service
    #[arg(long, value_name = "PORT", default_value_t = 29_445)]
    webpush: u16,
    /// Port of the provider behind a webhook
    #[arg(long, value_name = "PORT", default_value_t = 29_446)]
    webhook: u16,
    /// Port of Huawei Push Kit
    #[arg(long, value_name = "PORT", default_value_t = 29_447)]
    hms: u16,
    /// Port of WNS
    #[arg(long, value_name = "PORT", default_value_t = 29_448)]
    wns: u16,
    /// Port of WNS' token endpoint
    #[arg(long, value_name = "PORT", default_value_t = 29_449)]
    wns_login: u16,
    /// Port of the control API, which lists pushes and accepts commands
    #[arg(long, value_name = "PORT", default_value_t = 29_190)]
    control: u16,
    /// Reject tokens that were not created by the control port [default: accept any well-formed token]
    #[arg(long)]
    known_tokens_only: bool,
    /// Reject provider tokens renewed within 20 minutes [default: accept, so that a node may restart at any time]
    #[arg(long)]
    strict_renewal: bool,
    /// Print the services and each push as lines of JSON
    #[arg(long)]
    json: bool,
    /// Record pushes, but do not print them
    #[arg(long)]
    quiet: bool,
    /// Only count pushes, for benchmarks
    #[arg(long)]
    light: bool,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let in_folder = |error| Failure::failed(format!("{}: {error}", self.folder.display()));
        std::fs::create_dir_all(&self.folder).map_err(in_folder)?;
        let folder = self.folder.canonicalize().map_err(in_folder)?;
        let (mut interrupt, mut terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let (lines, received) = sync_channel(LINES_MAX);
        let missed = Arc::new(AtomicU64::new(0));
        let fakes = Fakes::start_with(Config {
            folder: Some(folder.clone()),
            // In the order of `Service::ALL`.
            ports: [
                self.apns,
                self.apns_sandbox,
                self.apns_channels,
                self.apns_sandbox_channels,
                self.fcm,
                self.oauth,
                self.webpush,
                self.webhook,
                self.hms,
                self.wns,
                self.wns_login,
            ],
            control_port: self.control,
            light: self.light,
            any_token: !self.known_tokens_only,
            any_renewal: !self.strict_renewal,
            listener: (!self.light && !self.quiet).then(|| listener(lines, missed.clone())),
        })
        .map_err(|error| Failure::failed(error.to_string()))?;
        let devices = guide::write(&fakes, &folder)?;
        match self.json {
            true => output::line(fakes.info())?,
            false => output::line(guide::text(&fakes, &folder, &devices))?,
        }
        let json = self.json;
        let printer = std::thread::spawn(move || print(&received, json));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        let counts = Service::ALL.map(|service| (service, fakes.counts(service)));
        drop(fakes); // closes the channel of lines
        printer.join().map_err(|_| Failure::failed("the printing thread failed"))??;
        for (service, counts) in counts.iter().filter(|(_, counts)| counts.requests > 0) {
            let (accepted, requests) = (counts.accepted, counts.requests);
            eprintln!("{}: {accepted} of {requests} requests accepted", service.as_str());
        }
        // The only hint if a node cannot connect, for example because it does not trust the certificate.
        for (service, counts) in counts.iter().filter(|(_, counts)| counts.connections.failed > 0) {
            eprintln!("{}: {} connections failed", service.as_str(), counts.connections.failed);
        }
        match missed.load(Ordering::Relaxed) {
            0 => {}
            missed => eprintln!("{missed} pushes were not printed because the terminal is too slow"),
        }
        Ok(())
    }
}

fn listen(kind: SignalKind) -> Result<tokio::signal::unix::Signal, Failure> {
    signal(kind).map_err(|error| Failure::failed(format!("signals: {error}")))
}

fn listener(lines: SyncSender<Received>, missed: Arc<AtomicU64>) -> noroshi_testkit::Listener {
    Arc::new(move |received: &Received| {
        if lines.try_send(received.clone()).is_err() {
            missed.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn print(received: &Receiver<Received>, json: bool) -> Result<(), Failure> {
    while let Ok(received) = received.recv() {
        match json {
            true => output::line(json!(received))?,
            false => output::line(shown(&received))?,
        }
    }
    Ok(())
}

/// `apns     200                 8f3a5c07…  "Title"  123 bytes  apns-priority=10 …`
fn shown(received: &Received) -> String {
    let verdict = match received.reason.as_str() {
        "" => received.status.to_string(),
        reason => format!("{} {reason}", received.status),
    };
    let token: String = received.token.chars().take(12).collect();
    let title: String = received.title.iter().flat_map(|title| title.chars()).take(TITLE_CHARS_MAX).collect();
    let headers: Vec<String> = received
        .headers
        .iter()
        .filter(|(name, _)| {
            let shown = ["ttl", "urgency", "topic", "webhook-id", "push-type"];
            name.starts_with("apns-") || name.starts_with("x-wns-") || shown.contains(&name.as_str())
        })
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let line = format!(
        "{:12} {verdict:4} {token}  {title:?}  {} bytes  {}",
        received.service.as_str(),
        received.bytes,
        headers.join(" ")
    );
    output::clean(line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_printed_as_one_line_without_control_characters() {
        let received = Received {
            at_ms: 0,
            service: Service::Apns,
            token: "ab".repeat(32),
            id: None,
            title: Some("Hello\u{7}".to_owned()),
            payload: None,
            headers: [("apns-topic", "a.b"), ("user-agent", "n")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            bytes: 12,
            status: 400,
            reason: "BadTopic".to_owned(),
            connection: 1,
        };
        let line = shown(&received);
        assert!(
            line.contains("400 BadTopic abababababab  ") && line.contains("12 bytes  apns-topic=a.b"),
            "{line}"
        );
        assert!(!line.contains('\u{7}') && !line.contains("user-agent"), "{line}");
    }
}
