//! Prints commands that make a node use these services, and writes the files that they name.

use std::fmt::Write;
use std::path::Path;

use noroshi_testkit::keys::{
    KEY_ID, PROVIDER, SUBJECT, TEAM_ID, TOPIC, WEBHOOK_SECRET, WNS_CLIENT_ID, WNS_SECRET, WNS_TENANT,
};
use noroshi_testkit::tokens::{NewDevices, State};
use noroshi_testkit::{Fakes, Service};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::output::quoted;

const ACCOUNT_FILE: &str = "service-account.json";
const HMS_FILE: &str = "hms-account.json";
const WEBHOOK_FILE: &str = "webhook.secret";
const WNS_FILE: &str = "wns.secret";
const DEVICES_FILE: &str = "devices.json";

/// Writes the files that the fakes do not write, and creates a device of each service.
pub(super) fn write(fakes: &Fakes, folder: &Path) -> Result<Map<String, Value>, Failure> {
    let mut devices = Map::new();
    for service in Service::WITH_DEVICES {
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
    save(&folder.join(HMS_FILE), &fakes.keys().hms_account())?;
    for (file, secret) in [(WEBHOOK_FILE, WEBHOOK_SECRET), (WNS_FILE, WNS_SECRET)] {
        save_text(&folder.join(file), secret)?;
    }
    save(&folder.join(DEVICES_FILE), &Value::Object(devices.clone()))?;
    Ok(devices)
}

fn save(path: &Path, value: &Value) -> Result<(), Failure> {
    save_text(path, &format!("{value:#}"))
}

fn save_text(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{text}"));
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
    let (channels, sandbox) = (origin(Service::ApnsChannels), origin(Service::ApnsSandboxChannels));
    add(format!("channels  {channels}   sandbox {sandbox}"));
    add(format!("FCM       {}   tokens {}/token", origin(Service::Fcm), origin(Service::OAuth)));
    add(format!(
        "Web Push  {}   applicationServerKey {}",
        origin(Service::WebPush),
        fakes.keys().vapid_public
    ));
    add(format!("provider  {}/push", origin(Service::Webhook)));
    add(format!("Huawei    {}", origin(Service::Hms)));
    add(format!("WNS       {}   tokens {}/token", origin(Service::Wns), origin(Service::WnsLogin)));
    add(format!("control   {}\n", fakes.control()));
    add("Start a node that trusts them:".to_owned());
    add(format!("  noroshi serve --dev --set egress.ca_file={}\n", file("ca.pem")));
    add("Add the credentials:".to_owned());
    for (service, channels, environment) in
        [(Service::Apns, channels, "production"), (Service::ApnsSandbox, sandbox, "sandbox")]
    {
        add(format!(
            "  noroshi push add apns --key {} --key-id {KEY_ID} --team-id {TEAM_ID} --topic {TOPIC} \
             --environment {environment} --endpoint {} --channels-endpoint {channels}",
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
        "  noroshi push add webpush --private-key {} --subject {SUBJECT}",
        file("vapid-private-key.txt")
    ));
    add(format!(
        "  noroshi push add webhook --name {PROVIDER} --url {}/push --secret {} --device-tokens",
        origin(Service::Webhook),
        file(WEBHOOK_FILE)
    ));
    add(format!(
        "  noroshi push add hms --service-account {} --endpoint {}",
        file(HMS_FILE),
        origin(Service::Hms)
    ));
    add(format!(
        "  noroshi push add wns --tenant-id {WNS_TENANT} --client-id {WNS_CLIENT_ID} --client-secret {} --endpoint {} \
         --token-endpoint {}/token\n",
        file(WNS_FILE),
        origin(Service::Wns),
        origin(Service::WnsLogin)
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
