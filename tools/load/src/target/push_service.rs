//! The receiver of pushes: the strict fakes as a process (our own executable as `noroshi dev-push --light`),
//! controlled over its control port, or a foreign server.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use noroshi_testkit::keys;
use noroshi_testkit::record::Counts;
use noroshi_types::PushService as Service;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::args::Push;
use crate::http::{Client, Origin, Request};
use crate::process::Process;
use crate::server::temporary_folder;

pub(crate) struct PushService {
    pub(crate) service: Service,
    /// The credential for it, in the format of the admin API.
    pub(crate) credential: Value,
    /// The certificates to trust, PEM.
    pub(crate) ca: String,
    /// The file with these certificates.
    pub(crate) ca_file: Option<PathBuf>,
    /// `None` if unknown.
    pub(crate) process: Option<Process>,
    control: Option<Client>,
    name: String,
    /// Stopped when dropped.
    own: Option<Own>,
}

/// The start message of a fake.
#[derive(Deserialize)]
struct Info {
    control: String,
    ca: String,
    ca_file: Option<PathBuf>,
    credentials: serde_json::Map<String, Value>,
}

impl PushService {
    /// Starts the fakes in a process of their own.
    pub(crate) fn start(of: Service) -> Result<Self, Error> {
        let folder = temporary_folder()?;
        let (own, info) = Own::start(&folder)?;
        let process = own.process();
        let mut service = Self::of(of, &info)?;
        service.process = process;
        service.name = format!("fake {} (noroshi dev-push --light)", label(of));
        service.own = Some(own);
        Ok(service)
    }

    /// Connects to a running fake of APNs.
    pub(crate) fn attach(control: &str) -> Result<Self, Error> {
        let mut client = Client::new(Origin::parse(control)?)?;
        let info = client.expect_success(Request::json("GET", "/info", ""), b"")?;
        let mut service = Self::of(Service::Apns, &String::from_utf8_lossy(&info.body))?;
        service.name = format!("fake APNs at {control}");
        Ok(service)
    }

    fn of(service: Service, info: &str) -> Result<Self, Error> {
        let malformed = |_| Error::Malformed { request: "/info".to_owned(), what: "it is not from a fake" };
        let Info { control, ca, ca_file, mut credentials } = serde_json::from_str(info).map_err(malformed)?;
        Ok(Self {
            service,
            credential: credentials.remove(service.as_str()).unwrap_or_default(),
            ca,
            ca_file,
            process: None,
            control: Some(Client::new(Origin::parse(&control)?)?),
            name: control,
            own: None,
        })
    }

    /// A foreign receiver of APNs, with a key that it may or may not know.
    pub(crate) fn foreign(args: &Push, url: &str) -> Result<Self, Error> {
        let read = |path: &Path, option: &str| {
            std::fs::read_to_string(path)
                .map_err(|error| Error::Usage(format!("{option} {}: {error}", path.display())))
        };
        let key = match &args.key_file {
            Some(path) => read(path, "--key-file")?,
            None => keys::Keys::generate().map_err(|error| Error::Usage(error.to_string()))?.apns_p8,
        };
        let credential = json!({
            "service": "apns",
            "environment": "production",
            "key": key,
            "key_id": keys::KEY_ID,
            "team_id": keys::TEAM_ID,
            "topic": args.topic.as_deref().unwrap_or(keys::TOPIC),
            "endpoint": url,
        });
        let ca = args.ca_file.as_deref().map(|path| read(path, "--ca-file")).transpose()?;
        Ok(Self {
            service: Service::Apns,
            credential,
            ca: ca.unwrap_or_default(),
            ca_file: args.ca_file.clone(),
            process: None,
            control: None,
            name: url.to_owned(),
            own: None,
        })
    }

    pub(crate) fn describe(&self) -> String {
        self.name.clone()
    }

    /// Configures the fake; does nothing for a foreign receiver.
    pub(crate) fn behave(&mut self, change: &Value) -> Result<(), Error> {
        let Some(control) = &mut self.control else { return Ok(()) };
        control.expect_success(Request::json("POST", "/behave", ""), change.to_string().as_bytes()).map(drop)
    }

