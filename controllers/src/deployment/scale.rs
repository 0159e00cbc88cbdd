//! Sizes outside of a roll-out step: the deployment was resized, or is paused.

use k8s_openapi::api::apps::v1::Deployment;

use super::plan::{Work, Works};
use super::sets;

/// Spreads the deployment's size over its sets: all to the only active one, or in proportion during a roll-out.
pub fn proportionally(d: &Deployment, works: &mut Works) {
    if let Some(only) = active_or_latest(works) {
        if only.size() != sets::desired(d) {
            sets::scale(d, &mut only.after, sets::desired(d));
        }
        return;
    }
    if works.new.as_ref().is_some_and(|w| is_saturated(d, w)) {
        for work in works.old.iter_mut().filter(|w| w.size() > 0) {
            sets::scale(d, &mut work.after, 0);
        }
    } else if sets::rolls(d) {
        spread(d, works);
    }
}

/// The one set with replicas; without any, the new set or else the youngest. `None` if several have replicas.
fn active_or_latest(works: &mut Works) -> Option<&mut Work> {
    let mut all: Vec<&mut Work> = works.old.iter_mut().chain(works.new.iter_mut()).collect();
    let active: Vec<usize> = (0..all.len()).filter(|i| all[*i].size() > 0).collect();
    match active.as_slice() {
        [] => all.pop(),
        [one] => Some(all.swap_remove(*one)),
        _ => None,
    }
}

/// True if the new set has all replicas, knows that, and all of them are available.
fn is_saturated(d: &Deployment, new: &Work) -> bool {
    let desired = sets::desired(d);
    new.size() == desired
        && sets::number(&new.after, sets::DESIRED) == Some(desired)
        && sets::available(&new.after) == desired
}

fn spread(d: &Deployment, works: &mut Works) {
    let desired = sets::desired(d);
    let allowed = if desired > 0 { desired + sets::bounds(d).surge } else { 0 };
    let mut active: Vec<&mut Work> =
        works.old.iter_mut().chain(works.new.iter_mut()).filter(|w| w.size() > 0).collect();
    let to_add = allowed - active.iter().map(|w| w.size()).sum::<i32>();
    if to_add > 0 {
        active.sort_by(|a, b| b.size().cmp(&a.size()).then_with(|| sets::by_age(&b.after, &a.after)));
    } else {
        active.sort_by(|a, b| b.size().cmp(&a.size()).then_with(|| sets::by_age(&a.after, &b.after)));
    }
    let mut added = 0;
    let mut sizes = Vec::with_capacity(active.len());
    for work in &active {
        let share = if to_add == 0 { 0 } else { share(d, work, to_add, added) };
        sizes.push(work.size() + share);
        added += share;
    }
    if let Some(first) = sizes.first_mut().filter(|_| to_add != 0) {
        *first = (*first + to_add - added).max(0);
    }
    for (work, size) in active.into_iter().zip(sizes) {
        sets::scale(d, &mut work.after, size);
    }
}

/// A set's part of what is to be added (or, negative, taken away).
fn share(d: &Deployment, work: &Work, to_add: i32, added: i32) -> i32 {
    let left = to_add - added;
    if left == 0 {
        return 0;
    }
    let fraction = fraction(d, work);
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

fn fraction(d: &Deployment, work: &Work) -> i32 {
    let size = work.size();
    if sets::desired(d) == 0 {
        return -size;
    }
    let most = f64::from(sets::desired(d) + sets::bounds(d).surge);
    let noted = sets::number(&work.after, sets::MAX).filter(|n| *n > 0);
    let before = noted.or_else(|| d.status.as_ref().and_then(|s| s.replicas)).filter(|n| *n > 0);
    let Some(before) = before else { return 0 };
    // The result is at most the new maximum, which is an i32.
    #[allow(clippy::cast_possible_truncation)]
    let scaled = (f64::from(size) * most / f64::from(before)).round() as i32;
    scaled - size
}
