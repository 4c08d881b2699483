//! Whether anybody runs what is queued (CL-38). Says once that nobody does, and once that somebody does again; no call ends
//! because of it.

use std::rc::Rc;
use std::time::Duration;

use super::coordinator::Coordinator;
use crate::answers::Nodes;
use crate::dispatch::Dispatch;
use crate::names::Class;
use crate::terms::NodeState;

/// Who starts agents at the same time is not told that there are none.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl<D: Dispatch + 'static> Coordinator<D> {
    /// While there is something to be run.
    pub(super) async fn look_for_agents(self: Rc<Self>) {
        let mut alone = Alone::default();
        let mut wait = FIRST_LOOK;
        loop {
            tokio::time::sleep(wait).await;
            wait = FIRST_LOOK;
            if self.opened.get().is_none() || self.is_idle() {
                continue;
            }
            // Whoever waits for the server says so already.
            if let Ok(nodes) = self.dispatch.nodes().await {
                let class = self.config.class;
                match alone.news(is_served(&nodes, class)) {
                    Some(Served::Not) => log::warn!(
                        "no agent serves calls of class `{class}`; waiting for one: \
                         fairtrial agent --class {class} ..."
                    ),
                    Some(Served::Again) => log::info!("an agent serves calls of class `{class}`"),
                    None => {}
                }
                wait = LOOK_EVERY;
            }
        }
    }
}

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
enum Served {
    Not,
    Again,
}

/// What was said.
#[derive(Debug, Default)]
struct Alone {
    said: bool,
}

impl Alone {
    /// What is new, if anything is.
    fn news(&mut self, is_served: bool) -> Option<Served> {
        let is_news = is_served == self.said;
        self.said = !is_served;
        match (is_news, is_served) {
            (false, _) => None,
            (true, false) => Some(Served::Not),
            (true, true) => Some(Served::Again),
        }
    }
}

/// One that is ill may be well again.
fn is_served(nodes: &Nodes, class: Class) -> bool {
    let mut live = nodes.live.iter();
    live.any(|node| node.classes.contains(&class) && node.state != NodeState::Draining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Agent;
    use crate::terms::Node;

    fn nodes(classes: &[Class], state: NodeState) -> Nodes {
        let node = Node {
            agent: Agent::new("n1", "x").unwrap(),
            classes: classes.to_vec(),
            state,
            about: serde_json::Value::Null,
        };
        Nodes {
            live: vec![node],
            ..Nodes::default()
        }
    }

    /// CL-38
    #[test]
    fn it_is_said_once_that_nobody_serves() {
        let mut alone = Alone::default();
        let looks = [true, false, false, true, true, false];
        let said = looks.map(|is_served| alone.news(is_served));
        use Served::{Again, Not};
        let news = [None, Some(Not), None, Some(Again), None, Some(Not)];
        assert_eq!(said, news);
    }

    /// CL-38
    #[test]
    fn who_drains_or_serves_other_classes_serves_nobody() {
        use NodeState::{Draining, Unhealthy, Up};
        let both = [Class::Cpu, Class::Timing];
        assert!(is_served(&nodes(&both, Up), Class::Timing));
        assert!(is_served(&nodes(&both, Unhealthy), Class::Timing));
        assert!(!is_served(&nodes(&both, Draining), Class::Timing));
        assert!(!is_served(&nodes(&[Class::Cpu], Up), Class::Timing));
        assert!(!is_served(&Nodes::default(), Class::Cpu));
    }
}
