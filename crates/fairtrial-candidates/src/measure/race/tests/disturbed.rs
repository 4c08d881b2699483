//! Runs that something disturbed, and what is repeated for them (CA-71).

use super::*;

/// CA-71
#[test]
fn a_disturbed_candidate_is_repeated_beside_a_fresh_base() {
    let mut race = race(unconfirmed(), 2);
    let runs = drive(&mut race, |order| {
        let measured = quiet(&[0.7, 0.8])(order);
        match (order.block, number(&order.side), order.repeat) {
            // Slow and disturbed; what replaces it is what counts.
            (3, Some(0), 0) => disturbed(timed(9.0)),
            _ => measured,
        }
    });
    let block: Vec<&Run> = runs
        .iter()
        .filter(|run| run.order.series.purpose == Purpose::Race && run.order.block == 3)
        .collect();
    assert_eq!(block.len(), 6, "four sides and a pair");
    let partner = block
        .iter()
        .find(|run| run.order.partner_of.is_some())
        .unwrap();
    assert_eq!(partner.order.side, Side::Base);
    assert_eq!(
        partner.order.partner_of,
        Some(Side::Candidate("c-00".to_owned()))
    );
    assert!(
        block
            .iter()
            .all(|run| run.order.hash_seed == block[0].order.hash_seed)
    );
    let report = race.report();
    assert_eq!((report.tally.repeated, report.tally.flagged), (2, 0));
    assert!(report.ranking[0].judgement.as_ref().unwrap().high < 0.71);
}

/// CA-71
#[test]
fn a_disturbed_base_takes_its_whole_block_with_it() {
    let mut race = race(unconfirmed(), 2);
    let runs = drive(&mut race, |order| {
        match (&order.side, order.block, order.repeat) {
            (Side::Base, 3, 0) if order.series.purpose == Purpose::Race => disturbed(timed(9.0)),
            _ => quiet(&[0.7, 0.8])(order),
        }
    });
    let repeats = runs.iter().filter(|run| run.order.repeat == 1).count();
    assert_eq!(repeats, 4);
    let report = race.report();
    assert_eq!((report.tally.repeated, report.tally.flagged), (4, 0));
    assert!(report.ranking[0].judgement.as_ref().unwrap().low > 0.69);
}

/// CA-71
#[test]
fn what_stays_disturbed_is_kept_and_flagged_after_two_repeats() {
    let mut race = race(unconfirmed(), 1);
    let runs = drive(&mut race, |order| match (&order.side, order.block) {
        (Side::Candidate(_), 3) => disturbed(timed(0.6)),
        _ => quiet(&[0.7])(order),
    });
    let of_candidate = |run: &&Run| number(&run.order.side) == Some(0) && run.order.block == 3;
    let repeats: Vec<u32> = runs
        .iter()
        .filter(of_candidate)
        .map(|run| run.order.repeat)
        .collect();
    assert_eq!(repeats, [0, 1, 2]);
    let report = race.report();
    assert_eq!((report.tally.repeated, report.tally.flagged), (4, 1));
    assert!(
        report.ranking[0].judgement.as_ref().unwrap().low < 0.61,
        "kept"
    );
}

/// CA-71
#[test]
fn a_base_that_is_always_disturbed_repeats_each_block_twice_and_no_more() {
    let mut race = race(unconfirmed(), 1);
    let runs = drive(&mut race, |order| match &order.side {
        Side::Base if order.series.purpose == Purpose::Race => disturbed(quiet(&[0.7])(order)),
        _ => quiet(&[0.7])(order),
    });
    assert_eq!(runs.len(), 8 + 8 * 3 * 3);
    assert_eq!(race.report().tally.flagged, 8);
}
