//! Catch-up of one connection, with scripted reads: pages, held messages, recoveries.

use noroshi_store::Head;
use noroshi_types::{AppId, Epoch, Since, Timestamp, TopicPosition, Urgency, When};

use super::held::HELD_MAX;
use super::in_flight::ACKNOWLEDGED_MIN;
use super::*;

fn message(id: u8) -> Arc<Message> {
    let position = Position { epoch: Epoch(1), offset: u64::from(id) };
    Arc::new(Message {
        id: NotificationId::from_bytes([id; 16]),
        app: AppId(1),
        when: When::Stored,
        urgency: Urgency::Normal,
        topic: Some(TopicPosition { topic: Topic::from_trusted("news"), position }),
        notification: None,
        data: None,
        sent_at: Timestamp(0),
        expires_at: Timestamp(9),
        push_waits: false,
        waits_for_use: false,
        category: None,
    })
}

fn page(ids: &[u8], retained: &[u8], more: bool) -> BacklogPage {
    let messages = |ids: &[u8]| ids.iter().copied().map(message).collect();
    BacklogPage { messages: messages(ids), retained: messages(retained), heads: Vec::new(), more }
}

fn ids(paged: &[Paged]) -> Vec<(u8, bool)> {
    paged.iter().map(|paged| (paged.message.id.as_bytes()[0], paged.retained)).collect()
}

/// What a connection does without input, as text: `?` reads, `=` waits, `3` writes 3, `.` is done.
fn run(catch_up: &mut CatchUp) -> String {
    let mut did = String::new();
    loop {
        match catch_up.step() {
            Step::Wait => return did + "=",
            Step::Page(rest) => did.push_str(&format!("[{}]", rest.len())),
            Step::Done => return did + ".",
            Step::Read => did.push('?'),
            Step::Recovered { report, .. } => {
                did.push_str(if report.is_none_or(|report| report.complete) { "!" } else { "-" })
            }
            Step::Release(dispatch) => {
                if catch_up.pass(&dispatch.message) {
                    did.push_str(&dispatch.message.id.as_bytes()[0].to_string());
                }
            }
        }
    }
}

#[test]
fn retained_messages_are_written_once_at_their_place() {
    let mut catch_up = CatchUp::after_log_in(None, Vec::new(), false);
    assert_eq!(
        ids(&catch_up.take_page(page(&[2, 4], &[6, 1, 4], true))),
        [(1, true), (2, false), (4, false)]
    );
    assert_eq!(run(&mut catch_up), "?=");
    assert_eq!(ids(&catch_up.take_page(page(&[5, 6], &[], false))), [(5, false), (6, false)]);
    assert_eq!(run(&mut catch_up), ".");
}

#[test]
fn live_messages_wait_for_the_backlog() {
    let mut catch_up = CatchUp::after_log_in(None, Vec::new(), false);
    assert_eq!(catch_up.hold(&Dispatch::new(message(7)), None), Hold::Held);
    catch_up.take_page(page(&[1], &[], true));
    assert_eq!(run(&mut catch_up), "?=");
    assert_eq!(catch_up.hold(&Dispatch::new(message(8)), None), Hold::Held);
    catch_up.take_page(page(&[2], &[], false));
    assert_eq!(run(&mut catch_up), "78.");
    assert_eq!(catch_up.hold(&Dispatch::new(message(9)), None), Hold::Not);
}

#[test]
fn missed_messages_are_read_before_anything_continues() {
    let mut catch_up = CatchUp::after_log_in(None, Vec::new(), true);
    catch_up.take_page(page(&[1], &[], false));
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after, .. }) = catch_up.begin_read(None) else { panic!("a read") };
    assert_eq!(after, Some(message(1).id));
    for _ in 0..HELD_MAX {
        assert_eq!(catch_up.hold(&Dispatch::new(message(3)), None), Hold::Held);
    }
    assert_eq!(catch_up.hold(&Dispatch::new(message(4)), None), Hold::Missed);
    catch_up.take_page(page(&[2], &[], false));
    assert_eq!(run(&mut catch_up), "?=", "the fourth is in no page yet");
}

