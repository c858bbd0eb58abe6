//! SUBSCRIBE and UNSUBSCRIBE (§3.8 to §3.11): builds the requests to the service, and the acknowledgements
//! from its results.

use noroshi_types::CloseReason;

use super::{Conversation, Phase};
use crate::mqtt::action::{Action, SubscribeItem, SubscribeRequest, Subscribed, UnsubscribeRequest};
use crate::mqtt::{
    Config, FilterError, INBOX_TOPIC, Packet, Properties, Property, Qos, ReasonCode, RetainHandling, SubAck,
    Subscribe, Subscription, TopicFilter, Version, Violation,
};

impl Conversation {
    pub(super) fn handle_subscribe<'a>(
        &self,
        config: &Config,
        subscribe: Subscribe<'_>,
    ) -> Result<Action<'a>, Violation> {
        let mut items = Vec::new();
        for (filter, options) in subscribe.filters.iter() {
            if items.len() == config.subscriptions_max {
                return Err(Violation::TooManyFilters);
            }
            items.push(SubscribeItem { filter: TopicFilter::parse(filter).map_err(refusal), options });
        }
        let id = subscribe.properties.number(Property::SubscriptionIdentifier).unwrap_or(0);
        Ok(Action::Subscribe(SubscribeRequest { packet_id: subscribe.packet_id, id, items }))
    }

    /// Adds the subscriptions that were not rejected and writes SUBACK. An error ends the connection.
    /// `since`: [`Subscription::since`].
    pub fn subscribed(
        &mut self,
        config: &Config,
        request: SubscribeRequest,
        since: i64,
        out: &mut Vec<u8>,
    ) -> Result<Vec<Subscribed>, CloseReason> {
        if self.phase != Phase::Open {
            return Ok(Vec::new());
        }
        let mut made = Vec::new();
        let mut reasons = Vec::with_capacity(request.items.len());
        for item in request.items {
            let options = item.options;
            let reason = item.filter.and_then(|filter| {
                let (filter_kept, id) = (filter.clone(), request.id);
                let (is_of_client, retained_due) = (true, false);
                let subscription =
                    Subscription { filter: filter_kept, options, id, is_of_client, since, retained_due };
                let list = self.subscriptions.get_or_insert_default();
                let is_new =
                    list.put(subscription, config.subscriptions_max).ok_or(ReasonCode::QuotaExceeded)?;
                let wants_retained = match options.retain_handling() {
                    // §3.8.3.1
                    _ if filter.share().is_some() => false,
                    RetainHandling::Send => true,
                    RetainHandling::SendIfNew => is_new,
                    RetainHandling::DoNotSend => false,
                };
                made.push(Subscribed { filter, is_new, wants_retained });
                Ok(granted(options.qos()))
            });
            let reason = reason.unwrap_or_else(|refused| refused);
            reasons.push(match self.version {
                Version::V3 => reason.subscribe_return_code(),
                Version::V5 => reason as u8,
            });
        }
        let (packet_id, properties) = (request.packet_id, Properties::default());
        match self.push_or_close(Packet::SubAck(SubAck { packet_id, properties, reasons: &reasons }), out) {
            Action::Close { reason, .. } => Err(reason),
            _ => Ok(made),
        }
    }

    pub(super) fn handle_unsubscribe<'a>(
        &self,
        config: &Config,
        unsubscribe: Subscribe<'_>,
    ) -> Result<Action<'a>, Violation> {
        let mut filters = Vec::new();
        for (filter, _) in unsubscribe.filters.iter() {
            if filters.len() == config.subscriptions_max {
                return Err(Violation::TooManyFilters);
            }
            // An invalid filter was never subscribed.
            filters.push(TopicFilter::parse(filter).ok());
        }
        Ok(Action::Unsubscribe(UnsubscribeRequest { packet_id: unsubscribe.packet_id, filters }))
    }

    /// Removes the subscriptions and writes UNSUBACK. An error ends the connection.
    pub fn unsubscribed(
        &mut self,
        request: UnsubscribeRequest,
        out: &mut Vec<u8>,
    ) -> Result<(), CloseReason> {
        if self.phase != Phase::Open {
            return Ok(());
        }
        let mut remove = |filter: &Option<TopicFilter>| {
            let list = self.subscriptions.as_mut();
            filter.as_ref().zip(list).is_some_and(|(filter, list)| list.remove(filter))
        };
        let reason = |existed| match existed {
            true => ReasonCode::Success as u8,
            false => ReasonCode::NoSubscriptionExisted as u8,
        };
        let reasons: Vec<u8> = request.filters.iter().map(|filter| reason(remove(filter))).collect();
        if self.subscriptions.as_ref().is_some_and(|list| list.len() == 0) {
            self.subscriptions = None;
        }
        let (packet_id, properties) = (request.packet_id, Properties::default());
        match self.push_or_close(Packet::UnsubAck(SubAck { packet_id, properties, reasons: &reasons }), out) {
            Action::Close { reason, .. } => Err(reason),
            _ => Ok(()),
        }
    }

    /// Whether the client receives messages to the device itself; otherwise they stay in the inbox.
    pub fn receives_inbox(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|list| list.matching(INBOX_TOPIC).next().is_some())
    }

    pub fn subscriptions(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.iter().flat_map(|list| list.iter())
    }
}

fn granted(qos: Qos) -> ReasonCode {
    match qos {
        Qos::AtMostOnce => ReasonCode::Success,
        Qos::AtLeastOnce => ReasonCode::GrantedQos1,
        Qos::ExactlyOnce => ReasonCode::GrantedQos2,
    }
}

/// The reason code in SUBACK.
fn refusal(error: FilterError) -> ReasonCode {
    match error {
        FilterError::Wildcard | FilterError::Unmatchable | FilterError::Share => {
            ReasonCode::TopicFilterInvalid
        }
    }
}
