//! The first-call caches of one node, when another node writes.

use noroshi_delivery::first_call;
use noroshi_store::{Definitions, Devices};
use noroshi_types::{DeviceId, When};

use super::cell::{Cell, cell};
use crate::{NOW, users};

/// The cached first-call data of a device on a node.
fn is_fresh(cell: &Cell, node: usize, device: &noroshi_store::Device, mark: first_call::Mark) -> bool {
    cell.nodes[node].delivery.freshness.is_fresh(&first_call::tags_of(device), mark)
}

#[tokio::test]
async fn cached_data_is_stale_after_a_write_on_another_node() {
    let cell = cell(2).await;
    let id = cell.device("d1", "u1", &[]).await;
    let other = cell.device("d2", "u2", &[]).await;
    let read = async |id: &DeviceId| cell.store.device(cell.app, id).await.expect("read").expect("there");
    let (device, bystander) = (read(&id).await, read(&other).await);
    let reader = &cell.nodes[1].delivery;
    let mut mark = reader.freshness.mark();
    cell.publish(0, users(&["u1"]), When::Stored).await;
    cell.until("an inbox", |cell| !is_fresh(cell, 1, &device, mark)).await;
    assert!(is_fresh(&cell, 1, &bystander, mark) && is_fresh(&cell, 1, &device, reader.freshness.mark()));
    mark = reader.freshness.mark();
    cell.nodes[0].delivery.devices.revoke(cell.app, &id).await.expect("revoked");
    cell.until("a revocation", |cell| !is_fresh(cell, 1, &device, mark)).await;
    // More than one record can name.
    mark = reader.freshness.mark();
    let many: Vec<DeviceId> =
        (0..5_000).map(|number| DeviceId::parse(&format!("x{number}")).expect("an id")).collect();
    cell.nodes[0].delivery.freshness.devices_changed(cell.app, &many);
    cell.until("everything", |cell| !is_fresh(cell, 1, &bystander, mark)).await;
}

#[tokio::test]
async fn an_experiment_of_one_node_is_known_on_the_others() {
    let cell = cell(2).await;
    let kind = noroshi_store::DefinitionKind::Experiment;
    let name = noroshi_types::Label::parse("button").expect("a name");
    let spec = r#"{"variants":[{"name":"green","weight":1}],"killed":false}"#;
    let spec = noroshi_types::JsonText::from_valid(spec);
    let new = noroshi_store::NewDefinition { app: cell.app, kind, name: name.clone(), spec, ends_at: None };
    cell.store.put_definition(new, 10, NOW).await.expect("kept");
    cell.nodes[0].delivery.first_calls.definitions_changed().await.expect("read");
    let known = |cell: &Cell, node: usize| {
        cell.nodes[node].delivery.first_calls.current(cell.app).group(&name).is_some()
    };
    assert!(known(&cell, 0));
    cell.until("the other knows", |cell| known(cell, 1)).await;
    cell.store.archive_definition(cell.app, kind, &name, NOW).await.expect("archived");
    cell.nodes[1].delivery.first_calls.definitions_changed().await.expect("read");
    cell.until("both have forgotten", |cell| !known(cell, 0) && !known(cell, 1)).await;
}