#[test]
fn passed_over_messages_are_read_again() {
    // On a live connection, and on one that reads: then the read in progress is not the one that is wanted.
    let mut catch_up = CatchUp::default();
    catch_up.reread(None, Vec::new(), message(0).id);
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after: None, .. }) = catch_up.begin_read(None) else {
        panic!("from the beginning")
    };
    assert!(catch_up.is_reread());
    catch_up.reread(None, Vec::new(), message(0).id);
    assert!(!catch_up.is_reread());
    assert_eq!(ids(&catch_up.take_page(page(&[1, 2], &[], false))), [(1, false), (2, false)]);
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after: None, .. }) = catch_up.begin_read(None) else { panic!("once more") };
    assert_eq!(catch_up.hold(&Dispatch::new(message(7)), None), Hold::Held);
    assert_eq!(ids(&catch_up.take_page(page(&[1], &[], true))), [(1, false)]);
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after, .. }) = catch_up.begin_read(None) else { panic!("the second page") };
    assert_eq!(after, Some(message(1).id));
    catch_up.take_page(page(&[2], &[], false));
    assert_eq!(run(&mut catch_up), "7.");
}

#[test]
fn a_topic_is_recovered_by_offset() {
    let mut catch_up = CatchUp::default();
    let since = Position { epoch: Epoch(1), offset: 1 };
    catch_up.recover(1, 5, Topic::from_trusted("news"), Some(Since::Position(since)), true);
    for id in [3, 4, 5] {
        assert_eq!(catch_up.hold(&Dispatch::new(message(id)), Some(5)), Hold::Held);
    }
    assert_eq!(catch_up.hold(&Dispatch::new(message(9)), Some(6)), Hold::Not, "another topic");
    assert_eq!(run(&mut catch_up), "?=");
    assert!(matches!(catch_up.begin_read(None), Some(Read::Topic { number: 1, retained: true, .. })));
    assert!(catch_up.take_recovered(2, page(&[9], &[], false)).is_none(), "another's answer");
    let paged = catch_up.take_recovered(1, page(&[2, 3], &[4], false)).expect("wanted");
    assert_eq!(ids(&paged), [(2, false), (3, false), (4, true)]);
    assert_eq!(run(&mut catch_up), "!5.");
}

#[test]
fn a_client_that_asks_for_the_position_gets_what_follows_it() {
    let topic = Topic::from_trusted("news");
    for (new, heard) in [(true, "!8."), (false, "!678.")] {
        let mut catch_up = CatchUp::default();
        catch_up.recover(1, 5, topic.clone(), Some(Since::Now), new);
        assert_eq!(run(&mut catch_up), "?=");
        assert!(matches!(catch_up.begin_read(None), Some(Read::Topic { since: None, .. })));
        for id in [6, 7, 8] {
            assert_eq!(catch_up.hold(&Dispatch::new(message(id)), Some(5)), Hold::Held);
        }
        let position = Position { epoch: Epoch(1), offset: 7 };
        let heads = vec![Head { topic: topic.clone(), position, complete: true }];
        let paged =
            catch_up.take_recovered(1, BacklogPage { heads, ..page(&[], &[], false) }).expect("wanted");
        assert!(paged.is_empty());
        let Step::Recovered { report, .. } = catch_up.step() else { panic!("the read is finished") };
        assert_eq!(
            report,
            Some(Recovered { topic: topic.clone(), complete: true, position: Some(position) })
        );
        assert_eq!(format!("!{}", run(&mut catch_up)), heard, "new: {new}");
    }
}

/// The log is not read, so messages between the subscription and the retained one are unknown.
#[test]
fn a_retained_message_does_not_move_the_position() {
    for (copies, heard) in [(false, "!6."), (true, "!67.")] {
        let mut catch_up = CatchUp::default();
        let topic = Topic::from_trusted("news");
        match copies {
            true => catch_up.copy_retained(1, 5, topic),
            false => catch_up.recover(1, 5, topic, None, true),
        }
        assert_eq!(run(&mut catch_up), "?=");
        assert!(matches!(catch_up.begin_read(None), Some(Read::Topic { number: 1, retained: true, .. })));
        for id in [6, 7] {
            assert_eq!(catch_up.hold(&Dispatch::new(message(id)), Some(5)), Hold::Held);
        }
        let paged = catch_up.take_recovered(1, page(&[], &[7], false)).expect("wanted");
        assert_eq!(ids(&paged), [(7, true)]);
        assert_eq!(run(&mut catch_up), heard);
    }
}

