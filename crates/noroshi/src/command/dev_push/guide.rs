//! Prints commands that make a node use these services, and writes the files that they name.

use std::fmt::Write;
use std::path::Path;

use noroshi_testkit::keys::{KEY_ID, SUBJECT, TEAM_ID, TOPIC};
use noroshi_testkit::tokens::{NewDevices, State};
use noroshi_testkit::{Fakes, Service};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::output::quoted;

const ACCOUNT_FILE: &str = "service-account.json";
const DEVICES_FILE: &str = "devices.json";

/// Writes the files that the fakes do not write, and creates a device of each service.
pub(super) fn write(fakes: &Fakes, folder: &Path) -> Result<Map<String, Value>, Failure> {
    let mut devices = Map::new();
    for service in [Service::Apns, Service::ApnsSandbox, Service::Fcm, Service::WebPush] {
        let new = NewDevices {
            service,
            count: 1,
            topic: None,
            state: State::Registered,
            unrestricted: false,
            token: None,
        };
        let made = fakes.make_devices(&new).map_err(Failure::failed)?;
        devices.extend(made.into_iter().map(|token| (service.as_str().to_owned(), token)));
    }
    let account = fakes.credential(Service::Fcm)["service_account"].clone();
    save(&folder.join(ACCOUNT_FILE), &account)?;
    save(&folder.join(DEVICES_FILE), &Value::Object(devices.clone()))?;
    Ok(devices)
}

fn save(path: &Path, value: &Value) -> Result<(), Failure> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{value:#}"));
    written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

pub(super) fn text(fakes: &Fakes, folder: &Path, devices: &Map<String, Value>) -> String {
    let file = |name: &str| quoted(&folder.join(name).display().to_string());
    let origin = |service| fakes.origin(service);
    let mut text = String::new();
    let mut add = |line: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
    };
    add(format!("APNs      {}   sandbox {}", origin(Service::Apns), origin(Service::ApnsSandbox)));
    add(format!("FCM       {}   tokens {}/token", origin(Service::Fcm), origin(Service::OAuth)));
    add(format!(
        "Web Push  {}   applicationServerKey {}",
        origin(Service::WebPush),
        fakes.keys().vapid_public
    ));
    add(format!("control   {}\n", fakes.control()));
    add("Start a node that trusts them:".to_owned());
    add(format!("  noroshi serve --dev --set egress.ca_file={}\n", file("ca.pem")));
    add("Add the credentials:".to_owned());
    for (service, environment) in [(Service::Apns, "production"), (Service::ApnsSandbox, "sandbox")] {
        add(format!(
            "  noroshi push add apns --key {} --key-id {KEY_ID} --team-id {TEAM_ID} --topic {TOPIC} \
             --environment {environment} --endpoint {}",
            file("AuthKey_DEVKEY0001.p8"),
            origin(service)
        ));
    }
    add(format!(
        "  noroshi push add fcm --service-account {} --endpoint {}",
        file(ACCOUNT_FILE),
        origin(Service::Fcm)
    ));
    add(format!(
        "  noroshi push add webpush --private-key {} --subject {SUBJECT}\n",
        file("vapid-private-key.txt")
    ));
    add("Register a device of each service, and push to it:".to_owned());
    for (service, token) in devices {
        let body = serde_json::json!({
            "device": format!("phone-{service}"), "user": "alice", "push_token": token,
        });
        add(format!(
            "  curl -H \"Authorization: Bearer $(cat noroshi-data/dev.key)\" http://127.0.0.1:8080/v1/devices \
             -H 'Content-Type: application/json' -d {}",
            quoted(&body.to_string())
        ));
    }
    add("  noroshi send --user alice --title Hello --body World --push always\n".to_owned());
    add("Pushes appear below. Press Ctrl-C to stop.".to_owned());
    text
}
