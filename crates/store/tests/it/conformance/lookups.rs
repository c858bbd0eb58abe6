//! Lookups of what is known by number or id only.

use noroshi_store::{Accept, FoundDevice, FoundNotification, LookupKeys, OfCampaign, Store};
use noroshi_types::{AppId, DeviceNum, Lane, NotificationId};

use super::fixture::*;
use super::push_fixture::*;

pub(crate) async fn notifications_and_devices_are_looked_up_across_apps(store: &dyn Store) {
    let (shop, game) = (app(store, "shop").await, app(store, "game").await);
    let phone = join(store, shop, "d1", "u1", &[]).await;
    let other = join(store, game, "d1", "u2", &[]).await;
    let to_user = send(store, shop, stored(users(&["u1"]))).await;
    let on_topic = send(store, game, stored(to_topic("news"))).await;
    let campaign = running(store, shop).await;
    let of_campaign = Accept {
        app: shop,
        request: std::sync::Arc::new(stored(users(&["u1"]))),
        now: at(1),
        idempotency: None,
        campaign: Some(OfCampaign { id: campaign, lane: Lane::Campaign, variant: None }),
        gate: None,
    };
    let of_campaign = accept(store, of_campaign).await.expect("accepted").message.id;
    let unknown = NotificationId::from_bytes([9; 16]);
    let keys = LookupKeys {
        notifications: vec![to_user, unknown, on_topic, of_campaign],
        devices: vec![phone, other, DeviceNum(u64::from(u32::MAX))],
    };
    let mut found = store.lookup(keys).await.expect("read");
    found.notifications.sort_unstable_by_key(|known| known.id);
    found.devices.sort_unstable_by_key(|known| known.num);
    let notification = |id, app: AppId| FoundNotification { id, app, topic: None, campaign: None };
    let device = |num, app, of: &str| FoundDevice { num, app, id: device("d1"), user: Some(user(of)) };
    let mut expected = vec![
        notification(to_user, shop),
        FoundNotification { topic: Some(topic("news")), ..notification(on_topic, game) },
        FoundNotification { campaign: Some(campaign), ..notification(of_campaign, shop) },
    ];
    expected.sort_unstable_by_key(|known| known.id);
    assert_eq!(found.notifications, expected);
    assert_eq!(found.devices, [device(phone, shop, "u1"), device(other, game, "u2")]);
    let nothing = store.lookup(LookupKeys::default()).await.expect("read");
    assert_eq!(nothing, Default::default());
}