#[test]
fn in_flight_messages_are_sent_first_and_once() {
    let owed = |id, retained| UnacknowledgedMessage { id: message(id).id, retained };
    let mut catch_up = CatchUp::after_log_in(None, Vec::new(), false);
    catch_up.read_log(Place::of(message(4).id), Place::of(message(6).id));
    catch_up.send_again(vec![owed(5, false), owed(2, true), owed(3, false)]);
    assert!(catch_up.awaits_again());
    // The page of the log-in waits.
    let first = catch_up.take_page(page(&[3, 6], &[], false));
    catch_up.defer(first);
    assert_eq!(catch_up.hold(&Dispatch::new(message(7)), None), Hold::Held);
    assert_eq!(catch_up.unsent(), [owed(5, false), owed(2, true), owed(3, false)]);
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Outstanding { ids: asked }) = catch_up.begin_read(None) else { panic!("by id") };
    assert_eq!(asked, [5, 2, 3].map(|id| message(id).id));
    // The third expired.
    let found = catch_up.take_again(&[message(5), message(2)]);
    assert!(found.contains(&owed(2, true)) && !found.contains(&owed(3, false)) && found.len() == 2);
    let Step::Page(rest) = catch_up.step() else { panic!("a page") };
    assert_eq!(ids(&rest), [(5, false), (2, true), (3, false), (6, false)]);
    // No room for any: messages without a place in a log are still due, and logs are read from the same place.
    catch_up.keep_rest(rest);
    assert_eq!(catch_up.unsent(), [owed(5, false), owed(2, true)]);
    assert_eq!(catch_up.sent_to(Place::of(message(7).id), message(0).id), Place::of(message(4).id));
    catch_up.waits_for_room = false;
    assert_eq!(run(&mut catch_up), "[4]?=");
    assert!(matches!(catch_up.begin_read(None), Some(Read::Log { .. })));
    let paged = catch_up.take_log(vec![message(5), message(7)], Some(Place::of(message(7).id)), None);
    assert_eq!(ids(&paged), [(7, false)]);
    assert!(catch_up.is_logged(message(5).id) && catch_up.is_logged(message(7).id));
}

#[test]
fn the_sent_place_is_before_everything_that_waits() {
    let at = |id| Place::of(message(id).id);
    let before = |id| Place(at(id).0 - 1);
    let mut catch_up = CatchUp::default();
    assert_eq!(catch_up.sent_to(at(9), message(0).id), at(9));
    // The fourth has no room, and those behind it wait with it.
    catch_up.park(&Dispatch::new(message(4)), Vec::new());
    assert_eq!(catch_up.hold(&Dispatch::new(message(5)), None), Hold::Held);
    assert_eq!(catch_up.sent_to(at(9), message(0).id), before(4));
    catch_up.waits_for_room = false;
    let Step::Release(dispatch) = catch_up.step() else { panic!("let out") };
    assert!(catch_up.pass(&dispatch.message));
    assert_eq!(catch_up.sent_to(at(9), message(0).id), before(5));
    // More arrives than is held: missed messages are behind the first one that was parked. The fourth may arrive again.
    for _ in 0..HELD_MAX {
        catch_up.hold(&Dispatch::new(message(6)), None);
    }
    assert_eq!(catch_up.hold(&Dispatch::new(message(8)), None), Hold::Missed);
    assert_eq!(catch_up.sent_to(at(9), message(0).id), before(4));
}

#[test]
fn a_held_message_of_a_page_does_not_delay_logs() {
    let at = |id| Place::of(message(id).id);
    let mut catch_up = CatchUp::default();
    catch_up.park(&Dispatch::new(message(4)), Vec::new());
    assert!(catch_up.sent_to(at(9), message(3).id) < at(4));
    assert_eq!(catch_up.sent_to(at(9), message(4).id), at(9));
}

