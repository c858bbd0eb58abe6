//! A campaign that sends the variants of an experiment: which ones, to whom, and what each recipient gets.
//!
//! The definition is copied when the campaign is created, whatever happens to the experiment later. A device gets the
//! same variant at every attempt, unless its user or its attributes changed in between. The experiment decides who gets
//! which variant ([`crate::definition::Group`]). A recipient outside its audience gets the campaign's own message, and
//! counts for no variant. Pure.

use std::collections::BTreeMap;

use noroshi_store::Definition;
use noroshi_types::{Invalid, Label, Timestamp, limits};

use crate::campaign::audience::Audience;
use crate::definition::Experiment;
use crate::texts::Texts;

#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub experiment: Label,
    /// The variant that the others are compared with; `None`: the first one that sends something.
    pub control: Option<Label>,
    /// Variants that do not send the campaign's message.
    pub treatments: BTreeMap<Label, Treatment>,
    /// `None` until the experiment was looked up, before the campaign is created.
    pub definition: Option<Experiment>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Treatment {
    /// Nothing is sent.
    HoldOut,
    /// A missing part is taken from the campaign, except for the campaign's texts by language.
    Own(OwnMessage),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnMessage {
    pub content: Texts,
    /// By language tag; a missing part is taken from `content`.
    pub locales: BTreeMap<String, Texts>,
}

impl Trial {
    /// Adds the definition that was found, for a campaign to this audience that starts at `starts_at`. The error says
    /// what does not fit.
    pub(crate) fn define(
        self,
        found: Option<Definition>,
        audience: &Audience,
        starts_at: Timestamp,
    ) -> Result<Self, Invalid> {
        let name = &self.experiment;
        let refuse = |rule: String| Err(Invalid::new(format!("experiment.name: {rule}")));
        let Some(found) = found else { return refuse(format!("there is no experiment {name}")) };
        if found.archived_at.is_some() {
            return refuse(format!("the experiment {name} is archived"));
        }
        let mut definition = Experiment::from_json(&found.spec)?;
        // Only what a draw needs is stored with every campaign.
        definition.description = None;
        definition.variants.iter_mut().for_each(|variant| variant.data = None);
        if definition.killed {
            return refuse(format!("the experiment {name} is killed"));
        }
        if definition.ends_at.is_some_and(|ends_at| ends_at <= starts_at) {
            return refuse(format!("the experiment {name} ends before the campaign starts"));
        }
        if definition.starts_at.is_some_and(|begins_at| begins_at > starts_at) {
            return refuse(format!("the experiment {name} begins after the campaign starts"));
        }
        if let Some(condition) = &definition.condition
            && !matches!(audience, Audience::Condition(own) if own.as_str() == condition.as_str())
        {
            return refuse(format!(
                "its audience is {condition:?}: a campaign that sends its variants has the same `audience.condition`",
                condition = condition.as_str(),
            ));
        }
        let trial = Self { definition: Some(definition), ..self };
        trial.check_names()?;
        Ok(trial)
    }

    fn check_names(&self) -> Result<(), Invalid> {
        let unknown = |name: &&Label| self.place(name).is_none();
        if let Some(name) = self.treatments.keys().find(unknown) {
            return Err(Invalid::new(format!("experiment.variants: there is no variant {name}")));
        }
        if let Some(name) = self.control.as_ref().filter(unknown) {
            return Err(Invalid::new(format!("experiment.control: there is no variant {name}")));
        }
        if self.control.as_ref().is_some_and(|name| self.holds_out(name)) {
            return Err(Invalid::new("experiment.control: the variant sends nothing to compare with"));
        }
        match self.control_place() {
            Some(_) => Ok(()),
            None => Err(Invalid::new("experiment.variants: at least one variant sends something")),
        }
    }

    /// Checks what does not need the definition.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self.treatments.len() <= limits::VARIANTS_MAX {
            true => Ok(()),
            false => Err(Invalid::new(format!("experiment.variants: at most {}", limits::VARIANTS_MAX))),
        }
    }

    /// Names of the variants, in the order of the definition.
    pub fn names(&self) -> impl Iterator<Item = &Label> {
        self.definition.iter().flat_map(|definition| &definition.variants).map(|variant| &variant.name)
    }

    fn place(&self, name: &Label) -> Option<usize> {
        self.names().position(|variant| variant == name)
    }

    pub fn holds_out(&self, name: &Label) -> bool {
        matches!(self.treatments.get(name), Some(Treatment::HoldOut))
    }

    /// The index of the variant that the others are compared with.
    pub fn control_place(&self) -> Option<usize> {
        match &self.control {
            Some(name) => self.place(name),
            None => self.names().position(|name| !self.holds_out(name)),
        }
    }

    /// The messages of variants that have their own.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &OwnMessage> {
        self.treatments.values().filter_map(|treatment| match treatment {
            Treatment::Own(message) => Some(message),
            Treatment::HoldOut => None,
        })
    }
}

