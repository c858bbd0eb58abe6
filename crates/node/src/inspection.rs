//! What the API shows about this node: doctor's findings, and the effective configuration without secrets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use noroshi_api::inspection::{Check, Diagnosis, Inspection, Setting, SourceKind};
use parking_lot::Mutex;

use crate::config::{Config, Entry, Source, by_section};
use crate::doctor::{self, CONNECTIONS_DEFAULT, Finding, Requirements, Subject};
use crate::host::{Folder, Host};

/// How long a look at the machine counts. Each one waits for the disk 25 times.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Examines the node that it belongs to.
pub(crate) struct Inspect {
    node: String,
    config: Config,
    /// The last look at the machine. No other lock is taken under it.
    seen: Mutex<Option<Seen>>,
}

struct Seen {
    at: Instant,
    host: Host,
    folder: Folder,
}

impl Inspect {
    pub(crate) fn new(node: String, config: Config) -> Self {
        Self { node, config, seen: Mutex::default() }
    }

    fn look(&self) -> (Host, Folder) {
        let mut seen = self.seen.lock();
        if let Some(seen) = seen.as_ref().filter(|seen| seen.at.elapsed() < REMEMBERED) {
            return (seen.host.clone(), seen.folder.clone());
        }
        let root = Path::new("/");
        let folder = Folder::examine(root, &self.config.server.data);
        let host = Host::of(root, Some(std::process::id()));
        *seen = Some(Seen { at: Instant::now(), host: host.clone(), folder: folder.clone() });
        (host, folder)
    }

    fn requirements(&self, connections: Option<u64>) -> Requirements {
        let Config { gateway, server, store, .. } = &self.config;
        let configured = Some(gateway.connections_max as u64).filter(|count| *count > 0);
        let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        Requirements {
            connections: connections.or(configured).unwrap_or(CONNECTIONS_DEFAULT),
            tls: server.tls.is_some(),
            proxied: server.proxies.networks.iter().any(|network| own.iter().any(|ip| network.contains(ip))),
            database_bytes_max: store.database_bytes_max,
            connections_max: gateway.connections_max,
        }
    }
}

impl Inspection for Inspect {
    fn node(&self) -> &str {
        &self.node
    }

    fn examine(&self, connections: Option<u64>) -> Diagnosis {
        let (host, folder) = self.look();
        let requirements = self.requirements(connections);
        let (connections, tls) = (requirements.connections, requirements.tls);
        let subject = Subject { host, folder, requirements, clock_offset: None };
        let diagnosis = doctor::examine(&subject);
        let sysctl = diagnosis.sysctls().into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        Diagnosis {
            verdict: diagnosis.verdict().as_str(),
            connections,
            tls,
            sysctl,
            limit_nofile: diagnosis.open_files(),
            room: diagnosis
                .capacity
                .limited_by
                .as_ref()
                .map(|limit| (limit.devices, limit.resource.to_string())),
            checks: diagnosis.findings.into_iter().map(check).collect(),
        }
    }

    fn settings(&self) -> Vec<Setting> {
        by_section(&self.config.entries).into_iter().map(setting).collect()
    }
}

fn check(finding: Finding) -> Check {
    let Finding { name, verdict, found, required, advice, changes: _ } = finding;
    Check { name, verdict: verdict.as_str(), found, wanted: required, advice }
}

