//! Devices of several nodes: distributed evenly, reconnected after a node's failure, with each `stored`
//! message reported.

use std::collections::HashMap;
use std::time::Duration;

use super::fake::{API_KEY, Behaviour, FakeServer};
use super::run;
use crate::clock;
use crate::crew::Crew;
use crate::engine::Setup;
use crate::http::{Client, Origin, Request};
use crate::jwt::Signer;
use crate::payload::{DATA_BYTES_MIN, Names, When, push_users_body};
use crate::worker::{Plan, RehomePlan};

fn origin(server: &FakeServer) -> Origin {
    Origin::parse(&format!("http://{}", server.address)).unwrap()
}

fn crew(homes: &[&FakeServer]) -> Crew {
    let setup = Setup {
        origin: origin(homes[0]),
        homes: homes.iter().map(|server| origin(server)).collect(),
        spare_homes: 0,
        providers: Vec::new(),
        names: Names { prefix: "b".to_owned() },
        signer: Signer::new("s", "dev"),
        api_key: API_KEY.to_owned(),
        topic: None,
        dialect: crate::dialect::Dialect::Native,
        sources_start: 0,
    };
    let mut crew = Crew::start(1, &setup).unwrap();
    crew.connect(4, 4, Duration::from_secs(30)).unwrap();
    crew
}

#[test]
fn devices_of_a_failed_node_reconnect_to_another() {
    let (first, second) = (FakeServer::start(Behaviour::Well), FakeServer::start(Behaviour::Well));
    let mut crew = crew(&[&first, &second]);
    assert_eq!((first.logged_in(), second.logged_in()), (2, 2));
    let now_ns = clock::now_ns();
    crew.rehome(&RehomePlan {
        devices: 4,
        opening_max: 4,
        home: 0,
        first_ns: now_ns + 200_000_000,
        deadline_ns: now_ns + clock::ns(Duration::from_secs(30)),
    })
    .unwrap();
    ["b-0", "b-2"].into_iter().for_each(|user| first.end(user));
    let rehomed = crew.rehomed().unwrap();
    let recovery = rehomed.recovery;
    assert_eq!((rehomed.lost, recovery.back, recovery.fatal), (2, 4, None));
    assert!(recovery.back_ns >= now_ns + 200_000_000, "nobody comes before");
    assert_eq!((first.logged_in(), second.logged_in()), (2, 4));
}

#[test]
fn publishing_ends_after_a_number_of_requests() {
    let server = FakeServer::start(Behaviour::Well);
    let mut crew = crew(&[&server]);
    let start_ns = clock::now_ns();
    let plan = Plan {
        start_ns,
        from_ns: start_ns,
        to_ns: start_ns + clock::ns(Duration::from_secs(60)),
        requests: Some(7),
        in_flight: 2,
        connected: 1,
        data_bytes: DATA_BYTES_MIN,
        ..Plan::default()
    };
    crew.publish(&plan).unwrap();
    let published = crew.published().unwrap();
    assert_eq!((published.accepted, published.deliveries, published.lost()), (7, 7, 0));
    assert!(published.answered_ns > start_ns);
}

#[test]
fn every_stored_message_is_reported_by_its_stamp() {
    let server = FakeServer::start(Behaviour::Well);
    let mut crew = crew(&[&server]);
    let mut received = HashMap::new();
    crew.kept(&mut received).unwrap();
    let names = Names { prefix: "b".to_owned() };
    let mut client = Client::new(origin(&server)).unwrap();
    let request = Request::notification(API_KEY);
    for (stamp_ns, when) in [(7, When::Stored), (8, When::Connected), (9, When::Stored)] {
        let mut body = Vec::new();
        push_users_body(&mut body, &names, (&[1, 3], &[]), when, stamp_ns, DATA_BYTES_MIN);
        client.expect_success(request, &body).unwrap();
    }
    let deadline_ns = clock::now_ns() + clock::ns(Duration::from_secs(30));
    while received.values().sum::<u32>() < 4 && clock::now_ns() < deadline_ns {
        crew.kept(&mut received).unwrap();
    }
    assert_eq!(received, HashMap::from([(7, 2), (9, 2)]));
}

#[test]
fn invalid_options_are_reported_before_anything_starts() {
    for (line, said) in [
        ("homing --gateways 1", "--no-kill"),
        ("homing --gateways 0", "--gateways"),
        ("homing --targets 0", "--targets"),
        ("homing --devices 10", "--devices"),
        ("homing --name A", "--name"),
        ("homing --sample-rate 0", "--sample-rate"),
        ("homing --data /no-such-folder", "--data"),
        ("million --devices 0", "--devices"),
        ("million --devices 100 --gateways 1", "--skip"),
        ("million --devices 100 --clients 101", "--clients"),
        ("million --direct 0", "--skip direct"),
        ("million --payload 3", "--payload"),
        ("million --data /no-such-folder", "--data"),
    ] {
        let error = run(line).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(said), "{line}: {error}");
    }
}
