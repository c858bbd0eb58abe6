//! The routes of an app: keys, push credentials, experiments, notices and topic rules.

use http::Method;

use crate::client::Client;
use crate::pages::Pages;
use crate::request::Request;
use crate::types::{
    AppChange, AppSeriesQuery, AppState, Experiment, ExperimentAssigned, ExperimentChange, Experiments,
    ExperimentsQuery, Key, Keys, NewExperiment, NewKey, NewNotice, NewPushCredential, Notice, Notices,
    NoticesQuery, PushCredential, PushCredentials, PushRotation, PushTest, PushTested, Quotas, RestoreTokens,
    RestoredTokens, Series, TopicRules,
};

/// The routes of an app, from [`Client::app`].
#[derive(Debug, Clone)]
pub struct App {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl App {
    /// The app.
    pub fn read(&self) -> Request<AppState> {
        self.client.get("/v1/apps/{}", &[&self.name])
    }

    /// Changes the app.
    pub fn change(&self, change: &AppChange) -> Request<AppState> {
        self.client.patch("/v1/apps/{}", &[&self.name]).repeatable().json(change)
    }

    /// The API keys of the app, without the keys themselves.
    pub fn keys(&self) -> Request<Keys> {
        self.client.get("/v1/apps/{}/keys", &[&self.name])
    }

    /// Creates an API key. The answer is the only one that contains the key.
    pub fn create_key(&self, key: &NewKey) -> Request<Key> {
        self.client.post("/v1/apps/{}/keys", &[&self.name]).json(key)
    }

    /// Revokes an API key.
    pub fn revoke_key(&self, key: &str) -> Request<()> {
        self.client.act(Method::DELETE, "/v1/apps/{}/keys/{}", &[&self.name, key])
    }

    /// The quotas of the app, and how much of them it uses.
    pub fn quotas(&self) -> Request<Quotas> {
        self.client.get("/v1/apps/{}/quotas", &[&self.name])
    }

    /// The credentials for push services, without their secrets.
    pub fn push_credentials(&self) -> Request<PushCredentials> {
        self.client.get("/v1/apps/{}/push", &[&self.name])
    }

    /// Adds a credential for a push service.
    pub fn add_push_credential(&self, credential: &NewPushCredential) -> Request<PushCredential> {
        self.client.post("/v1/apps/{}/push", &[&self.name]).json(credential)
    }

    /// Adds a credential, or replaces the existing one without interruption.
    pub fn replace_push_credential(&self, credential: &NewPushCredential) -> Request<PushCredential> {
        self.add_push_credential(credential).repeatable().query([("replace", "true".to_owned())])
    }

    /// Removes a credential.
    pub fn remove_push_credential(&self, id: &str) -> Request<()> {
        self.client.act(Method::DELETE, "/v1/apps/{}/push/{}", &[&self.name, id])
    }

    /// Pushes a short visible notification to a device, and returns the answer of the push service.
    pub fn test_push_credential(&self, id: &str, test: &PushTest) -> Request<PushTested> {
        self.client.post("/v1/apps/{}/push/{}/test", &[&self.name, id]).json(test)
    }

    /// Replaces the secret of a credential, if the push service accepts it.
    pub fn rotate_push_credential(&self, id: &str, rotation: &PushRotation) -> Request<PushCredential> {
        self.client.post("/v1/apps/{}/push/{}/rotate", &[&self.name, id]).json(rotation)
    }

    /// Uses suspended tokens of a credential again.
    pub fn restore_push_tokens(&self, id: &str, restore: &RestoreTokens) -> Request<RestoredTokens> {
        self.client.post("/v1/apps/{}/push/{}/restore", &[&self.name, id]).repeatable().json(restore)
    }

    /// A page of the experiments.
    pub fn list_experiments(&self, query: &ExperimentsQuery) -> Request<Experiments> {
        self.client.get("/v1/apps/{}/experiments", &[&self.name]).query(query.pairs())
    }

    /// The experiments.
    pub fn experiments(&self, query: ExperimentsQuery) -> Pages<Experiment> {
        let app = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = app.list_experiments(&ExperimentsQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.experiments, page.next)) }
        })
    }

    /// An experiment.
    pub fn experiment(&self, name: &str) -> Request<Experiment> {
        self.client.get("/v1/apps/{}/experiments/{}", &[&self.name, name])
    }

    /// Creates or replaces an experiment.
    pub fn put_experiment(&self, name: &str, experiment: &NewExperiment) -> Request<Experiment> {
        self.client.put("/v1/apps/{}/experiments/{}", &[&self.name, name]).json(experiment)
    }

    /// Stops an experiment, or lets it continue.
    pub fn change_experiment(&self, name: &str, change: &ExperimentChange) -> Request<Experiment> {
        self.client.patch("/v1/apps/{}/experiments/{}", &[&self.name, name]).repeatable().json(change)
    }

    /// Archives an experiment.
    pub fn archive_experiment(&self, name: &str) -> Request<()> {
        self.client.act(Method::DELETE, "/v1/apps/{}/experiments/{}", &[&self.name, name])
    }

    /// The variant of a device, and why.
    pub fn experiment_assigned(&self, name: &str, device: &str) -> Request<ExperimentAssigned> {
        self.client.get("/v1/apps/{}/experiments/{}/devices/{}", &[&self.name, name, device])
    }

    /// A page of the maintenance notices.
    pub fn list_notices(&self, query: &NoticesQuery) -> Request<Notices> {
        self.client.get("/v1/apps/{}/notices", &[&self.name]).query(query.pairs())
    }

    /// The maintenance notices.
    pub fn notices(&self, query: NoticesQuery) -> Pages<Notice> {
        let app = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = app.list_notices(&NoticesQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.notices, page.next)) }
        })
    }

    /// A maintenance notice.
    pub fn notice(&self, name: &str) -> Request<Notice> {
        self.client.get("/v1/apps/{}/notices/{}", &[&self.name, name])
    }

    /// Creates or replaces a maintenance notice.
    pub fn put_notice(&self, name: &str, notice: &NewNotice) -> Request<Notice> {
        self.client.put("/v1/apps/{}/notices/{}", &[&self.name, name]).json(notice)
    }

    /// Ends a maintenance notice.
    pub fn end_notice(&self, name: &str) -> Request<()> {
        self.client.act(Method::DELETE, "/v1/apps/{}/notices/{}", &[&self.name, name])
    }

    /// The topic rules.
    pub fn topic_rules(&self) -> Request<TopicRules> {
        self.client.get("/v1/apps/{}/topic-rules", &[&self.name])
    }

    /// Replaces all topic rules, and returns them as stored.
    pub fn set_topic_rules(&self, rules: &TopicRules) -> Request<TopicRules> {
        self.client.put("/v1/apps/{}/topic-rules", &[&self.name]).json(rules)
    }

    /// Deletes all topic rules.
    pub fn delete_topic_rules(&self) -> Request<()> {
        self.client.act(Method::DELETE, "/v1/apps/{}/topic-rules", &[&self.name])
    }

    /// Figures of the app over time.
    pub fn series(&self, query: &AppSeriesQuery) -> Request<Series> {
        self.client.get("/v1/apps/{}/series", &[&self.name]).query(query.pairs())
    }
}