fn setting(entry: &Entry) -> Setting {
    let set = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let kind = match entry.source {
        Source::Default => SourceKind::Default,
        Source::File { .. } => SourceKind::File,
        Source::Environment { .. } => SourceKind::Environment,
        Source::Flag { .. } => SourceKind::Flag,
    };
    Setting {
        key: entry.key,
        help: entry.help,
        unit: entry.unit,
        range: entry.range.clone(),
        value: set(&entry.value),
        default: set(&entry.default),
        is_masked: entry.is_masked(),
        source: kind,
        place: Some(entry.source.to_string()).filter(|_| kind != SourceKind::Default),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Inputs;

    const MARKER: &str = "marked-value-5f3a";

    fn inspect(folder: &Path, file: &str, environment: &[(&str, String)]) -> Inspect {
        std::fs::write(folder.join("noroshi.toml"), file).expect("file");
        let environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let inputs = Inputs { folder: folder.to_owned(), environment, ..Inputs::default() };
        let config = Config::load(&inputs).map_err(|problems| problems.to_string()).expect("a configuration");
        Inspect::new("n1".to_owned(), config)
    }

    /// Keys that check more than their type take no password, or no query.
    #[test]
    fn a_full_configuration_shows_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = folder.path().join("whsec");
        std::fs::write(&key, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").expect("a key");
        let full = format!("https://u:{MARKER}@h.example/x?token={MARKER}");
        let file = format!(
            "[server]\nconformance = true\npublic_url = \"https://h.example\"\n\
             [mqtt]\npublic_url = \"mqtts://h.example:1\"\n\
             [xmpp]\npublic_url = \"xmpps://h.example:1\"\naccounts = \"a:{MARKER}\"\n\
             [node]\nadvertise = \"https://n.example\"\n\
             [store]\nurl = \"postgres://u:{MARKER}@h/d?password={MARKER}&sslmode=require\"\n\
             [cluster]\nredis = \"redis://:{MARKER}@h\"\n\
             [egress]\nproxy = \"http://u:{MARKER}@proxy.example:3128\"\n\
             [events.webhook]\nurl = \"{full}\"\nkey_file = \"{}\"\n",
            key.display()
        );
        let inspect = inspect(folder.path(), &file, &[]);
        let settings = inspect.settings();
        let shown = format!("{settings:?}");
        assert!(!shown.contains(MARKER) && !shown.contains("whsec_C2FV"), "{shown}");
        let masked: BTreeSet<&str> =
            settings.iter().filter(|setting| setting.is_masked).map(|setting| setting.key).collect();
        // A proxy is kept without its password.
        let expected = ["cluster.redis", "events.webhook.url", "store.url", "xmpp.accounts"];
        assert_eq!(masked, expected.into());
        let of =
            |key| settings.iter().find(|setting| setting.key == key).and_then(|one| one.value.as_deref());
        assert_eq!(of("xmpp.accounts"), Some("\"…\""));
        assert_eq!(of("store.url"), Some("\"postgres://u:…@h/d?password=…&sslmode=require\""));
    }

    /// docs/metrics.md is generated from the metrics.
    #[test]
    fn the_queues_of_the_api_have_metrics() {
        let documented = include_str!("../../../docs/metrics.md");
        for metric in noroshi_api::queue_metrics() {
            assert!(documented.contains(&format!("| `{metric}` |")), "{metric}");
        }
    }

    #[test]
    fn each_key_names_its_source() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = "[gateway]\nping_interval = \"1m\"\n";
        let inspect = inspect(folder.path(), file, &[("NOROSHI__LOG__LEVEL", "warn".to_owned())]);
        let settings = inspect.settings();
        let of = |key| {
            let setting = settings.iter().find(|setting| setting.key == key).expect("a key");
            (setting.source, setting.place.as_deref(), setting.value.as_deref())
        };
        assert_eq!(of("gateway.ping_interval"), (SourceKind::File, Some("noroshi.toml:2"), Some("\"1m\"")));
        assert_eq!(of("log.level"), (SourceKind::Environment, Some("NOROSHI__LOG__LEVEL"), Some("\"warn\"")));
        assert_eq!(of("server.public_url"), (SourceKind::Default, None, None));
    }

    #[test]
    fn an_examination_is_of_this_machine_and_for_the_requested_number_of_devices() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let file = format!("[server]\ndata = \"{}\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n", data.display());
        let inspect = inspect(folder.path(), &file, &[]);
        assert!(inspect.requirements(None).proxied);
        let few = inspect.examine(Some(1));
        assert_eq!(few.connections, 1);
        let many = inspect.examine(Some(90_000_000));
        assert_eq!((many.verdict, many.connections), ("fail", 90_000_000));
        let open_files = many.checks.iter().find(|check| check.name == "open files").expect("a limit");
        assert!(!open_files.advice.is_empty());
        assert_eq!(inspect.examine(None).connections, CONNECTIONS_DEFAULT);
        assert!(!data.join("noroshi.doctor").exists(), "the probe is removed");
    }
}