#[test]
fn messages_held_during_a_reread_are_read_from_logs() {
    let at = |id| Place::of(message(id).id);
    let mut catch_up = CatchUp::default();
    catch_up.park(&Dispatch::new(message(4)), Vec::new());
    catch_up.waits_for_room = false;
    catch_up.reread(None, Vec::new(), message(9).id);
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { received_to: heard, .. }) = catch_up.begin_read(Some(at(1))) else {
        panic!("a page")
    };
    assert!(Place::of(heard.expect("it was live")) < at(4));
    // Pages leave out what only a wildcard matches; held messages up to their end are dropped.
    catch_up.take_page(page(&[8], &[], false));
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Log { since }) = catch_up.begin_read(Some(at(1))) else { panic!("logs") };
    assert!(since < at(4));
}

#[test]
fn acknowledged_messages_are_not_written() {
    let mut catch_up = CatchUp::after_log_in(None, Vec::new(), false);
    let paged = catch_up.take_page(page(&[3, 4, 5], &[2], false));
    catch_up.keep_rest(paged);
    catch_up.acknowledge(&[message(2).id, message(4).id]);
    catch_up.waits_for_room = false;
    let Step::Page(rest) = catch_up.step() else { panic!("a page") };
    assert_eq!(ids(&rest), [(2, true), (3, false), (5, false)]);
    // Neither is what reads bring from now on, before it is written.
    assert!(catch_up.is_acknowledged(message(4).id) && !catch_up.is_acknowledged(message(5).id));
    assert_eq!(ids(&catch_up.take_log(vec![message(4), message(6)], None, None)), [(6, false)]);
    let many: Vec<_> =
        (0..2 * ACKNOWLEDGED_MIN as u128).map(|n| NotificationId::from_bytes(n.to_be_bytes())).collect();
    catch_up.acknowledge(&many);
    assert!(!catch_up.is_acknowledged(message(4).id), "bounded");
    assert!(many[ACKNOWLEDGED_MIN..].iter().all(|id| catch_up.is_acknowledged(*id)));
}

#[test]
fn an_ended_name_brought_its_messages_in_flight() {
    let (at, news) = (|id| Place::of(message(id).id), Topic::from_trusted("news"));
    let owed = |id| UnacknowledgedMessage { id: message(id).id, retained: false };
    for is_early in [true, false] {
        let mut catch_up = CatchUp::after_log_in(None, Vec::new(), false);
        catch_up.read_log(at(1), at(9));
        catch_up.send_again(vec![owed(7)]);
        assert_eq!(run(&mut catch_up), "?=");
        // The fifth and the sixth are acknowledged; the page ends before the seventh, which waits.
        let paged = catch_up.take_page(page(&[3], &[], true));
        catch_up.defer(paged);
        if is_early {
            catch_up.end_name(&news, at(2), at(9), message(3).id);
            assert_eq!(catch_up.unsent(), [owed(7), owed(3)], "neither has a position now");
        }
        catch_up.take_again(&[message(7)]);
        if !is_early {
            catch_up.end_name(&news, at(2), at(9), message(3).id);
        }
        assert_eq!(
            [2, 3, 6, 7, 8].map(|id| catch_up.ended().brought(&message(id))),
            [false, true, true, true, false]
        );
    }
}

#[test]
fn a_held_message_of_a_log_does_not_delay_logs() {
    let (at, news) = (|id| Place::of(message(id).id), Topic::from_trusted("news"));
    let mut catch_up = CatchUp::default();
    // Logs have nothing of the fourth: its name brings it, or it expired meanwhile.
    catch_up.park(&Dispatch::new(message(4)), Vec::new());
    catch_up.hold(&Dispatch::new(message(6)), None);
    catch_up.read_log(at(1), at(3));
    catch_up.take_log(vec![message(6)], Some(at(7)), None);
    assert_eq!(catch_up.sent_to(at(9), message(3).id), at(9), "the sixth was sent, and perhaps acknowledged");
    catch_up.hold(&Dispatch::new(message(8)), None);
    assert_eq!(catch_up.sent_to(at(9), message(3).id), Place(at(8).0 - 1));
    // If a name that ends brought it, logs bring it after all.
    catch_up.end_name(&news, at(2), at(9), message(3).id);
    assert!(catch_up.gaps().has(&message(4)));
    let begin = catch_up.gaps().begin().expect("a gap");
    assert!(at(2) < begin && begin < at(4));
}

