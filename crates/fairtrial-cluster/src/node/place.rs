//! A call's place on the machine: beside others, or alone (CL-37). By the lock that evaluations use, so that they, too,
//! measure while no call runs.

use fairtrial_exec::Held;

use super::{NodeAgent, NodeError, Stop};
use crate::dispatch::{Dispatch, DispatchError};
use crate::names::{Class, Consumer, QueueName};

/// A place, until it is dropped.
pub(super) struct Place {
    pub(super) class: Class,
    lock: Held,
}

impl Place {
    /// Whether somebody waits whose turn it would be by now.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock.is_wanted()
    }
}

impl<D: Dispatch + 'static> NodeAgent<D> {
    /// A place for a call of this class, from the one there is; that one if there is no use for another.
    ///
    /// To be alone all others have to end what they run, so that is asked for only where a call waits.
    pub(super) async fn place_for(
        &self,
        (queue, class): (&QueueName, Class),
        consumer: &Consumer,
        place: Option<Place>,
    ) -> Result<Option<Place>, DispatchError> {
        if place.as_ref().is_some_and(|place| place.class == class) {
            return Ok(place);
        }
        if class == Class::Timing && !self.dispatch.waits(queue, class, consumer).await? {
            return Ok(place);
        }
        drop(place); // who has the lock must not wait for it once more
        Ok(self.take_place(class).await)
    }

    /// None if it is told to stop before it has one.
    async fn take_place(&self, class: Class) -> Option<Place> {
        let label = format!("agent {} ({class})", self.config.agent.name());
        let lock = &self.config.lock;
        let taken = async {
            match class {
                Class::Cpu => lock.shared(&label, |_| ()).await,
                Class::Timing => lock.exclusive(&label, |_| ()).await,
            }
        };
        tokio::select! {
            biased;
            () = self.stopped(Stop::Drain) => None,
            taken = taken => match taken {
                Ok(lock) => Some(Place { class, lock }),
                Err(error) => {
                    self.end(NodeError::Lock(error));
                    None
                }
            }
        }
    }
}
