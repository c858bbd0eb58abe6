//! Unit tests of accounts. `tests/it` covers what they do for pools.

use super::*;
use crate::credential::tests::{apns_json, parsed};
use crate::fields::tests::fields;
use crate::metrics::Metrics;
use crate::push::tests::push;

#[tokio::test]
async fn a_closed_account_opens_no_pool() {
    let egress = Egress::new(noroshi_egress::Config::default()).expect("no proxies");
    let context = AccountContext {
        config: Arc::new(Config::default()),
        egress: Arc::new(egress),
        runtime: Handle::current(),
        tasks: TaskTracker::new(),
    };
    let environment = PushEnvironment::Production;
    let counters = Metrics::default().of(PushService::Apns, environment);
    let account = Account::new(AppId(1), parsed(&apns_json()), counters, context);
    let push = push(PushService::Apns, &serde_json::json!({}), fields());
    assert!(account.pool(&push).expect("an origin").is_some());
    account.close();
    assert!(account.pool(&push).expect("an origin").is_none());
    assert!(account.pools().is_empty());
}