#[test]
fn logs_leave_out_what_an_ended_name_brought() {
    let at = |id| Place::of(message(id).id);
    let news = Topic::from_trusted("news");
    let mut catch_up = CatchUp::after_log_in(None, Vec::new(), false);
    catch_up.read_log(at(1), at(6));
    // 3 is written, and 5 has no room.
    let mut paged = catch_up.take_page(page(&[3, 5], &[], false));
    catch_up.keep_rest(paged.split_off(1));
    catch_up.end_name(&news, at(2), at(6), message(5).id);
    let brought = |catch_up: &mut CatchUp, id| catch_up.ended().brought(&message(id));
    assert_eq!([2, 3, 6, 7].map(|id| brought(&mut catch_up, id)), [false, true, true, false]);
    assert_eq!(catch_up.unsent(), [UnacknowledgedMessage { id: message(5).id, retained: false }]);
    // The next connection gets it too, until logs were read that far.
    let ended = catch_up.ended().behind(at(5));
    assert_eq!((ended.len(), catch_up.ended().behind(at(6)).len()), (1, 0));
    let mut next = CatchUp::after_log_in(None, Vec::new(), false);
    next.ended().restore(ended);
    assert!(brought(&mut next, 3));
    // Nothing was written before the first page.
    next.end_name(&news, at(0), at(6), message(0).id);
    assert_eq!([1, 2, 7].map(|id| brought(&mut next, id)), [false; 3]);
}

#[test]
fn logs_bring_what_an_ended_name_did_not() {
    let at = |id| Place::of(message(id).id);
    let news = Topic::from_trusted("news");
    let mut catch_up = CatchUp::after_log_in(None, Vec::new(), false);
    catch_up.ask_at(at(3));
    catch_up.read_log(at(1), at(3));
    catch_up.take_page(page(&[3], &[], false));
    assert_eq!(run(&mut catch_up), "?=");
    // Logs reach further than pages, and leave out what the name still has to bring. Then more arrives than can be
    // held.
    assert!(matches!(catch_up.begin_read(Some(at(1))), Some(Read::Log { .. })));
    catch_up.take_log(Vec::new(), Some(at(7)), None);
    catch_up.waits_for_room = true;
    for _ in 0..=HELD_MAX {
        catch_up.hold(&Dispatch::new(message(8)), None);
    }
    assert_eq!(catch_up.brought_by_name(&news, at(0), at(9), message(3).id), at(3));
    catch_up.end_name(&news, at(0), at(9), message(3).id);
    // A connection that ends now passes it to the next one.
    assert_eq!(catch_up.gaps().begin(), Some(at(3)));
    assert_eq!(catch_up.sent_to(at(9), message(3).id), at(7));
    let mut next = CatchUp::after_log_in(None, Vec::new(), false);
    next.gaps().restore(catch_up.gaps().held());
    assert_eq!(next.gaps().begin(), Some(at(3)));
    // This one reads them behind the pages. Messages behind the gap belong to the filters.
    catch_up.waits_for_room = false;
    assert_eq!(run(&mut catch_up), "?=");
    assert!(matches!(catch_up.begin_read(Some(at(1))), Some(Read::Backlog { .. })));
    catch_up.take_page(page(&[], &[], false));
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Log { since }) = catch_up.begin_read(Some(at(1))) else { panic!("the gap") };
    assert_eq!(since, at(3));
    let paged = catch_up.take_log(vec![message(5), message(8)], Some(at(8)), None);
    assert_eq!(ids(&paged), [(5, false)]);
    assert!(paged.iter().all(|paged| paged.by == Brought::ById) && catch_up.gaps().is_empty());
    // A connection that reads logs from before the gap does not bring it again.
    next.gaps().restore(Vec::new());
    next.ended().restore(catch_up.ended().behind(at(1)));
    next.read_log(at(1), at(9));
    assert_eq!(ids(&next.take_log(vec![message(5), message(8)], Some(at(8)), None)), [(8, false)]);
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Log { since }) = catch_up.begin_read(Some(at(1))) else { panic!("logs") };
    assert_eq!(since, at(7));
}