    pub(crate) fn forget(&mut self) -> Result<(), Error> {
        let Some(control) = &mut self.control else { return Ok(()) };
        control.expect_success(Request::json("DELETE", "/received", ""), b"").map(drop)
    }

    /// `None` for a foreign receiver.
    pub(crate) fn counts(&mut self) -> Result<Option<Counts>, Error> {
        let Some(control) = &mut self.control else { return Ok(None) };
        let response = control.expect_success(Request::json("GET", "/counts", ""), b"")?;
        let malformed = || Error::Malformed { request: "/counts".to_owned(), what: "it is not from a fake" };
        let mut all: HashMap<String, Counts> =
            serde_json::from_slice(&response.body).map_err(|_| malformed())?;
        all.remove(self.service.as_str()).map(Some).ok_or_else(malformed)
    }

    /// Lets the fake make tokens and register them, in the format of the API's `push_token`.
    pub(crate) fn make_tokens(&mut self, count: usize) -> Result<Vec<Value>, Error> {
        #[derive(Deserialize)]
        struct Made {
            push_tokens: Vec<Value>,
        }
        let malformed = |_| Error::Malformed { request: "/tokens".to_owned(), what: "it is not from a fake" };
        let Some(control) = &mut self.control else { return Ok(Vec::new()) };
        let body = json!({"service": self.service.as_str(), "count": count}).to_string();
        let response = control.expect_success(Request::json("POST", "/tokens", ""), body.as_bytes())?;
        serde_json::from_slice::<Made>(&response.body).map(|made| made.push_tokens).map_err(malformed)
    }
}

/// The name in reports.
fn label(service: Service) -> &'static str {
    match service {
        Service::Apns => "APNs",
        Service::Fcm => "FCM",
        Service::WebPush => "Web Push service",
        Service::Webhook => "provider behind a webhook",
        Service::Hms => "Huawei Push Kit",
        Service::Wns => "WNS",
    }
}

#[cfg(not(test))]
use process::Own;

#[cfg(not(test))]
mod process {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::{Error, Path, PathBuf, Process};

    /// A process that is bound to this one.
    pub(super) struct Own {
        child: Child,
        folder: PathBuf,
    }

    impl Own {
        /// Starts the process and returns it with its start message.
        pub(super) fn start(folder: &Path) -> Result<(Self, String), Error> {
            let ports = [
                "--apns",
                "--apns-sandbox",
                "--apns-channels",
                "--apns-sandbox-channels",
                "--fcm",
                "--oauth",
                "--webpush",
                "--webhook",
                "--hms",
                "--wns",
                "--wns-login",
            ];
            let child = Command::new(std::env::current_exe().map_err(Error::system("own executable"))?)
                .args(["bench", "bound", "dev-push", "--light", "--json", "--control", "0", "--folder"])
                .arg(folder)
                .args(ports.iter().flat_map(|port| [*port, "0"]))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(Error::system("starting the fake"))?;
            let mut own = Self { child, folder: folder.to_owned() };
            let mut line = String::new();
            if let Some(stdout) = own.child.stdout.take() {
                BufReader::new(stdout)
                    .read_line(&mut line)
                    .map_err(Error::system("reading from the fake"))?;
            }
            match line.is_empty() {
                true => Err(Error::Start { why: "the fake exited".to_owned(), log: String::new() }),
                false => Ok((own, line)),
            }
        }

        pub(super) fn process(&self) -> Option<Process> {
            Some(Process { pid: self.child.id() })
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let _ = self.child.kill(); // it stores nothing of value, and may have exited already
            let _ = self.child.wait(); // as above
            let _ = std::fs::remove_dir_all(&self.folder); // temporary
        }
    }
}

/// In tests the executable is the test harness, so the fakes run within it.
#[cfg(test)]
struct Own {
    _running: noroshi_testkit::Fakes,
}

#[cfg(test)]
impl Own {
    fn start(folder: &Path) -> Result<(Self, String), Error> {
        let config = noroshi_testkit::Config {
            light: true,
            any_token: true,
            any_renewal: true,
            ..noroshi_testkit::Config::default()
        };
        let fakes = noroshi_testkit::Fakes::start_with(config).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let info = fakes.info().to_string();
        Ok((Self { _running: fakes }, info))
    }

    fn process(&self) -> Option<Process> {
        None
    }
}
