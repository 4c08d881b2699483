//! The in-order window of `batch`: things finish in any order and leave in order of their numbers. Pure.

use std::collections::VecDeque;

/// Holds what finished early until all before it is out.
#[derive(Debug)]
pub(crate) struct Reorder<T> {
    /// Number of the next to leave; also that of the front slot.
    next: u64,
    slots: VecDeque<Option<T>>,
}

impl<T> Reorder<T> {
    /// An empty window; the first to leave is number 0.
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            slots: VecDeque::new(),
        }
    }

    /// Number of the next to leave.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Takes in number `index`, which has not been here before.
    pub(crate) fn insert(&mut self, index: u64, item: T) {
        let place = index
            .checked_sub(self.next)
            .and_then(|p| usize::try_from(p).ok());
        let place = place.expect("a number is inserted once, before it leaves");
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        let before = self.slots[place].replace(item);
        debug_assert!(before.is_none(), "number {index} was inserted twice");
    }

    /// Whether the next in order is here.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.slots.front(), Some(Some(_)))
    }

    /// Takes the next in order, if it is here.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// EX-100
        #[test]
        fn whatever_the_order_of_finish_all_leave_in_order_and_as_soon_as_they_may(
            order in (1..200_u64).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle())
        ) {
            let mut window = Reorder::new();
            let mut finished = std::collections::BTreeSet::new();
            let mut left = Vec::new();
            for index in &order {
                window.insert(*index, *index);
                finished.insert(*index);
                prop_assert_eq!(window.is_ready(), finished.contains(&window.next()));
                while let Some(item) = window.pop() {
                    left.push(item);
                }
                prop_assert!(!finished.contains(&window.next()), "one stayed that could leave");
            }
            prop_assert_eq!(left, (0..order.len() as u64).collect::<Vec<_>>());
            prop_assert!(window.slots.is_empty());
        }
    }
}