#[test]
fn a_reread_backlog_brings_what_its_pages_contain() {
    let (at, news) = (|id| Place::of(message(id).id), Topic::from_trusted("news"));
    let mut catch_up = CatchUp::after_log_in(None, Vec::new(), false);
    // Wildcards match everything from 9 on; pages bring the rest of names.
    catch_up.receive_own_from(message(9).id);
    catch_up.take_page(page(&[2, 3], &[], true));
    catch_up.reread(None, Vec::new(), message(9).id);
    assert_eq!(catch_up.brought_by_name(&news, at(0), at(9), message(3).id), at(3));
    // A connection with all its pages was offered everything.
    let mut live = CatchUp::default();
    live.reread(None, Vec::new(), message(9).id);
    assert_eq!(live.brought_by_name(&news, at(0), at(9), message(3).id), at(9));
}

#[test]
fn messages_held_for_an_ended_name_are_read_from_logs() {
    let at = |id| Place::of(message(id).id);
    let news = Topic::from_trusted("news");
    let mut catch_up = CatchUp::default();
    catch_up.copy_retained(1, 5, news.clone());
    assert_eq!(catch_up.hold(&Dispatch::new(message(4)), Some(5)), Hold::Held);
    assert_eq!(catch_up.sent_to(at(6), message(0).id), at(6), "other topics are live");
    catch_up.end_name(&news, at(2), at(6), message(0).id);
    catch_up.await_gaps(Vec::new(), message(6).id);
    catch_up.forget_topics(&HashSet::from([5]));
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Log { since }) = catch_up.begin_read(Some(at(1))) else { panic!("the gap") };
    assert!(since < at(4));
    assert_eq!(ids(&catch_up.take_log(vec![message(4)], Some(at(4)), None)), [(4, false)]);
    assert_eq!(run(&mut catch_up), ".");
}

#[test]
fn gaps_close_as_logs_are_read_and_are_bounded() {
    let at = |id| Place::of(message(id).id);
    let news = Topic::from_trusted("news");
    let mut gaps = Gaps::default();
    gaps.add(&news, at(5), at(5));
    assert!(gaps.is_empty(), "nothing was left out");
    gaps.add(&news, at(2), at(5));
    assert!(
        !gaps.has(&message(2)) && gaps.has(&message(3)) && gaps.has(&message(5)) && !gaps.has(&message(6))
    );
    gaps.close(at(2), Some(at(3)));
    assert_eq!(gaps.begin(), Some(at(3)));
    // A gap that is added during a read that began behind it.
    gaps.add(&news, at(1), at(4));
    gaps.close(at(3), None);
    assert!(gaps.has(&message(2)) && gaps.has(&message(3)) && !gaps.has(&message(4)));
    for n in 0..2_000 {
        gaps.add(&Topic::from_trusted(&format!("t{n}")), at(6), at(7));
    }
    assert!(gaps.held().len() <= 1_000 && gaps.has(&message(7)), "whatever topic it is of");
}

#[test]
fn pages_begin_before_the_messages_that_a_recovery_holds() {
    let mut catch_up = CatchUp::default();
    catch_up.copy_retained(1, 5, Topic::from_trusted("news"));
    assert_eq!(catch_up.hold(&Dispatch::new(message(4)), Some(5)), Hold::Held);
    // A message of another topic has no room, and then more arrives than is held.
    let other = |id| {
        let mut other = (*message(id)).clone();
        other.topic.as_mut().expect("one").topic = Topic::from_trusted("other");
        Arc::new(other)
    };
    catch_up.park(&Dispatch::new(other(6)), Vec::new());
    for _ in 0..=HELD_MAX {
        catch_up.hold(&Dispatch::new(other(7)), None);
    }
    catch_up.waits_for_room = false;
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after, .. }) = catch_up.begin_read(None) else { panic!("a page") };
    assert!(after.is_some_and(|after| Place::of(after) < Place::of(message(4).id)));
    // Messages that were written, of others and of the topic, are not written again.
    let mut page = page(&[4, 8], &[], false);
    page.messages.insert(1, other(5));
    page.messages.insert(0, message(3));
    page.messages.insert(3, other(7));
    assert_eq!(ids(&catch_up.take_page(page)), [(4, false), (7, false), (8, false)]);
}

