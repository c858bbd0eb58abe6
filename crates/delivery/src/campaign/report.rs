//! A comparison of a campaign's variants. Pure.
//!
//! All counts are devices. *Targeted* devices are those for which a variant was chosen and which are done, including
//! held-out ones. *Delivered* is the most certain outcome available (below). Both rates are relative to all targeted
//! devices, whatever became of them: a comparison of only the reached ones would compare groups that are not random.

use noroshi_store::{Campaign, VariantSums};
use noroshi_types::{Label, NotificationId, Outcome, When};

use crate::campaign::done::done;
use crate::campaign::proportion::{Difference, Share};
use crate::campaign::spec::Spec;
use crate::campaign::trial::Trial;

/// The variants of one campaign, in the order of the definition.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub experiment: Label,
    /// The variant that the others are compared with.
    pub control: Label,
    pub variants: Vec<VariantReport>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct VariantReport {
    pub name: Label,
    /// The notification under which its pushes are sent and its outcomes recorded.
    pub notification: NotificationId,
    /// Nothing is sent to its devices.
    pub held_out: bool,
    pub targeted: u64,
    /// Accepted by a push service.
    pub pushed: u64,
    /// Written to a connection; a device that reconnects may count twice.
    pub written: u64,
    /// Acknowledged by the device; only for `stored` messages.
    pub acked: u64,
    pub delivered: Share,
    pub opened: Share,
    /// `None`: held out, or the control itself.
    pub against_control: Option<Against>,
}

/// `None` while one of the two variants has no devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Against {
    pub delivered: Option<Difference>,
    pub opened: Option<Difference>,
}

impl Report {
    /// `None`: the campaign sends no variants.
    pub(crate) fn of(campaign: &Campaign, spec: &Spec) -> Option<Self> {
        let trial = spec.trial.as_ref()?;
        let control = trial.control_place()?;
        let when = spec.message.when;
        let named = trial.names().zip(&campaign.variants);
        let mut variants: Vec<_> = named.map(|(name, sums)| of_variant(trial, name, sums, when)).collect();
        let (delivered, opened) = variants.get(control).map(|control| (control.delivered, control.opened))?;
        for (place, variant) in variants.iter_mut().enumerate() {
            let against = Against {
                delivered: variant.delivered.against(delivered),
                opened: variant.opened.against(opened),
            };
            variant.against_control = (place != control && !variant.held_out).then_some(against);
        }
        let control = variants.get(control)?.name.clone();
        Some(Self { experiment: trial.experiment.clone(), control, variants })
    }
}

fn of_variant(trial: &Trial, name: &Label, sums: &VariantSums, when: Option<When>) -> VariantReport {
    let count = |outcome: Outcome| {
        let counts = sums.counts.iter().filter(|(counted, ..)| *counted == outcome);
        counts.map(|(.., count)| count).sum::<u64>()
    };
    let targeted = done(&sums.counts, when);
    let delivered = match when {
        None => Outcome::Pushed,
        Some(When::Stored) => Outcome::Acked,
        Some(When::Active | When::Connected) => Outcome::Written,
    };
    VariantReport {
        name: name.clone(),
        notification: sums.notification,
        held_out: trial.holds_out(name),
        targeted,
        pushed: count(Outcome::Pushed),
        written: count(Outcome::Written),
        acked: count(Outcome::Acked),
        delivered: Share::new(count(delivered), targeted),
        opened: Share::new(count(Outcome::Opened), targeted),
        against_control: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::campaign::done::TOKEN_LOST;
    use crate::campaign::plan::tests::campaign;
    use crate::campaign::spec::tests::spec;
    use crate::campaign::trial::Treatment;
    use crate::campaign::trial::tests::trial;
    use crate::definition::experiment::tests::label;

    fn sums(counts: &[(Outcome, u64)]) -> VariantSums {
        let counts = counts.iter().map(|(outcome, count)| (*outcome, String::new(), *count)).collect();
        VariantSums { notification: NotificationId::from_bytes([7; 16]), counts }
    }

    fn report(spec: Spec, variants: Vec<VariantSums>) -> Report {
        Report::of(&Campaign { variants, ..campaign(&spec) }, &spec).expect("variants")
    }

    #[test]
    fn pushes_accepted_by_a_push_service_are_delivered() {
        use Outcome::{Cancelled, NoPushToken, Opened, PushRefused, Pushed};
        let spec = Spec { trial: Some(trial()), ..spec() };
        // An older version did not report lost tokens, and did not count devices without one.
        let uncounted = (NoPushToken, 9);
        let mut control = sums(&[(Pushed, 70), (PushRefused, 5), (Cancelled, 4), uncounted, (Opened, 48)]);
        control.counts.push((NoPushToken, TOKEN_LOST.to_owned(), 1));
        let report = report(spec.clone(), vec![control, sums(&[(Pushed, 70), (Opened, 56)])]);
        assert_eq!((report.experiment.as_str(), report.control.as_str()), ("button", "control"));
        let [control, green] = &report.variants[..] else { panic!("two variants") };
        assert_eq!((control.targeted, control.pushed, control.against_control), (80, 70, None));
        assert_eq!((control.delivered, control.opened), (Share::new(70, 80), Share::new(48, 80)));
        let opened = green.against_control.and_then(|against| against.opened).expect("both have somebody");
        assert!(opened.is_distinguishable() && (opened.estimate.low - 0.0524).abs() < 1e-4, "{opened:?}");
        assert_eq!(Report::of(&campaign(&spec), &Spec { trial: None, ..spec }), None);
    }

    #[test]
    fn acknowledged_stored_messages_are_delivered() {
        use Outcome::{Acked, Kept, Opened, Pushed, Written};
        let mut spec = Spec { trial: Some(trial()), ..spec() };
        spec.message.when = Some(When::Stored);
        let counts = [(Kept, 10), (Written, 25), (Pushed, 4), (Acked, 6), (Opened, 3)];
        let report = report(spec, vec![sums(&counts), sums(&[])]);
        let control = &report.variants[0];
        assert_eq!((control.targeted, control.written, control.acked), (10, 25, 6));
        assert_eq!((control.delivered, control.opened), (Share::new(6, 10), Share::new(3, 10)));
        let against = report.variants[1].against_control.expect("it is sent something");
        assert_eq!((against.delivered, against.opened), (None, None), "of nobody nothing is known");
    }

    #[test]
    fn held_out_devices_are_counted_and_not_compared() {
        let treatments = BTreeMap::from([(label("control"), Treatment::HoldOut)]);
        let spec = Spec { trial: Some(crate::campaign::Trial { treatments, ..trial() }), ..spec() };
        let report = report(spec, vec![sums(&[(Outcome::HeldOut, 9)]), sums(&[(Outcome::Pushed, 8)])]);
        let [held, green] = &report.variants[..] else { panic!("two variants") };
        assert!(held.held_out && !green.held_out);
        assert_eq!((held.targeted, held.against_control), (9, None));
        assert_eq!((report.control.as_str(), green.against_control), ("green", None));
    }
}
