//! The result as a self-contained HTML page: tables, plots (`svg`), all parameters with their sources, and
//! the limits of the model. It follows the reader's light or dark setting.

mod svg;

use crate::measured::TOLERANCE_PERCENT;
use crate::{Compared, Model, Outcome, Parameter};
use svg::{Plot, Scale, Series};

/// Shown on the page, so that readers know the limits of the numbers.
const NOT_MODELLED: [&str; 13] = [
    "Networks between devices and the cell: radio, packet loss, NAT, TLS handshakes, load balancers, bandwidth.",
    "Devices that do not notice the loss of their connection at once: without a FIN or RST, only the next ping detects it.",
    "Replication, backups, vacuum and checkpoints of PostgreSQL, fail-over to its standby, and growth of tables and indexes over time: the CPU cost per row is constant.",
    "Fail-over of Redis, the nodes' behaviour during it, and the sweeps afterwards.",
    "The front before several cells: its nodes, its database (a row per notification and target cell), and the latency it adds.",
    "Sending to push services (APNs, FCM, Web Push), campaigns, and their rows.",
    "Uneven load: users with many devices, hot topics other than the one broadcast, interference between tenants, time zones.",
    "CPU caches: cores of one machine and of several cost the same; on machines with more cores, memory bandwidth and kernel locks become relevant.",
    "Slow readers, large messages, retained messages, and the inbox that a returning device reads first.",
    "Rolling upgrades and drains.",
    "Clocks, DNS, certificates, full disks, and operators.",
    "Variance of service times: the measured means are used as fixed values; real tails are longer than shown here.",
    "Parameters marked as assumed have not been measured for your installation.",
];

pub fn html(model: &Model) -> String {
    let mut body = String::new();
    body.push_str("<h1>Noroshi: capacity model</h1>\n");
    body.push_str(&format!(
        "<p>Seed {}. Sizes are arithmetic on the figures below; latencies, returns and spreads are simulated event by event. \
         Equal input gives this page again, byte for byte.</p>\n",
        model.seed
    ));
    if let Some(with) = &model.compared_with {
        body.push_str(&compared(&model.compared, with, model.is_compared_with_own));
    }
    body.push_str("<h2>Required resources</h2>\n");
    body.push_str(&overview(&model.outcomes));
    for outcome in &model.outcomes {
        body.push_str(&section(outcome));
    }
    body.push_str("<h2>Not modelled</h2>\n<ul>\n");
    NOT_MODELLED.iter().for_each(|text| body.push_str(&format!("<li>{}</li>\n", escape(text))));
    body.push_str("</ul>\n<h2>Parameters</h2>\n");
    body.push_str(&figures(&model.parameters));
    format!("{HEAD}{body}</main>\n</body>\n</html>\n")
}

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Noroshi: capacity model</title>
<style>
:root { color-scheme: light dark; --text: #1d2330; --soft: #5c6577; --line: #d5dae3; --ground: #ffffff; --panel: #f6f7fa;
  --a: #2563eb; --b: #d9480f; --c: #2b8a3e; --bad: #c92a2a; --good: #2b8a3e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ef; --soft: #9aa4b5; --line: #333b4a; --ground: #12151c;
  --panel: #1a1f29; --a: #6ea8fe; --b: #ff922b; --c: #69db7c; --bad: #ff8787; --good: #69db7c; } }
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1rem; margin: 0 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; margin-top: 1rem; }
figure { margin: 0; background: var(--panel); padding: 1rem; border-radius: .5rem; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
figcaption { color: var(--soft); font-size: .85rem; margin-top: .5rem; }
</style>
</head>
<body>
<main>
";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Three significant digits, with thousands separators.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    let text = match () {
        () if magnitude >= 100.0 || value == value.trunc() => format!("{magnitude:.0}"),
        () if magnitude >= 10.0 => format!("{magnitude:.1}"),
        () if magnitude >= 1.0 => format!("{magnitude:.2}"),
        () => format!("{magnitude:.3}"),
    };
    let (whole, rest) =
        text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut shown = String::new();
    if value < 0.0 {
        shown.push('−');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    rest.map_or(shown.clone(), |rest| format!("{shown}.{rest}"))
}

