//! Campaigns that send the variants of an experiment: every device counts once, for the variant that was drawn,
//! whatever happens in between. `several` repeats these tests with a queue of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::campaign::{
    Audience, CampaignProgress, OwnMessage, Spec, Treatment, Trial, VariantReport,
};
use noroshi_delivery::{Delivery, Texts};
use noroshi_push::Answer;
use noroshi_store::{DefinitionKind, NewDefinition, Registration, Store};
use noroshi_types::{AppId, CampaignId, DeviceId, JsonText, Label, Outcome, Subject, UserId, Variants};

use super::campaign::{counted, spec};
use super::{DEADLINE, config, eventually, open, registration};
use crate::fake_outlet::FakeOutlet;

/// The text of the second variant.
pub(crate) const EMOJI: &str = r#"{"title":"🛒"}"#;

/// One node, with its push services and its store.
pub(crate) struct Sending<'a> {
    pub(crate) delivery: &'a Arc<Delivery>,
    pub(crate) outlet: &'a FakeOutlet,
    pub(crate) store: &'a dyn Store,
    pub(crate) app: AppId,
}

fn label(name: &str) -> Label {
    Label::parse(name).expect("a name")
}

/// The variant of a user: the campaign's own text, [`EMOJI`], or nothing.
pub(crate) fn place(user: &str) -> usize {
    let names = ["plain", "emoji", "none"].map(label);
    let drawn = Variants::new(&label("cart"), names.iter().map(|name| (name, 1)));
    let (user, device) = (UserId::parse(user).expect("an id"), DeviceId::parse("any").expect("an id"));
    drawn.draw(Subject::of(Some(&user), &device)).expect("a variant")
}

/// The number of users of `Bench::many` with each variant.
pub(crate) fn sizes(users: impl Iterator<Item = usize>) -> [u64; 3] {
    let mut sizes = [0; 3];
    users.for_each(|user| sizes[place(&format!("u{user:05}"))] += 1);
    sizes
}

pub(crate) fn targeted(progress: &CampaignProgress) -> Vec<u64> {
    let report = progress.report.as_ref().expect("a report");
    report.variants.iter().map(|variant: &VariantReport| variant.targeted).collect()
}

impl Sending<'_> {
    /// Starts a campaign to everyone that sends them.
    pub(crate) async fn start(&self) -> CampaignId {
        let now = self.delivery.clock().now();
        let variants =
            r#"[{"name":"plain","weight":1},{"name":"emoji","weight":1},{"name":"none","weight":1}]"#;
        let text = JsonText::from_valid(format!(r#"{{"variants":{variants},"killed":false}}"#));
        let (app, kind, name) = (self.app, DefinitionKind::Experiment, label("cart"));
        let new = NewDefinition { app, kind, name: name.clone(), spec: text, ends_at: None };
        self.store.put_definition(new, 10, now).await.expect("kept");
        let own = OwnMessage {
            content: Texts { notification: Some(JsonText::from_valid(EMOJI)), data: None },
            locales: BTreeMap::new(),
        };
        let treatments =
            BTreeMap::from([(label("emoji"), Treatment::Own(own)), (label("none"), Treatment::HoldOut)]);
        let trial = Trial { experiment: name, control: None, treatments, definition: None };
        let wanted = Spec { trial: Some(trial), ..spec(Audience::Everyone) };
        let wanted =
            self.delivery.campaigns.with_experiment(app, wanted).await.expect("read").expect("it fits");
        self.delivery.campaigns.create(app, wanted, None).await.expect("made").0.campaign.id
    }

    async fn until(&self, id: CampaignId, reached: impl Fn(&CampaignProgress) -> bool) -> CampaignProgress {
        let read = async || self.delivery.campaigns.get(self.app, id).await.expect("known");
        let waited = async {
            loop {
                let progress = read().await;
                if reached(&progress) {
                    return progress;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, waited).await {
            Ok(progress) => progress,
            Err(_) => panic!("still {:?}", read().await),
        }
    }

    /// Some of the users wait for a retry in an hour when the campaign is aborted.
    pub(crate) async fn abort_while_some_wait(&self, users: usize) {
        let later = Answer::Later { reason: "UNAVAILABLE", after: Duration::from_secs(3_600) };
        for user in (0..users).filter(|user| user % 3 > 0) {
            self.outlet.script(&format!("t-u{user:05}"), [later.clone()]);
        }
        let id = self.start().await;
        let [plain, emoji, _] = sizes((0..users).step_by(3));
        let all = sizes(0..users);
        let told = [plain, emoji, all[2]];
        self.until(id, |progress| targeted(progress) == told).await;
        let progress = self.delivery.campaigns.abort(self.app, id).await.expect("aborted");
        assert_eq!(targeted(&progress), all, "who waited counts for what was drawn for it");
        let report = progress.report.as_ref().expect("a report");
        assert_eq!(
            report.variants.iter().map(|variant| variant.pushed).collect::<Vec<_>>(),
            [plain, emoji, 0]
        );
        let of = |outcome| counted(&progress, outcome);
        assert_eq!(of(Outcome::Cancelled), all[0] + all[1] - plain - emoji);
        assert_eq!(
            of(Outcome::Pushed) + of(Outcome::Cancelled) + of(Outcome::HeldOut),
            users as u64,
            "each once"
        );
    }

    /// At the retry the device belongs to another user, for whom another variant would be drawn.
    pub(crate) async fn change_user_between_attempts(&self, from: &str, to: &str) {
        assert_eq!((place(from), place(to)), (0, 1));
        self.outlet.hold_all(true);
        let id = self.start().await;
        eventually("asked", || self.outlet.count() == 1).await;
        let moved = Registration { user: UserId::parse(to).ok(), ..registration(from, &[]) };
        self.store.register(self.app, vec![moved], self.delivery.clock().now()).await.expect("registered");
        self.outlet.release_with(&Answer::Later { reason: "UNAVAILABLE", after: Duration::ZERO });
        let progress = self.until(id, |progress| progress.campaign.state.ended()).await;
        assert_eq!(targeted(&progress), [1, 0, 0]);
        let shown: Vec<_> = self.outlet.received().into_iter().map(|push| push.notification).collect();
        assert_eq!(shown.len(), 2);
        assert_eq!(shown[0], shown[1], "the same words");
    }
}

/// Users with these variants.
pub(crate) fn two_users() -> [String; 2] {
    [0, 1].map(|variant| {
        let mut users = (0..).map(|user| format!("m{user}"));
        users.find(|user| place(user) == variant).expect("one of many")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_counts_recipients_that_wait_for_a_retry() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.many(300).await;
    let (delivery, outlet, store, app) = (&bench.delivery, &*bench.outlet, &*bench.store, bench.app);
    Sending { delivery, outlet, store, app }.abort_while_some_wait(300).await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drawn_variant_stays_after_a_change_of_the_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let [from, to] = two_users();
    bench.devices(&[&from]).await;
    let (delivery, outlet, store, app) = (&bench.delivery, &*bench.outlet, &*bench.store, bench.app);
    Sending { delivery, outlet, store, app }.change_user_between_attempts(&from, &to).await;
    bench.stop().await;
}