#[test]
fn pages_also_bring_messages_accepted_after_the_log_in() {
    let own = || vec![Topic::from_trusted("news")];
    let mut catch_up = CatchUp::after_log_in(None, own(), false);
    catch_up.receive_own_from(message(4).id);
    catch_up.take_page(page(&[2], &[], true));
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after, own_topics, received_to: heard }) = catch_up.begin_read(None) else {
        panic!("a page")
    };
    assert_eq!((after, own_topics, heard), (Some(message(2).id), own(), Some(message(4).id)));
    // Passed-over messages are wanted before the pages end: own topics are read from where pages end.
    catch_up.take_page(page(&[6], &[], true));
    catch_up.reread(None, own(), message(9).id);
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after: None, received_to: heard, .. }) = catch_up.begin_read(None) else {
        panic!("anew")
    };
    assert_eq!(heard, Some(message(6).id));
}

#[test]
fn waiting_messages_differ_from_released_ones() {
    let mut catch_up = CatchUp::default();
    catch_up.read_again(message(1).id, Vec::new());
    assert_eq!(catch_up.hold(&Dispatch::new(message(3)), None), Hold::Held);
    assert!(catch_up.holds(message(3).id) && !catch_up.holds(message(2).id));
    catch_up.recover(1, 5, Topic::from_trusted("news"), None, true);
    assert_eq!(catch_up.hold(&Dispatch::new(message(4)), Some(5)), Hold::Held);
    assert!(catch_up.holds(message(4).id));
    catch_up.take_page(page(&[], &[], false));
    assert!(matches!(catch_up.step(), Step::Release(_)));
    assert!(!catch_up.holds(message(3).id));
}

#[test]
fn a_reoffered_message_is_released_wherever_pages_end() {
    // Later messages of its topic were acknowledged, so no page brings it, and the ids of the pages are above its own.
    let again = Dispatch::offered(message(3), true);
    assert!(!again.is_paged(message(9).id) && Dispatch::new(message(3)).is_paged(message(9).id));
    let mut catch_up = CatchUp::default();
    catch_up.read_again(message(1).id, Vec::new());
    assert_eq!(catch_up.hold(&again, None), Hold::Held);
    assert!(!catch_up.holds(message(3).id), "no page has to be written with it");
    catch_up.take_page(page(&[9], &[], false));
    assert_eq!(run(&mut catch_up), "3.");
}

#[test]
fn lost_messages_are_read_from_before_the_loss() {
    // Live: from the reported place.
    let mut catch_up = CatchUp::default();
    catch_up.read_again(message(3).id, Vec::new());
    assert!(catch_up.was_live);
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after, .. }) = catch_up.begin_read(None) else { panic!("a read") };
    assert_eq!(after, Some(message(3).id));
    // During a read that has passed the place already.
    assert_eq!(catch_up.hold(&Dispatch::new(message(9)), None), Hold::Held);
    catch_up.take_page(page(&[5], &[], false));
    assert!(matches!(catch_up.step(), Step::Release(_)) && catch_up.pass(&message(9)));
    catch_up.read_again(message(4).id, Vec::new());
    assert!(catch_up.was_live, "it was offered what its shard was all the time");
    assert_eq!(run(&mut catch_up), "?=");
    let Some(Read::Backlog { after, .. }) = catch_up.begin_read(None) else { panic!("a read") };
    assert_eq!(after, Some(message(5).id), "a page had brought what stands before the fifth");
    catch_up.take_page(page(&[], &[], false));
    assert_eq!(catch_up.hold(&Dispatch::new(message(11)), None), Hold::Held);
    assert!(matches!(catch_up.step(), Step::Release(_)) && catch_up.pass(&message(11)));
    catch_up.read_again(message(8).id, Vec::new());
    assert_eq!(run(&mut catch_up), "?=");
    catch_up.read_again(message(7).id, Vec::new());
    let Some(Read::Backlog { after, .. }) = catch_up.begin_read(None) else { panic!("a read") };
    assert_eq!(after, Some(message(7).id), "the eleventh was written, the eighth perhaps never came");
}