impl OwnMessage {
    /// The content, and that of each language.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &Texts> {
        std::iter::once(&self.content).chain(self.locales.values())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use noroshi_store::DefinitionKind;
    use noroshi_types::{AppId, Condition, JsonText};

    use super::*;
    use crate::definition::experiment::tests::{experiment, label};

    /// `control` gets the campaign's message, `green` one of its own.
    pub(crate) fn trial() -> Trial {
        let content = Texts { notification: Some(JsonText::from_valid(r#"{"title":"Green"}"#)), data: None };
        let green = Treatment::Own(OwnMessage { content, locales: BTreeMap::new() });
        Trial {
            experiment: label("button"),
            control: None,
            treatments: BTreeMap::from([(label("green"), green)]),
            definition: Some(experiment()),
        }
    }

    fn found(definition: Experiment) -> Option<Definition> {
        Some(Definition {
            num: 1,
            app: AppId(1),
            kind: DefinitionKind::Experiment,
            name: label("button"),
            spec: definition.to_json(),
            ends_at: definition.ends_at,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            archived_at: None,
        })
    }

    fn check(trial: Trial, found: Option<Definition>, refused: Option<&str>) {
        let defined = trial.define(found, &Audience::Everyone, Timestamp(10));
        match refused {
            None => assert!(defined.is_ok_and(|trial| trial.definition.is_some())),
            Some(part) => {
                let refused = defined.expect_err(part);
                assert!(refused.0.contains(part), "{refused}");
            }
        }
    }

    #[test]
    fn an_experiment_that_does_not_run_at_the_start_is_refused() {
        check(trial(), found(experiment()), None);
        check(trial(), None, Some("there is no experiment button"));
        let archived =
            found(experiment()).map(|found| Definition { archived_at: Some(Timestamp(1)), ..found });
        check(trial(), archived, Some("archived"));
        check(trial(), found(Experiment { killed: true, ..experiment() }), Some("killed"));
        let until = |ends_at| found(Experiment { ends_at: Some(Timestamp(ends_at)), ..experiment() });
        check(trial(), until(10), Some("ends before"));
        check(trial(), until(11), None);
        let from = |starts_at| found(Experiment { starts_at: Some(Timestamp(starts_at)), ..experiment() });
        check(trial(), from(11), Some("begins after"));
        check(trial(), from(10), None);
    }

    #[test]
    fn the_condition_must_be_that_of_the_campaign() {
        let condition = |text| Condition::parse(text).expect(text);
        let of = |text| found(Experiment { condition: Some(condition(text)), ..experiment() });
        check(trial(), of("'a' in topics"), Some("audience.condition"));
        let audience = Audience::Condition(condition("'a' in topics"));
        assert!(trial().define(of("'a' in topics"), &audience, Timestamp(0)).is_ok());
        assert!(trial().define(of("'b' in topics"), &audience, Timestamp(0)).is_err());
    }

    #[test]
    fn names_must_exist_in_the_definition() {
        let held = |names: &[&str]| names.iter().map(|name| (label(name), Treatment::HoldOut)).collect();
        let red = Trial { treatments: held(&["red"]), ..trial() };
        check(red, found(experiment()), Some("experiment.variants: there is no variant red"));
        let control = |name| Trial { control: Some(label(name)), ..trial() };
        check(control("red"), found(experiment()), Some("experiment.control: there is no variant red"));
        check(control("green"), found(experiment()), None);
        let of_nothing = Trial { treatments: held(&["green"]), ..control("green") };
        check(of_nothing, found(experiment()), Some("experiment.control: the variant sends nothing"));
        let nobody = Trial { treatments: held(&["control", "green"]), ..trial() };
        check(nobody, found(experiment()), Some("at least one"));
    }

    #[test]
    fn the_first_variant_that_sends_something_is_the_control() {
        assert_eq!(trial().control_place(), Some(0));
        let treatments = BTreeMap::from([(label("control"), Treatment::HoldOut)]);
        assert_eq!(Trial { treatments, ..trial() }.control_place(), Some(1));
        assert_eq!(Trial { control: Some(label("green")), ..trial() }.control_place(), Some(1));
    }
}
