//! An experiment: which devices take part, and which variant each of them gets.
//!
//! In this order: outside its time, or killed, no device takes part; a user or device that is named gets the named
//! variant, regardless of the audience; a device outside the audience does not take part; all others draw
//! ([`Variants`]).

use std::collections::BTreeMap;

use noroshi_store::{Attributes, Device};
use noroshi_types::{
    Condition, DeviceId, Invalid, JsonText, Label, Subject, Timestamp, UserId, Variants, limits,
};
use serde::{Deserialize, Serialize};

use crate::filter::Filter;
use crate::texts::json;

pub const DESCRIPTION_BYTES_MAX: usize = 1_024;

/// The request.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// For people.
    pub description: Option<String>,
    pub variants: Vec<ExperimentVariant>,
    /// `None`: at once.
    pub starts_at: Option<Timestamp>,
    /// `None`: until it is archived.
    pub ends_at: Option<Timestamp>,
    /// Limits it to devices with these topics.
    pub condition: Option<Condition>,
    /// Limits it to devices with these attributes.
    pub filter: Filter,
    pub users: BTreeMap<UserId, Label>,
    pub devices: BTreeMap<DeviceId, Label>,
    /// While this is set, no device takes part.
    pub killed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentVariant {
    pub name: Label,
    /// Its share of the sum of all weights.
    pub weight: u32,
    /// For the app's code.
    pub data: Option<JsonText>,
}

/// An experiment, compiled for draws.
#[derive(Debug, PartialEq)]
pub struct Group {
    pub name: Label,
    pub experiment: Experiment,
    draw: Variants,
}

/// An [`Experiment`] as the store keeps it.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredExperiment {
    description: Option<String>,
    variants: Vec<StoredVariant>,
    starts_at_ms: Option<u64>,
    ends_at_ms: Option<u64>,
    condition: Option<String>,
    #[serde(default)]
    filter: Filter,
    #[serde(default)]
    users: BTreeMap<String, String>,
    #[serde(default)]
    devices: BTreeMap<String, String>,
    killed: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredVariant {
    name: String,
    weight: u32,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    data: Option<JsonText>,
}

impl Experiment {
    /// Checks the rules that span fields. The error names field and rule.
    pub fn check(self) -> Result<Self, Invalid> {
        let refuse = |rule: String| Err(Invalid::new(rule));
        if !(1..=limits::VARIANTS_MAX).contains(&self.variants.len()) {
            return refuse(format!("variants: 1 to {}", limits::VARIANTS_MAX));
        }
        for (at, variant) in self.variants.iter().enumerate() {
            if self.variants[..at].iter().any(|other| other.name == variant.name) {
                return refuse(format!("variants: {} is there twice", variant.name));
            }
            if variant.weight > limits::VARIANT_WEIGHT_MAX {
                return refuse(format!("variants: a weight is 0 to {}", limits::VARIANT_WEIGHT_MAX));
            }
            if variant.data.as_ref().is_some_and(|data| data.len() > limits::VARIANT_DATA_BYTES_MAX) {
                return refuse(format!("variants: data is at most {} bytes", limits::VARIANT_DATA_BYTES_MAX));
            }
        }
        if self.variants.iter().all(|variant| variant.weight == 0) {
            return refuse("variants: at least one has a weight".to_owned());
        }
        if self.users.len() + self.devices.len() > limits::OVERRIDES_MAX {
            return refuse(format!("overrides: at most {}", limits::OVERRIDES_MAX));
        }
        let unknown =
            self.users.values().chain(self.devices.values()).find(|name| self.place(name).is_none());
        if let Some(name) = unknown {
            return refuse(format!("overrides: there is no variant {name}"));
        }
        if self.ends_at.is_some_and(|ends_at| self.starts_at.is_some_and(|starts_at| ends_at <= starts_at)) {
            return refuse("ends_at: after starts_at".to_owned());
        }
        self.filter.check()?;
        Ok(self)
    }

    pub fn is_running(&self, now: Timestamp) -> bool {
        !self.killed
            && self.starts_at.is_none_or(|starts_at| starts_at <= now)
            && self.ends_at.is_none_or(|ends_at| now < ends_at)
    }

    fn place(&self, name: &Label) -> Option<usize> {
        self.variants.iter().position(|variant| variant.name == *name)
    }

    pub fn to_json(&self) -> JsonText {
        // Cannot fail: only texts, numbers and maps of texts.
        JsonText::from_valid(serde_json::to_string(&StoredExperiment::from(self)).unwrap_or_default())
    }

    /// Parses what [`Experiment::to_json`] wrote.
    pub fn from_json(json: &JsonText) -> Result<Self, Invalid> {
        let stored: StoredExperiment = serde_json::from_str(json.as_str())
            .map_err(|error| Invalid::new(format!("a stored experiment cannot be read: {error}")))?;
        stored.try_into()
    }
}