/// Short form, e.g. `10M`.
pub fn short(devices: u64) -> String {
    match devices {
        0..1_000 => devices.to_string(),
        1_000..1_000_000 => format!("{}k", number(devices as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{}M", number(devices as f64 / 1e6)),
        _ => format!("{}G", number(devices as f64 / 1e9)),
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    // The first column contains labels, the others figures.
    let class = |at: usize| if at == 0 { "" } else { " class=\"n\"" };
    let cells = |tag: &str, cells: Vec<String>| -> String {
        cells.iter().enumerate().map(|(at, text)| format!("<{tag}{}>{text}</{tag}>", class(at))).collect()
    };
    let head = cells("th", head.iter().map(|text| escape(text)).collect());
    let rows: String = rows.iter().map(|row| format!("<tr>{}</tr>\n", cells("td", row.clone()))).collect();
    format!("<div class=\"wide\"><table>\n<tr>{head}</tr>\n{rows}</table></div>\n")
}

fn compared(all: &[Compared], with: &str, is_own: bool) -> String {
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|one| {
            let class = match one.is_good() {
                None => "soft",
                Some(true) => "good",
                Some(false) => "bad",
            };
            let sign = if one.off_percent >= 0.0 { "+" } else { "−" };
            vec![
                escape(one.name),
                format!("{} {}", number(one.measured), one.unit),
                format!("{} {}", number(one.predicted), one.unit),
                format!("<span class=\"{class}\">{sign}{:.0} %</span>", one.off_percent.abs()),
            ]
        })
        .collect();
    let own = if is_own { SAME_RUN } else { "" };
    format!(
        "<h2>Prediction and measurement</h2>\n{own}<p>Measured by <code>{}</code>. The target is ±{TOLERANCE_PERCENT:.0} %. Latencies are \
         shown for information only: on a saturated machine they depend on the length of its queues.</p>\n{}",
        escape(with),
        table(&["", "measured", "predicted", "deviation"], &rows)
    )
}

const SAME_RUN: &str =
    "<p class=\"bad\">The costs come from this same run: the comparison is no prediction.</p>\n";

type Row = (&'static str, fn(&Outcome) -> String);

fn overview(outcomes: &[Outcome]) -> String {
    let rows: [Row; 22] = [
        ("cells", |one| {
            format!(
                "{} <span class=\"soft\">({})</span>",
                number(one.sizing.cells as f64),
                one.sizing.because
            )
        }),
        ("nodes in total", |one| number(one.sizing.nodes as f64)),
        ("gateways of a cell", |one| {
            let gateways = &one.sizing.cell.gateways;
            format!("{} <span class=\"soft\">({})</span>", gateways.nodes, gateways.because)
        }),
        ("API nodes of a cell", |one| number(one.sizing.cell.apis as f64)),
        ("connections per gateway", |one| number(one.sizing.cell.gateways.connections_each)),
        ("memory per gateway, GiB", |one| number(one.sizing.cell.gateways.memory_gib_each)),
        ("deliveries/s, busiest minute, all cells", |one| {
            number(one.sizing.cell.demand.deliveries * one.sizing.cells as f64)
        }),
        ("delivery latency p50 / p99, ms", |one| {
            format!("{} / {}", number(one.published.p50_ms), number(one.published.p99_ms))
        }),
        ("Redis of a cell: shards", |one| number(one.sizing.cell.redis.shards as f64)),
        ("… CPU, cores", |one| number(one.sizing.cell.redis.cores)),
        ("… commands/s", |one| number(one.sizing.cell.redis.commands)),
        ("… commands per delivery", |one| number(one.sizing.cell.redis.commands_per_delivery)),
        ("… memory, GiB", |one| number(one.sizing.cell.redis.memory_gib)),
        ("PostgreSQL of a cell: CPU, cores", |one| number(one.sizing.cell.postgres.cores)),
        ("… group commits/s", |one| number(one.sizing.cell.postgres.commits)),
        ("… order lock busy with rows", |one| {
            format!("{:.1} %", one.sizing.cell.postgres.order_lock * 100.0)
        }),
        ("… devices, GiB", |one| number(one.sizing.cell.postgres.devices_gib)),
        ("… inbox rows written per day, GiB", |one| number(one.sizing.cell.postgres.rows_gib_per_day)),
        ("lost gateway: all devices reconnected after, s", |one| number(one.gateway_lost.all_s)),
        ("lost cell: half of the devices reconnected, s after the outage", |one| {
            number(one.cell_lost.half_s)
        }),
        ("… all", |one| number(one.cell_lost.all_s)),
        ("broadcast: last device, ms", |one| number(one.broadcast.last_ms)),
    ];
    let mut head = vec![String::new()];
    head.extend(outcomes.iter().map(|one| format!("{} devices", short(one.sizing.devices))));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|(name, of)| std::iter::once(escape(name)).chain(outcomes.iter().map(of)).collect())
        .collect();
    table(&head, &rows)
}

fn section(outcome: &Outcome) -> String {
    let plots = [latency(outcome), cell_lost(outcome), gateway_lost(outcome), broadcast(outcome)];
    let figures: String = plots
        .iter()
        .map(|(plot, caption)| {
            format!(
                "<figure><h3>{}</h3>{}<figcaption>{}</figcaption></figure>\n",
                escape(plot.title),
                plot.svg(),
                escape(caption)
            )
        })
        .collect();
    let devices = short(outcome.sizing.devices);
    format!("<h2>{devices} devices</h2>\n<div class=\"plots\">\n{figures}</div>\n")
}

fn latency(outcome: &Outcome) -> (Plot, String) {
    let points =
        |of: fn(&(f64, f64, f64)) -> f64| outcome.latency.iter().map(|one| (one.0, of(one))).collect();
    let plot = Plot {
        title: "Delivery latency of a cell by load",
        x: ("load, 1 is the busiest minute", Scale::Linear),
        y: ("ms", Scale::Log),
        series: vec![
            Series { name: "p50", color: "var(--a)", points: points(|one| one.1) },
            Series { name: "p99", color: "var(--b)", points: points(|one| one.2) },
        ],
    };
    (plot, format!("Load 1 is {} requests per second.", number(outcome.sizing.cell.demand.requests)))
}

fn cell_lost(outcome: &Outcome) -> (Plot, String) {
    let lost = &outcome.cell_lost;
    let plot = share("Lost cell: devices reconnected", "seconds since the loss", "var(--a)", &lost.curve);
    let caption = format!(
        "{} devices, {} attempts each, {} attempts rejected with a retry delay.",
        short(lost.devices),
        number(lost.attempts),
        number(lost.rejected)
    );
    (plot, caption)
}

fn gateway_lost(outcome: &Outcome) -> (Plot, String) {
    let lost = &outcome.gateway_lost;
    let plot = share("Lost gateway: devices reconnected", "seconds", "var(--a)", &lost.curve);
    (plot, format!("{} devices.", short(lost.devices)))
}

fn broadcast(outcome: &Outcome) -> (Plot, String) {
    let broadcast = &outcome.broadcast;
    let title = "Topic message: devices of a cell that have received it";
    let plot = share(title, "ms since the request", "var(--c)", &broadcast.curve);
    (plot, format!("{} bus messages per cell.", broadcast.bus_messages))
}

/// A plot of the share of all devices over time.
fn share(title: &'static str, x: &'static str, color: &'static str, curve: &[(f64, f64)]) -> Plot {
    Plot {
        title,
        x: (x, Scale::Linear),
        y: ("share", Scale::Linear),
        series: vec![Series { name: "share", color, points: curve.to_vec() }],
    }
}

fn figures(parameters: &[Parameter]) -> String {
    let rows: String = parameters
        .iter()
        .map(|Parameter { key, value, unit, source, help, .. }| {
            format!(
                "<tr><td><code>{key}</code></td><td class=\"n\">{} {unit}</td><td>{}</td><td class=\"soft\">{}</td></tr>\n",
                number(*value),
                escape(help),
                escape(source)
            )
        })
        .collect();
    let head = "<tr><th>parameter</th><th class=\"n\">value</th><th>meaning</th><th>source</th></tr>";
    format!("<div class=\"wide\"><table>\n{head}\n{rows}</table></div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameters, model};

    #[test]
    fn numbers_are_short_with_thousands_separators() {
        for (value, text) in [
            (0.0, "0"),
            (1_234_567.0, "1,234,567"),
            (12.34, "12.3"),
            (0.0734, "0.073"),
            (-3.456, "−3.46"),
            (7.0, "7"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!((short(180_000), short(10_000_000)), ("180k".to_owned(), "10M".to_owned()));
    }

    #[test]
    fn the_page_is_self_contained_and_lists_the_limits() {
        let page = html(&model(&Parameters::default(), &[1_000, 10_000], 1));
        for banned in ["http:", "https:", "<script", "url(", "@import", "<link", "NaN", "inf"] {
            assert!(!page.contains(banned), "{banned}");
        }
        assert!(page.contains("Not modelled") && page.contains("prefers-color-scheme: dark"));
        assert_eq!(page.matches("<svg").count(), 8);
        for (tag, end) in
            [("<table", "</table>"), ("<tr>", "</tr>"), ("<svg", "</svg>"), ("<figure>", "</figure>")]
        {
            assert_eq!(page.matches(tag).count(), page.matches(end).count(), "{tag}");
        }
    }

    #[test]
    fn large_deviations_are_marked() {
        let one = |off_percent: f64, counts| Compared {
            name: "a <b>",
            unit: "ms",
            measured: 100.0,
            predicted: 100.0 + off_percent,
            off_percent,
            counts,
        };
        let text = compared(&[one(10.0, true), one(-40.0, true), one(90.0, false)], "c --x <y>", false);
        assert!(text.contains("class=\"good\">+10 %") && text.contains("class=\"bad\">−40 %"));
        assert!(
            text.contains("class=\"soft\">+90 %")
                && text.contains("a &lt;b&gt;")
                && text.contains("&lt;y&gt;")
                && !text.contains("no prediction")
        );
        assert!(compared(&[], "c", true).contains("no prediction"));
    }
}