impl From<&Experiment> for StoredExperiment {
    fn from(experiment: &Experiment) -> Self {
        let names = |(of, name): (&str, &Label)| (of.to_owned(), name.to_string());
        Self {
            description: experiment.description.clone(),
            variants: experiment.variants.iter().map(StoredVariant::from).collect(),
            starts_at_ms: experiment.starts_at.map(|at| at.0),
            ends_at_ms: experiment.ends_at.map(|at| at.0),
            condition: experiment.condition.as_ref().map(Condition::to_string),
            filter: experiment.filter.clone(),
            users: experiment.users.iter().map(|(user, name)| names((user.as_str(), name))).collect(),
            devices: experiment.devices.iter().map(|(one, name)| names((one.as_str(), name))).collect(),
            killed: experiment.killed,
        }
    }
}

impl TryFrom<StoredExperiment> for Experiment {
    type Error = Invalid;

    fn try_from(stored: StoredExperiment) -> Result<Self, Invalid> {
        let variant = |variant: StoredVariant| {
            let (weight, data) = (variant.weight, variant.data);
            Ok(ExperimentVariant { name: Label::parse(&variant.name)?, weight, data })
        };
        let users = stored.users.iter().map(|(user, name)| Ok((UserId::parse(user)?, Label::parse(name)?)));
        let devices =
            stored.devices.iter().map(|(one, name)| Ok((DeviceId::parse(one)?, Label::parse(name)?)));
        Ok(Self {
            description: stored.description,
            variants: stored.variants.into_iter().map(variant).collect::<Result<_, Invalid>>()?,
            starts_at: stored.starts_at_ms.map(Timestamp),
            ends_at: stored.ends_at_ms.map(Timestamp),
            condition: stored.condition.as_deref().map(Condition::parse).transpose()?,
            filter: stored.filter,
            users: users.collect::<Result<_, Invalid>>()?,
            devices: devices.collect::<Result<_, Invalid>>()?,
            killed: stored.killed,
        })
    }
}

impl From<&ExperimentVariant> for StoredVariant {
    fn from(variant: &ExperimentVariant) -> Self {
        let (weight, data) = (variant.weight, variant.data.clone());
        Self { name: variant.name.to_string(), weight, data }
    }
}

impl Group {
    pub fn new(name: Label, experiment: Experiment) -> Self {
        let draw = Variants::new(&name, experiment.variants.iter().map(|one| (&one.name, one.weight)));
        Self { name, experiment, draw }
    }

    /// The variant of a device, while the experiment runs.
    pub fn variant_of(&self, device: &Device) -> Option<&ExperimentVariant> {
        let in_topics = |condition: &Condition| {
            condition.matches(|topic| topic.is_everyone() || device.topics.binary_search(topic).is_ok())
        };
        if let Some(named) = self.named(device.user.as_ref(), &device.id) {
            return Some(named);
        }
        match self.experiment.condition.as_ref().is_none_or(in_topics) {
            true => self.drawn(device.user.as_ref(), &device.id, &device.attributes),
            false => None,
        }
    }

    /// The index of the variant, for a device whose condition was checked before. Does not check whether the experiment
    /// runs.
    pub(crate) fn place_of(
        &self,
        user: Option<&UserId>,
        device: &DeviceId,
        attributes: &Attributes,
    ) -> Option<usize> {
        let variant = self.named(user, device).or_else(|| self.drawn(user, device, attributes))?;
        self.experiment.place(&variant.name)
    }

    /// The variant that is named for the device or, with lower precedence, for the user.
    fn named(&self, user: Option<&UserId>, device: &DeviceId) -> Option<&ExperimentVariant> {
        let Experiment { users, devices, variants, .. } = &self.experiment;
        let name = devices.get(device).or_else(|| users.get(user?))?;
        variants.iter().find(|variant| variant.name == *name)
    }

    fn drawn(
        &self,
        user: Option<&UserId>,
        device: &DeviceId,
        attributes: &Attributes,
    ) -> Option<&ExperimentVariant> {
        if !self.experiment.filter.matches(attributes) {
            return None;
        }
        self.experiment.variants.get(self.draw.draw(Subject::of(user, device))?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use noroshi_types::{AppId, DeviceNum, Topic};

    use super::*;

    pub(crate) fn label(name: &str) -> Label {
        Label::parse(name).expect(name)
    }

    pub(crate) fn experiment() -> Experiment {
        let variant = |name: &str| ExperimentVariant { name: label(name), weight: 1, data: None };
        Experiment {
            description: None,
            variants: vec![variant("control"), variant("green")],
            starts_at: None,
            ends_at: None,
            condition: None,
            filter: Filter::default(),
            users: BTreeMap::new(),
            devices: BTreeMap::new(),
            killed: false,
        }
    }

    fn device(id: &str, user: Option<&str>) -> Device {
        Device {
            num: DeviceNum(1),
            app: AppId(1),
            id: DeviceId::parse(id).expect(id),
            user: user.map(|user| UserId::parse(user).expect(user)),
            attributes: Attributes { platform: Some("ios".into()), ..Attributes::default() },
            topics: vec![Topic::parse("news").expect("a topic")],
            push_token: None,
            push_token_at: None,
            last_seen: None,
            push_tokens: Vec::new(),
            push_suspect: None,
            token_version: 1,
            revoked: noroshi_store::Revocation::default(),
            created_at: Timestamp(0),
        }
    }

    fn name_of(experiment: &Experiment, device: &Device) -> Option<String> {
        let group = Group::new(label("button"), experiment.clone());
        group.variant_of(device).map(|variant| variant.name.to_string())
    }

    #[test]
    fn all_devices_of_a_user_get_the_same_variant() {
        let experiment = experiment();
        for number in 0..50 {
            let user = format!("u{number}");
            let of = |id| name_of(&experiment, &device(id, Some(&user)));
            assert!(of("a").is_some() && of("a") == of("b"), "{user}");
        }
        let drawn: std::collections::BTreeSet<_> =
            (0..50).map(|number| name_of(&experiment, &device(&format!("d{number}"), None))).collect();
        assert_eq!(drawn.len(), 2, "devices without a user draw for themselves");
    }

    #[test]
    fn only_the_audience_and_named_devices_take_part() {
        let check = |experiment: &Experiment, device: &Device, is_in: bool| {
            assert_eq!(name_of(experiment, device).is_some(), is_in, "{experiment:?}");
        };
        let other = Filter { platforms: vec!["android".into()], ..Filter::default() };
        let condition = |text| Some(Condition::parse(text).expect(text));
        let it = device("d", Some("u"));
        check(&Experiment { filter: other.clone(), ..experiment() }, &it, false);
        check(&Experiment { condition: condition("'news' in topics"), ..experiment() }, &it, true);
        check(&Experiment { condition: condition("'sport' in topics"), ..experiment() }, &it, false);
        let named = Experiment {
            filter: other,
            condition: condition("'sport' in topics"),
            users: BTreeMap::from([(UserId::parse("u").expect("u"), label("control"))]),
            devices: BTreeMap::from([(DeviceId::parse("e").expect("e"), label("green"))]),
            ..experiment()
        };
        assert_eq!(name_of(&named, &it).as_deref(), Some("control"));
        assert_eq!(name_of(&named, &device("e", Some("u"))).as_deref(), Some("green"), "the device's own");
        check(&named, &device("d", Some("v")), false);
    }

    #[test]
    fn an_experiment_runs_from_start_to_end_unless_killed() {
        let it = Experiment { starts_at: Some(Timestamp(10)), ends_at: Some(Timestamp(20)), ..experiment() };
        let running = [9, 10, 19, 20].map(|now| it.is_running(Timestamp(now)));
        assert_eq!(running, [false, true, true, false]);
        assert!(!Experiment { killed: true, ..it }.is_running(Timestamp(15)));
        assert!(experiment().is_running(Timestamp(0)));
    }

    #[test]
    fn a_contradictory_request_is_refused() {
        let check = |experiment: Experiment, part: &str| {
            let refused = experiment.check().expect_err(part);
            assert!(refused.0.contains(part), "{part}: {refused}");
        };
        assert!(experiment().check().is_ok());
        check(Experiment { variants: Vec::new(), ..experiment() }, "variants: 1 to 20");
        let mut twice = experiment();
        twice.variants[1].name = label("control");
        check(twice, "twice");
        let mut weightless = experiment();
        weightless.variants.iter_mut().for_each(|variant| variant.weight = 0);
        check(weightless, "at least one has a weight");
        let users = BTreeMap::from([(UserId::parse("u").expect("u"), label("red"))]);
        check(Experiment { users, ..experiment() }, "no variant red");
        let backwards =
            Experiment { starts_at: Some(Timestamp(2)), ends_at: Some(Timestamp(2)), ..experiment() };
        check(backwards, "ends_at");
    }

    #[test]
    fn a_stored_experiment_reads_back() {
        let mut full = Experiment {
            description: Some("which colour".into()),
            starts_at: Some(Timestamp(1)),
            ends_at: Some(Timestamp(2)),
            condition: Some(Condition::parse("'a' in topics").expect("a condition")),
            filter: Filter { locales: vec!["ja".into()], ..Filter::default() },
            users: BTreeMap::from([(UserId::parse("u").expect("u"), label("green"))]),
            devices: BTreeMap::from([(DeviceId::parse("d").expect("d"), label("control"))]),
            killed: true,
            ..experiment()
        };
        full.variants[0].data = Some(JsonText::from_valid("null"));
        for it in [experiment(), full] {
            assert_eq!(Experiment::from_json(&it.to_json()), Ok(it));
        }
        assert!(Experiment::from_json(&JsonText::from_valid("{}")).is_err());
    }
}
